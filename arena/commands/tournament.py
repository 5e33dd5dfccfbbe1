"""``arena tournament``: a round robin between players of one or several runs, which rates them."""

import argparse
import json
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from arena.commands.arguments import positive
from arena.common.errors import ConfigError
from arena.config.resumed import load_stored_config
from arena.evaluation.tournament import Outcome, find_contestants, play_tournament, rate
from arena.league.rating.elo import fit_elo
from arena.league.rating.intervals import win_rate_interval
from arena.records.player_names import split_run
from arena.records.run_directory import RunDirectory
from arena.report.league_plots import draw_heat_map
from arena.report.league_tables import Line, matrix_table, standing_table, undecided
from arena.report.plots import save_figure
from arena.report.terminal import find_terminal, make_console


def outcome_json(outcome: Outcome) -> dict[str, object]:
    """Return the outcome as JSON values; None for pairs without games."""

    def listed(matrix: np.ndarray) -> list[list[float | None]]:
        return [[None if np.isnan(value) else float(value) for value in row] for row in matrix]

    elo = fit_elo(outcome.results[..., 0] + outcome.results[..., 1] / 2, outcome.results.sum(-1))
    wins, draws, losses = np.moveaxis(outcome.results, -1, 0)
    low, high = win_rate_interval(wins, draws, losses, outcome.results.sum(-1))
    return {
        "players": [
            {
                "player": name,
                "elo_of_all_games": {end: float(values[number]) for end, values in elo._asdict().items()},
                **outcome.ratings[number]._asdict(),
                "games": int(outcome.games[number]),
                **dict(zip(("wins", "draws", "losses"), outcome.counts[number].tolist(), strict=True)),
                "mean_return": float(outcome.returns[number, 0]),
                "standard_error": float(outcome.returns[number, 1]),
            }
            for number, name in enumerate(outcome.players)
        ],
        "win_rates": listed(outcome.win_rates),
        "win_rates_low": listed(low),
        "win_rates_high": listed(high),
        "mean_returns": listed(outcome.mean_returns),
    }


def main(argv: Sequence[str]) -> int:
    """Run ``arena tournament``; return the exit code.

    Raises:
      ConfigError: there is no such run or player, or the players cannot meet.
    """
    arguments = _parser().parse_args(argv)
    named = [split_run(text) for text in arguments.runs]
    runs = [RunDirectory.existing(path) for path in dict.fromkeys(path for path, _ in named)]
    configs = [load_stored_config(run.config) for run in runs]
    rows = [row for round_ in configs[0].round_list() for row in round_.rows]
    if arguments.row >= len(rows):
        raise ConfigError(f"--row: expected 0 to {len(rows) - 1}, found {arguments.row}")
    specs = arguments.players.split(",") if arguments.players else None
    if any(name for _, name in named):
        if specs is not None:
            raise ConfigError("expected the players once, found some behind the runs (RUN:PLAYER) and --players")
        specs = [spec for path, name in named for spec in _specs(path, name)]
    contestants = find_contestants(list(zip(runs, configs, strict=True)), specs)
    seed = configs[0].seed if arguments.seed is None else arguments.seed
    games = list(
        play_tournament(
            rows[arguments.row],
            contestants,
            games=arguments.games,
            copies=arguments.copies,
            seed=seed,
            deterministic=arguments.deterministic,
            first_meets_all=arguments.first_meets_all,
        )
    )
    outcome = rate([contestant.name for contestant in contestants], games, seed)
    title = f"{', '.join(run.name for run in runs)}: tournament"
    measure = "mean return" if arguments.returns else "win rate"
    matrix = outcome.mean_returns if arguments.returns else outcome.win_rates
    wins, draws, losses = np.moveaxis(outcome.results, -1, 0)
    interval = None if arguments.returns else win_rate_interval(wins, draws, losses, outcome.results.sum(-1))
    if arguments.plot is not None:
        note = f"{measure} of the row against the column; {len(games):,} games"
        figure = draw_heat_map(title, note, outcome.players, matrix, interval)
        save_figure(figure, arguments.plot)
    if arguments.json:
        print(json.dumps(outcome_json(outcome), indent=1))
        return 0
    console = make_console(sys.stdout, find_terminal(sys.stdout))
    console.print(standing_table(title, _lines(outcome)))
    table = matrix_table(f"{measure} of the row against the column", outcome.players, matrix, interval)
    neighbours = [
        (first, second, tuple(outcome.results[number, number + 1].tolist()))
        for number, (first, second) in enumerate(pairwise(outcome.players))
        if outcome.results[number, number + 1].any()
    ]
    for shown in (table, undecided(neighbours)):
        if shown is not None:
            console.print(shown)
    return 0


def _specs(path: Path, name: str) -> list[str]:
    """Return the names of the players that an argument stands for: the one behind the run, or all of the run."""
    run = RunDirectory.existing(path)
    return [f"{run}:{each}" for each in ([name] if name else load_stored_config(run.config).players)]


def _lines(outcome: Outcome) -> list[Line]:
    lines = []
    elo = fit_elo(outcome.results[..., 0] + outcome.results[..., 1] / 2, outcome.results.sum(-1))
    for number, name in enumerate(outcome.players):
        wins, draws, losses = outcome.counts[number].tolist()
        mean = tuple(outcome.returns[number].tolist())
        rating = outcome.ratings[number]
        fitted = elo.mean[number], elo.low[number], elo.high[number]
        lines.append(Line(name, rating, int(outcome.games[number]), (wins, draws, losses), mean, elo=fitted))
    return lines


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "arena tournament", description="Play a round robin between players of one or several runs, and rate them."
    )
    parser.add_argument(
        "runs",
        nargs="+",
        metavar="run",
        help="run directories, or players of them (runs/x:blue@best); the matches are played in the environment of the "
        "first one",
    )
    parser.add_argument(
        "--players",
        help="players of the tournament, separated by commas: name (with its newest weights), "
        "name@steps (a snapshot), run:name, historical (all historical players of a league); "
        "default: all players of all runs",
    )
    parser.add_argument(
        "--first-meets-all", action="store_true", help="play only games in which the first of the players takes part"
    )
    parser.add_argument(
        "--games", type=positive, default=200, help="number of games of each pair of players (%(default)s)"
    )
    parser.add_argument("--row", type=int, default=0, help="which row of the table is played, from 0 (%(default)s)")
    parser.add_argument("--deterministic", action="store_true", help="take the most likely actions")
    parser.add_argument("--seed", type=int, help="seed of the games (default: the seed of the first run)")
    parser.add_argument(
        "--copies", type=positive, default=16, help="number of environments at the same time (%(default)s)"
    )
    parser.add_argument("--returns", action="store_true", help="show mean returns in place of win rates")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the matrix of results: out.png or out.svg")
    return parser
