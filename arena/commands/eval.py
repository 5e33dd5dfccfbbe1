"""``arena eval``: play the trained players of a run against each other, print a table, record videos."""

import argparse
import contextlib
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from arena.commands.arguments import positive
from arena.common import colors
from arena.common.errors import ConfigError
from arena.config.resumed import load_stored_config
from arena.config.run import RunConfig, TableRow
from arena.evaluation.evaluate import evaluate
from arena.evaluation.play import Result
from arena.evaluation.results import pair_table, pairings, player_table, tally
from arena.evaluation.video import VideoRecorder
from arena.records.run_directory import RunDirectory
from arena.report.terminal import find_terminal, make_console

OUTSIDE_ONLY = (
    "expected a match that can be played here, found one with external games or an external player; "
    "arena serve RUN lets them play against trained players"
)


def main(argv: Sequence[str]) -> int:
    """Run ``arena eval``; return the exit code.

    Raises:
      ConfigError: there is no such run, no players, or a video cannot be written.
    """
    arguments = _parser().parse_args(argv)
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
    run = RunDirectory.existing(arguments.run)
    config = load_stored_config(run.config)
    with contextlib.nullcontext() if arguments.video is None else VideoRecorder(arguments.video) as film:
        results = evaluate(
            run,
            config,
            rows=_rows(config, arguments.row),
            names=arguments.seats.split(",") if arguments.seats else None,
            episodes=arguments.episodes,
            copies=arguments.copies,
            seed=config.seed if arguments.seed is None else arguments.seed,
            deterministic=arguments.deterministic,
            film=film,
            film_episodes=arguments.video_episodes,
        )
    _print(run, config, results)
    if arguments.video:
        print(f"  film: {arguments.video}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("arena eval", description="Play the trained players of a run against each other.")
    parser.add_argument("run", type=Path, help="a run directory, such as runs/quickstart")
    parser.add_argument("--episodes", type=positive, default=100, help="number of episodes (%(default)s)")
    parser.add_argument(
        "--seats",
        help="names of the players, separated by commas: one for each seat, or one for each player of the row",
    )
    parser.add_argument("--row", default="0", help="which row of the table to play, from 0, or all (%(default)s)")
    parser.add_argument("--deterministic", action="store_true", help="take the most likely actions")
    parser.add_argument("--seed", type=int, help="seed of the episodes (default: the seed of the run)")
    parser.add_argument(
        "--copies", type=positive, default=8, help="number of environments at the same time (%(default)s)"
    )
    parser.add_argument("--video", type=Path, metavar="FILE", help="write a film: out.mp4 or out.gif")
    parser.add_argument(
        "--video-episodes", type=positive, default=1, help="number of episodes in the film (%(default)s)"
    )
    return parser


def _rows(config: RunConfig, selection: str) -> list[TableRow]:
    """Return the rows that ``--row`` names, among those of all rounds (each distinct one once).

    Raises:
      ConfigError: there is no such row, or it has external games or an external player.
    """
    rows: list[TableRow] = []
    for round_ in config.round_list():
        rows += [row for row in round_.rows if row not in rows]
    if selection == "all":
        if all(row.outside for row in rows):
            raise ConfigError(OUTSIDE_ONLY)
        return [row for row in rows if not row.outside]
    if not selection.isdecimal() or int(selection) >= len(rows):
        raise ConfigError(f"--row: expected 0 to {len(rows) - 1}, or all, found {selection!r}")
    if rows[int(selection)].outside:
        raise ConfigError(f"--row {selection}: {OUTSIDE_ONLY}")
    return [rows[int(selection)]]


def _print(run: RunDirectory, config: RunConfig, results: Sequence[Result]) -> None:
    console = make_console(sys.stdout, find_terminal(sys.stdout))
    chosen = colors.resolve({name: policy.color for name, policy in config.players.items()})
    policies = {name: policy.use for name, policy in config.players.items()}
    pairs = pairings(results)
    console.print(player_table(str(run), policies, tally(results), chosen, outcomes=bool(pairs)))
    if len(pairs) > 1:
        console.print(pair_table(pairs, chosen))
