"""Leagues without MPI: whether ratings order players by strength, and the cost of a job and of a game in large leagues.

``python -m benchmarks.league``. First three categories of one main player, one main exploiter and two league exploiters
over 100,000 games between players of known strength: Kendall's tau between strength and rating. Then the same league
grown to 10,000 players and 1,000,000 games: seconds for a job handed out, and for a game counted.
"""

import argparse
import math
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.stats import kendalltau  # type: ignore[import-untyped]

from arena.league.kinds import create_league
from arena.league.player import HistoricalPlayer

LEAST_TAU, MOST_PER_JOB, MOST_PER_GAME = 0.95, 1e-3, 100e-6
TYPES = {"main_player": 1, "main_exploiter": 1, "league_exploiter": 2}


class Simulated:
    """A league whose players' strength grows with their steps from an initial value, to which a reset returns it.

    Attributes:
      league: its manager.
      jobs, games: how many were handed out and counted.
      handing, counting: seconds that these took.
    """

    def __init__(self, phase: int, seed: int) -> None:
        """Create the league; a snapshot is taken after ``phase`` jobs of a player, or twice as many."""
        config = {
            "use": "alphastar",
            "seed": seed,
            "categories": dict.fromkeys("abc", TYPES),
            "players": {kind: {"one_phase_step": phase} for kind in TYPES},
        }
        self._strength: dict[str, float] = {}
        self.league: Any = create_league(config, self._save, self._load, lambda job: None)
        self._rng = np.random.default_rng(seed)
        active = self.league.active_players
        self._start = {player.player_id: 0.5 * number for number, player in enumerate(active)}
        for player in self.league.payoff.roster.players:
            self._strength[player.player_id] = self._start[player.player_id if player.active else player.parent_id]
        self.jobs, self.games, self.handing, self.counting = 0, 0, 0.0, 0.0

    def _save(self, source: str, target: str) -> None:
        _, player, _ = source.split("/")
        self._strength[f"{player}_{target.rsplit('/', 1)[1].removesuffix('.safetensors')}"] = self._strength[player]

    def _load(self, player: str, path: str) -> None:
        self._strength[player] = self._start[player]

    def play(self, games: int, per_job: int, growth: float) -> None:
        """Play so many games more, some in each job; each job increases its player's strength."""
        until = self.games + games
        while self.games < until:
            began = time.perf_counter()
            launched = self.league.advance().launched
            self.handing += time.perf_counter() - began
            self.jobs += len(launched)
            for job in launched:
                home, away = (self._strength[side[0]] for side in job["sides"])
                wins = self._rng.random(per_job) < 1 / (1 + math.exp(away - home))
                results = ["wins" if won else "losses" for won in wins]
                began = time.perf_counter()
                self.league.finish_job({"job_id": job["job_id"], "results": results})
                self.counting += time.perf_counter() - began
                self.games += per_job
                name = job["launch_player"]
                self._strength[name] += growth
                steps = self.league.player(name).total_agent_step + 1
                self.league.update_active_player({"player_id": name, "total_agent_step": steps})

    def tau(self) -> float:
        """Return Kendall's tau between the strengths of all historical players and their ratings."""
        names = [player.player_id for player in self.league.historical_players]
        ratings = self.league.payoff.ratings
        return float(kendalltau([self._strength[name] for name in names], [ratings[name].mu for name in names])[0])


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print, and return 1 if a bar is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.league", description=__doc__.partition("\n")[0])
    parser.add_argument("--games", type=int, default=100_000, help="of the league that is rated")
    parser.add_argument("--many-games", type=int, default=1_000_000, help="of the large league")
    args = parser.parse_args(argv)
    rated = Simulated(phase=200, seed=3)
    rated.play(args.games, per_job=5, growth=0.003)
    tau = rated.tau()
    print(f"{rated.games:,} games, {len(rated.league.historical_players)} historical players: Kendall's tau {tau:.3f}")
    large = Simulated(phase=5, seed=4)  # a snapshot after 10 jobs of 10 games, at the latest
    large.play(args.many_games, per_job=10, growth=0.0005)
    history = sum(isinstance(player, HistoricalPlayer) for player in large.league.payoff.roster.players)
    per_job, per_game = large.handing / large.jobs, large.counting / large.games
    print(
        f"{large.games:,} games, {history:,} historical players: {1e3 * per_job:.3f} ms per job handed out, "
        f"{1e6 * per_game:.1f} us per game counted"
    )
    met = tau >= LEAST_TAU and per_job <= MOST_PER_JOB and per_game <= MOST_PER_GAME
    print("as promised" if met else "NOT as promised")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
