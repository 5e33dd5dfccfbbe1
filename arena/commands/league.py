"""``arena league``: the players of a run and the win rate of each pair, on the terminal, as JSON and in pictures."""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from rich.table import Table

from arena.config.resumed import load_stored_config
from arena.evaluation.exact_games import nash_weights
from arena.evaluation.exploitability import (
    Curve,
    curve_json,
    curve_table,
    find_snapshots,
    game_of,
    load_strategy,
    plot_curve,
)
from arena.evaluation.exploitability import curve as follow
from arena.league.rating.elo import Elo
from arena.records.readers.league import (
    League,
    Records,
    elo_of,
    has_league,
    intervals,
    matrix,
    mean_returns,
    read_league,
    why_empty,
    win_rates,
)
from arena.records.readers.run import open_records
from arena.records.readers.table import read_table
from arena.records.run_directory import RunDirectory
from arena.report.league_plots import draw_family, draw_heat_map, draw_ratings
from arena.report.league_tables import PARENTS, WIDEST, Line, matrix_table, standing_table, undecided
from arena.report.plots import save_figure
from arena.report.terminal import find_terminal, make_console

SHOWN = 24
"""Lines of a standing without ``--all``, the size of a screen."""


def main(argv: Sequence[str]) -> int:
    """Run ``arena league``; return the exit code.

    Raises:
      ConfigError: there is no such run or league, or its game cannot be solved.
    """
    arguments = _parser().parse_args(argv)
    run = RunDirectory.existing(arguments.run)
    with open_records(run.database) as connection:
        is_league = has_league(connection)
        league = read_league(connection) if is_league else read_table(connection)
    curve = exploitability(run, league) if arguments.exploitability else None
    pictures = [] if arguments.plot is None else draw(run, league, curve, arguments.plot, returns=arguments.returns)
    if arguments.json:
        print(json.dumps(league_json(league, curve), indent=1))
        return 0
    console = make_console(sys.stdout, find_terminal(sys.stdout))
    names = league.by_rating() if arguments.all else most_informative(league, SHOWN)
    notes = ("type", "parent", "steps")
    title = f"{run}: {'league' if is_league else 'win rates'}"
    elo = elo_of(league)
    lines = [_line(league, name, elo) for name in names]
    console.print(standing_table(title, lines, notes))
    if any(line.is_parents for line in lines):
        console.print(f"  {PARENTS} its parent's when it was frozen: it has not played under its own name")
    if not league.has_totals:
        console.print(
            "  recorded by an earlier version: all counts are decayed, and those that a reset cleared are gone"
        )
    if len(names) < len(league.members):
        console.print(f"  {len(league.members) - len(names)} more snapshots: --all")
    shown = most_informative(league, WIDEST)
    for table in matrices(league, shown, elo, returns=arguments.returns, is_league=is_league):
        console.print(table)
    if curve is not None:
        console.print(curve_table("NashConv, computed exactly", curve))
    for picture in pictures:
        console.print(f"  {picture}")
    return 0


def most_informative(league: League, count: int) -> list[str]:
    """Return the active players, and the best snapshots, at most ``count`` in all; by rating."""
    ranked = league.by_rating()
    snapshots = [name for name in ranked if not league.members[name].active]
    room = max(count - (len(ranked) - len(snapshots)), 0)
    left_out = set(snapshots[room:])
    return [name for name in ranked if name not in left_out]


def _line(league: League, name: str, elo: Mapping[str, tuple[float, float, float]]) -> Line:
    member, counts = league.members[name], league.counts(name)
    notes = (member.type if member.active else "", member.parent or "", f"{member.steps:,}")
    return Line(
        name,
        league.ratings.get(name),
        sum(counts),
        counts,
        notes=notes,
        elo=elo.get(name),
        is_parents=league.rated_by_parent(name),
    )


def matrices(
    league: League,
    names: Sequence[str],
    elo: Mapping[str, tuple[float, float, float]],
    *,
    returns: bool,
    is_league: bool,
) -> Iterator[Table]:
    """Yield the tables of each against each, as the league counts and of all games, and pairs that are not decided.

    The latter are of neighbours in the order of Elo.
    """
    measure = "mean return" if returns else "win rate"
    kinds = [("all games, by the weights that played them", league.totals)]
    if is_league and league.has_totals:
        kinds.insert(0, ("as the league counts: recent games weigh more", league.records))
    for kind, records in kinds:
        values = mean_returns(records, names) if returns else win_rates(records, names)
        beginnings = league.beginnings(records)
        table = matrix_table(
            f"{measure} of the row against the column" + f", {kind}" * is_league,
            names,
            values,
            None if returns else intervals(records, names),
            [[why_empty((home, away), records, beginnings) for away in names] for home in names],
        )
        if table is not None:
            yield table
    ranked = sorted((name for name in names if name in elo), key=lambda name: -elo[name][0])
    neighbours = [pair for pair in pairwise(ranked) if pair in league.totals]
    table = undecided((*pair, league.totals[pair][:3]) for pair in neighbours)
    if table is not None:
        yield table


