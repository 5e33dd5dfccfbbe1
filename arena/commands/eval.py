"""``arena eval``: play the trained players of a run against each other, print a table, record videos."""

import argparse
import contextlib
import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from arena.commands.arguments import positive
from arena.common import colors
from arena.config.resumed import load_stored_config
from arena.config.run import RunConfig
from arena.evaluation.evaluate import evaluate, select_rows
from arena.evaluation.results import Results, pair_table, player_table
from arena.evaluation.video import VideoRecorder
from arena.records.player_files import NEWEST
from arena.records.run_directory import RunDirectory
from arena.report.terminal import find_terminal, make_console


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
        results = Results(
            evaluate(
                run,
                config,
                rows=select_rows(config, arguments.row),
                names=arguments.seats.split(",") if arguments.seats else None,
                at=arguments.at,
                episodes=arguments.episodes,
                copies=arguments.copies,
                seed=config.seed if arguments.seed is None else arguments.seed,
                deterministic=arguments.deterministic,
                film=film,
                film_episodes=arguments.video_episodes,
            )
        )
    if arguments.json:
        print(json.dumps({"run": str(run), "at": arguments.at, **results.to_json()}, indent=1))
        return 0
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
        help="names of the players, separated by commas: one for each seat, or one for each player of the row; "
        "blue@2000 and blue@best choose a snapshot",
    )
    parser.add_argument(
        "--at",
        default=NEWEST,
        metavar="STEPS",
        help="weights of the players: newest, best (of the evaluations while training), or steps of a snapshot "
        "(%(default)s)",
    )
    parser.add_argument("--row", default="0", help="which row of the table to play, from 0, or all (%(default)s)")
    parser.add_argument("--deterministic", action="store_true", help="take the most likely actions")
    parser.add_argument("--seed", type=int, help="seed of the episodes (default: the seed of the run)")
    parser.add_argument(
        "--copies", type=positive, default=8, help="number of environments at the same time (%(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print the results as JSON, with every return")
    parser.add_argument("--video", type=Path, metavar="FILE", help="write a film: out.mp4 or out.gif")
    parser.add_argument(
        "--video-episodes", type=positive, default=1, help="number of episodes in the film (%(default)s)"
    )
    return parser


def _print(run: RunDirectory, config: RunConfig, results: Results) -> None:
    console = make_console(sys.stdout, find_terminal(sys.stdout))
    chosen = colors.resolve({name: policy.color for name, policy in config.players.items()})
    chosen = {name: chosen[name.partition("@")[0]] for name in results}
    policies = {name: config.players[name.partition("@")[0]].use for name in results}
    console.print(player_table(str(run), policies, results, chosen, outcomes=bool(results.pairs)))
    if len(results.pairs) > 1:
        console.print(pair_table(results.pairs, chosen))
