"""How good the players of leagues become: ``python -m benchmarks.league_strength readme --seeds 1-3``.

Each league runs once for each seed, as its file stands. At the end the newest main player (of self-play: its player)
meets each of its own snapshots and each snapshot of all others, in games in which actions are drawn. The figures are
shares of the points, a draw counts one half, so 0.5 is a draw between equals: the mean and the least over its own
snapshots, then over the others'. A main player that loses to what it was before has unlearned it. Beside that it meets
the player of a self-play run of as many steps, a random player and, at connect four, a search of two half-moves.
Kuhn and Leduc poker are measured by NashConv instead, which is 0 in an equilibrium.

``--set KEY=VALUE`` changes a key of the file, so that two settings are compared: ``--set
policies.learner.settings.changing_players=false`` has the sizes of a player that learns alone. ``--quick`` runs one
shortened league, and fails if its main player unlearns with two seeds: it guards the defaults in the gate.
"""

import argparse
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

from arena.config.resumed import load_stored_config
from arena.config.rounds import TableRow
from arena.config.run import RunConfig
from arena.config.sections import PolicyConfig
from arena.evaluation.exploitability import Snapshot, game_of, load_strategy
from arena.evaluation.players import Contestant, find_contestant
from arena.evaluation.tournament import HISTORICAL, find_contestants, play_tournament, rate
from arena.records.run_directory import RunDirectory
from benchmarks.learning import seeds, train
from benchmarks.tools.measuring import ROOT

GAMES = 48
"""Games of each pair of players."""

QUICK_STEPS, QUICK_BAR, QUICK_SEEDS = 160_000, 0.3, (1, 2)
"""Budget of the league in ``--quick``, the least share of points that its main player takes from each of its snapshots,
and the seeds, of which one must reach it: runs are not deterministic, and one may be unlucky."""


class League(NamedTuple):
    """A league to measure.

    Attributes:
      file: configuration file below the project's root; README.md stands for the league that it shows.
      overrides: keys of the file that are changed.
      scripted: reference to a scripted policy that the player meets, too.
      is_exact: whether NashConv is measured, in place of games.
    """

    file: str
    overrides: tuple[str, ...] = ()
    scripted: str | None = None
    is_exact: bool = False


MINIMAX = f"{ROOT / 'benchmarks' / 'tools' / 'minimax.py'}:Minimax"
CONNECT_FOUR = "configs/self_play_connect_four.yaml"
PHASE = "league.settings.players={{{0}: {{one_phase_step: {1}}}, {2}: {{one_phase_step: {1}}}}}"
LEAGUES: dict[str, League] = {
    "readme": League("README.md"),
    "readme_2m": League("README.md", ("steps=2_000_000", PHASE.format("main_player", 100_000, "main_exploiter"))),
    "touchdown_2v2": League("configs/alphastar_touchdown.yaml"),
    "connect_four": League(CONNECT_FOUR, scripted=MINIMAX),
    "connect_four_alphastar": League(
        CONNECT_FOUR,
        (
            "league.use=alphastar",
            "league.matches=1",
            "league.settings.categories={default: {main_player: 1, main_exploiter: 1}}",
            PHASE.format("main_player", 40_000, "main_exploiter"),
        ),
        scripted=MINIMAX,
    ),
    "kuhn": League("configs/psro_kuhn.yaml", is_exact=True),
    "leduc": League("configs/alphastar_leduc.yaml", is_exact=True),
}


class Strength(NamedTuple):
    """Shares of the points that the player of a finished league takes; an empty list where there was nobody to meet.

    Attributes:
      own: from each of its own snapshots.
      others: from each snapshot of other players.
      beside: from players outside of the league, by name.
      seconds: wall time of the run.
    """

    own: list[float]
    others: list[float]
    beside: dict[str, float]
    seconds: float


def text_of(league: League) -> str:
    """Return the configuration of a league as YAML."""
    text = (ROOT / league.file).read_text("utf-8")
    if not league.file.endswith(".md"):
        return text
    block = re.search(r"<!-- block: league.yaml -->\n```yaml\n(.*?)```", text, re.DOTALL)
    assert block is not None, f"{league.file} shows no league.yaml"
    return block[1]


def run_league(league: League, place: Path, name: str, overrides: Sequence[str]) -> tuple[RunDirectory, float]:
    """Run a league below ``place``; return its directory, and its seconds."""
    config = place / f"{name}.yaml"
    config.write_text(text_of(league), encoding="utf-8")
    fixed = (f"name={name}", f"run_root={place}", "records.tensorboard=false")
    began = time.monotonic()
    train(config, [*league.overrides, *overrides, *fixed], place / f"{name}.log")
    return RunDirectory.existing(place / name), time.monotonic() - began


def self_play(league: League, text: dict[str, Any]) -> list[str]:
    """Return the overrides that make self-play of a league: as many steps of its player, and phases as long."""
    settings = text["league"].get("settings", {}).get("players", {})
    phase = next((player["one_phase_step"] for player in settings.values() if "one_phase_step" in player), 2_000)
    return ["league.use=self_play", f"league.settings={{players: {{self_player: {{one_phase_step: {phase}}}}}}}"]


def share_of_points(row: TableRow, player: Contestant, opponents: Sequence[Contestant], seed: int) -> list[float]:
    """Return the share of points that a player takes from each opponent."""
    everybody = [player, *opponents]
    games = list(play_tournament(row, everybody, games=GAMES, seed=seed, first_meets_all=True))
    outcome = rate([contestant.name for contestant in everybody], games, seed)
    place = {name: number for number, name in enumerate(outcome.players)}
    return [float(outcome.win_rates[place[player.name], place[opponent.name]]) for opponent in opponents]