def draw(run: RunDirectory, league: League, curve: Curve | None, kind: str, *, returns: bool) -> list[Path]:
    """Draw a league into its run's ``plots/``, as ``kind`` png or svg; return the files."""
    run.plots.mkdir(exist_ok=True)
    names = league.by_rating()
    measure = "mean return" if returns else "win rate"
    note = f"{measure} of the row against the column; the best rating first"
    active = [name for name, member in league.members.items() if member.active]
    figures = {}
    counted = {"payoff": ("payoff", league.records)}
    if league.has_totals and league.totals is not league.records:
        counted |= {
            "payoff": ("payoff, as the league counts", league.records),
            "all_games": ("all games", league.totals),
        }
    for name, (title, records) in counted.items():
        values = mean_returns(records, names) if returns else win_rates(records, names)
        ends = None if returns else intervals(records, names)
        figures[name] = draw_heat_map(f"{run.name}: {title}", note, names, values, ends)
    if league.curves:
        figures["ratings"] = draw_ratings(f"{run.name}: ratings", league.curves, active)
    if any(member.parent for member in league.members.values()):
        figures["family"] = draw_family(f"{run.name}: family", league.family())
    pictures = [save_figure(figure, run.plots / f"league_{name}.{kind}") for name, figure in figures.items()]
    if curve is not None:
        path = run.plots / f"league_exploitability.{kind}"
        pictures.append(plot_curve(f"{run.name}: exploitability", curve, path))
    return pictures


def exploitability(run: RunDirectory, league: League) -> Curve:
    """Return how far the league's snapshots are from a Nash equilibrium.

    Raises:
      ConfigError: the game cannot be solved, or there are no snapshots.
    """
    config = load_stored_config(run.config)
    game, snapshots = game_of(config), find_snapshots(run)
    strategies = [load_strategy(game, config, snapshot) for snapshot in snapshots]
    curve = follow(game, snapshots, strategies)
    ids = {member.path: name for name, member in league.members.items()}
    named = [
        (ids.get(str(s.path.relative_to(run.path))), strategy)
        for s, strategy in zip(snapshots, strategies, strict=True)
    ]
    # The last snapshot of every run is not in the league.
    known = [(name, strategy) for name, strategy in named if name is not None]
    met = [known[number] for number in all_met(mean_returns(league.records, [name for name, _ in known]))]
    if game.zero_sum and len(met) > 1:
        returns = mean_returns(league.records, [name for name, _ in met])
        weights = nash_weights(np.nan_to_num(returns))  # NaN on the diagonal
        mixed = game.mixture([strategy for _, strategy in met], weights)
        curve = curve._replace(counted=game.nash_conv(mixed), counted_of=len(met))
    return curve


def all_met(matrix: np.ndarray) -> list[int]:
    """Return rows of a matrix ``[N, N]`` of which each two have met, in ascending order.

    The player that has met the fewest others is removed first: a snapshot made shortly before the end.
    """
    chosen = list(range(len(matrix)))
    while True:
        unknown = np.isnan(matrix[np.ix_(chosen, chosen)])
        np.fill_diagonal(unknown, False)
        missed = unknown.sum(1)
        if not missed.any():
            return chosen
        del chosen[int(missed.argmax())]


def league_json(league: League, curve: Curve | None) -> dict[str, object]:
    """Return a league as JSON values; None for pairs without games."""

    def listed(matrix: np.ndarray) -> list[list[float | None]]:
        return [[None if np.isnan(value) else float(value) for value in row] for row in matrix]

    def matrices_of(records: Records) -> dict[str, object]:
        low, high = intervals(records, names)
        beginnings = league.beginnings(records)
        return {
            "win_rates": listed(win_rates(records, names)),
            "win_rates_low": listed(low),
            "win_rates_high": listed(high),
            "games": listed(matrix(records, names, lambda record: record.games)),
            "mean_returns": listed(mean_returns(records, names)),
            "since": [beginnings.get(name) for name in names],
        }

    names = league.by_rating()
    elo = elo_of(league)
    players = []
    for name in names:
        rating = league.ratings.get(name)
        counts = dict(zip(("wins", "draws", "losses"), league.counts(name), strict=True))
        player = {"player": name, **league.members[name]._asdict(), "games": league.games.get(name, 0), **counts}
        player["games_of_weights"] = sum(league.counts(name))
        player["rating"] = None if rating is None else rating._asdict()
        player["rating_of"] = league.members[name].parent if league.rated_by_parent(name) else name
        player["elo_of_all_games"] = dict(zip(Elo._fields, elo[name], strict=True)) if name in elo else None
        players.append(player)
    data: dict[str, object] = {"players": players, **matrices_of(league.records)}
    data["all_games"] = matrices_of(league.totals) if league.has_totals else None
    if curve is not None:
        data["exploitability"] = curve_json(curve)
        data["nash_conv_by_counted_returns"] = curve.counted
    return data


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "arena league",
        description="Show the players of a run, a league or a table of matches, with their ratings and the win rate of "
        "each pair.",
    )
    parser.add_argument("run", type=Path, help="a run directory, such as runs/psro_kuhn")
    parser.add_argument("--all", action="store_true", help=f"every player, not only the {SHOWN} most informative")
    parser.add_argument("--returns", action="store_true", help="show mean returns in place of win rates")
    parser.add_argument(
        "--exploitability", action="store_true", help="also compute NashConv of the snapshots (0 at a Nash equilibrium)"
    )
    parser.add_argument(
        "--plot", nargs="?", const="png", choices=("png", "svg"), help="draw pictures into the run's plots/ (%(const)s)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser
