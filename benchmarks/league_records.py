"""Whether a league that knows its snapshots' games keeps its main player good: ``python -m benchmarks.league_records``.

A scripted league of known strengths. An exploiter attacks with one of twelve tactics, the better the longer it has
trained, and takes another one when it is reset. The main player has a defence against each tactic; it learns those that
it meets and loses to, and unlearns all of them a little with every job. The win rate is the logistic function of attack
and defence, so each is known. Once the snapshots begin without records (``payoff.snapshot_keep: 0``), once they take
over those of their player: the main player's least win rate against all snapshots, the mean over the run.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from arena.league.kinds import create_league

TACTICS, PHASE, GAMES_PER_JOB, JOBS, MEASURED_EVERY = 12, 10, 8, 800, 40
LEARNING, UNLEARNING, ATTACKING = 0.5, 0.003, 0.1
MAIN, EXPLOITER = "main_player_default_0", "main_exploiter_default_0"


class Weights(NamedTuple):
    """What a player can do.

    Attributes:
      defence: against each tactic ``[TACTICS]``; of main players.
      tactic, attack: tactic of an exploiter, and its strength.
    """

    defence: np.ndarray
    tactic: int | None = None
    attack: float = 0.0


class ScriptedLeague:
    """A league of one main player and one exploiter.

    Attributes:
      least: the main player's least win rate against all snapshots, at intervals.
    """

    def __init__(self, seed: int, payoff: dict[str, Any]) -> None:
        """Create the league with settings of its payoff."""
        self._rng = np.random.default_rng(seed)
        players = ("main_player", "main_exploiter")
        config = {
            "seed": seed,
            "categories": {"default": dict.fromkeys(players, 1)},
            "players": {name: {"one_phase_step": PHASE} for name in players},
            "payoff": payoff,
        }
        self._league: Any = create_league(config, self._save, self._load, lambda job: None)
        self._weights = {MAIN: Weights(np.zeros(TACTICS)), EXPLOITER: Weights(np.zeros(0), tactic=0)}
        self.least: list[float] = []

    def _save(self, source: str, target: str) -> None:
        self._weights[_name(target)] = self._weights[target.split("/")[1]]

    def _load(self, player: str, path: str) -> None:
        if player == EXPLOITER:
            self._weights[player] = Weights(np.zeros(0), tactic=int(self._rng.integers(TACTICS)))
        else:  # a rollback
            self._weights[player] = self._weights[_name(path)]

    def win_rate(self, home: str, away: str) -> float:
        """Return the true win rate of one player against another."""
        first, second = self._weights[home], self._weights[away]
        if first.tactic is not None and second.tactic is None:
            return 1 - self.win_rate(away, home)
        ahead = 0.0
        if first.tactic is None and second.tactic is not None:
            ahead = float(first.defence[second.tactic] - second.attack)
        elif first.tactic is None:
            ahead = float(np.mean(first.defence - second.defence))
        return float(1 / (1 + np.exp(-2 * ahead)))

    def play(self) -> None:
        """Play all jobs."""
        for number in range(1, JOBS + 1):
            for job in self._league.advance().launched:
                home, away = job["sides"][0][0], job["sides"][1][0]
                rate = self.win_rate(home, away)
                won = self._rng.random(GAMES_PER_JOB) < rate
                results = ["wins" if each else "losses" for each in won]
                self._league.finish_job({"job_id": job["job_id"], "results": results})
                self._learn(home, away, 1 - rate)
                self._league.update_active_player({"player_id": home, "total_agent_step": number})
            if number % MEASURED_EVERY == 0:
                history = [player.player_id for player in self._league.historical_players]
                self.least.append(min(self.win_rate(MAIN, name) for name in history))

    def _learn(self, player: str, opponent: str, lost: float) -> None:
        """Let a player learn from a job in which it has lost a share of the games."""
        own, other = self._weights[player], self._weights[opponent]
        if player == EXPLOITER:
            self._weights[player] = own._replace(attack=own.attack + ATTACKING * (0.3 + lost))
            return
        defence = own.defence * (1 - UNLEARNING)
        if other.tactic is not None:
            defence[other.tactic] += LEARNING * lost
        elif opponent != player:
            defence += 0.02 * lost
        self._weights[player] = own._replace(defence=defence)


def _name(path: str) -> str:
    """Return the id of the snapshot with a weights file."""
    _, player, file = path.split("/")
    return f"{player}_{file.removesuffix('.safetensors')}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.league_records", description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=20, help="number of seeds (%(default)s)")
    args = parser.parse_args(argv)
    kinds = {"snapshots begin without records": {"snapshot_keep": 0.0}, "they take over their player's": {}}
    for text, payoff in kinds.items():
        least = []
        for seed in range(1, args.seeds + 1):
            league = ScriptedLeague(seed, payoff)
            league.play()
            least.append(float(np.mean(league.least)))
        error = np.std(least, ddof=1) / len(least) ** 0.5 if len(least) > 1 else 0.0
        first = ", ".join(f"{value:.3f}" for value in least[:3])
        print(f"{text:<32} least win rate {np.mean(least):.3f} ± {error:.3f}; seeds 1 to 3: {first}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