def measure(run: RunDirectory, config: RunConfig, beside: Sequence[Contestant], seconds: float, seed: int) -> Strength:
    """Return the strength of a finished league's player against all snapshots, and against players beside it."""
    name = next(iter(config.players))
    row = config.round_list()[0].rows[0]
    player = find_contestant(run, config, name)
    snapshots = find_contestants([(run, config)], [HISTORICAL])
    shares = share_of_points(row, player, [*snapshots, *beside], seed)
    is_own = [snapshot.name.startswith(f"{name}_") for snapshot in snapshots]
    return Strength(
        own=[share for share, own in zip(shares, is_own, strict=False) if own],
        others=[share for share, own in zip(shares, is_own, strict=False) if not own],
        beside=dict(zip((each.name for each in beside), shares[len(snapshots) :], strict=True)),
        seconds=seconds,
    )


def nash_conv(run: RunDirectory, config: RunConfig) -> float:
    """Return NashConv of the newest main player; of PSRO that of the Nash mixture of all snapshots."""
    from arena.evaluation.exploitability import curve_of_run

    name = next(iter(config.players))
    if config.league is not None and config.league.use == "psro":
        return float(curve_of_run(run, config, [name]).nash[-1])
    game, newest = game_of(config), find_contestant(run, config, name).weights
    assert newest is not None
    return float(game.nash_conv(load_strategy(game, config, Snapshot(name, 0, newest))))


def outsiders(league: League, place: Path, seed: int, overrides: Sequence[str], *, alone: bool) -> list[Contestant]:
    """Return the players beside a league that its player meets: self-play, a random one, and a scripted one."""
    found = []
    text = yaml.safe_load(text_of(league))
    if not alone and text["league"].get("use", "alphastar") != "self_play":
        changes = [word for word in league.overrides if not word.startswith("league.")] + list(overrides)
        run, _ = run_league(League(league.file), place, f"self_play_{seed}", [*changes, *self_play(league, text)])
        config = load_stored_config(run.config)
        found.append(find_contestant(run, config, next(iter(config.players)))._replace(name="self-play"))
    found.append(Contestant("random", PolicyConfig(use="random"), None, place))
    if league.scripted is not None:
        found.append(Contestant("minimax", PolicyConfig(use=league.scripted), None, place))
    return found


def line(name: str, strengths: Sequence[Strength]) -> str:
    """Return a line of the table: of one run, or means over several ones (of the least: the least)."""

    def cell(groups: Sequence[list[float]]) -> str:
        groups = [group for group in groups if group]
        if not groups:
            return f"{'–':>12}"
        return f"{statistics.fmean(map(statistics.fmean, groups)):>7.2f}{min(map(min, groups)):>5.2f}"

    beside = "  ".join(
        f"{other} {statistics.fmean(strength.beside[other] for strength in strengths):.2f}"
        for other in strengths[0].beside
    )
    own, others = cell([each.own for each in strengths]), cell([each.others for each in strengths])
    seconds = statistics.median(strength.seconds for strength in strengths)
    return f"{name:<32}{own}  {others}  {seconds:>7.0f} s  {beside}"


def measured_league(name: str, args: argparse.Namespace) -> list[Strength]:
    """Run a league for each seed, and print a line for each."""
    league, strengths, distances = LEAGUES[name], [], []
    for seed in args.seeds:
        with tempfile.TemporaryDirectory(prefix="arena-league-") as scratch:
            place = Path(scratch)
            overrides = [*args.set, f"seed={seed}"]
            run, seconds = run_league(league, place, "league", overrides)
            config = load_stored_config(run.config)
            if league.is_exact:
                distances.append(nash_conv(run, config))
                print(f"{f'{name}, seed {seed}':<32}  NashConv {distances[-1]:.4f} {seconds:>7.0f} s", flush=True)
                continue
            beside = outsiders(league, place, seed, overrides, alone=args.alone)
            strengths.append(measure(run, config, beside, seconds, seed))
            print(line(f"{name}, seed {seed}", strengths[-1:]), flush=True)
    if len(strengths) > 1:
        print(line(f"{name}, all seeds", strengths), flush=True)
    if len(distances) > 1:
        print(f"{f'{name}, all seeds':<32}  NashConv {np.mean(distances):.4f}", flush=True)
    return strengths


def passes(seed: int, args: argparse.Namespace) -> bool:
    """Run the quick league with a seed; return whether its main player is as good as each of its own snapshots."""
    args.seeds = [seed]
    least = min(measured_league("readme", args)[0].own)
    print(f"least share of points from its own snapshots: {least:.2f}, expected {QUICK_BAR} or more", flush=True)
    return least >= QUICK_BAR


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print the table, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.league_strength", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("leagues", nargs="*", metavar="league", help=f"of {', '.join(LEAGUES)}; default: all")
    parser.add_argument("--seeds", type=seeds, default=[1, 2, 3], metavar="1-3")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override a key of the file")
    parser.add_argument("--alone", action="store_true", help="without the run of self-play beside it")
    parser.add_argument("--quick", action="store_true", help="one shortened league with a bar; for the gate")
    args = parser.parse_args(argv)
    for name in args.leagues:
        if name not in LEAGUES:
            parser.error(f"expected one of {', '.join(LEAGUES)}, found {name!r}")
    print(f"{'points taken from':<32}{'own':>7}{'least':>5}  {'others':>7}{'least':>5}  {'run':>9}", flush=True)
    if args.quick:
        args.alone = True
        args.set.insert(0, f"steps={QUICK_STEPS}")
        return 0 if any(passes(seed, args) for seed in QUICK_SEEDS) else 1
    for name in args.leagues or LEAGUES:
        measured_league(name, args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
