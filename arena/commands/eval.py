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
from arena.common.errors import ConfigError
from arena.config.resumed import load_stored_config
from arena.config.rounds import TableRow
from arena.config.run import RunConfig
from arena.evaluation.evaluate import evaluate, select_rows
from arena.evaluation.players import policy_of, split_name
from arena.evaluation.repeated import play_again
from arena.evaluation.results import Results, pair_table, player_table
from arena.evaluation.video import VideoRecorder
from arena.records.player_files import NEWEST
from arena.records.player_names import split_run, split_version
from arena.records.run_directory import RunDirectory
from arena.report.terminal import find_terminal, make_console

EPISODES, COPIES = 100, 8
"""Numbers of episodes, and of environments at the same time, by default."""


def main(argv: Sequence[str]) -> int:
    """Run ``arena eval``; return the exit code.

    Raises:
      ConfigError: there is no such run, no players, or a video cannot be written.
    """
    arguments = _parser().parse_args(argv)
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
    path, name = split_run(arguments.run)
    run = RunDirectory.existing(path)
    config = load_stored_config(run.config)
    if name:
        policy_of(config, split_name(config, name)[0])
    if arguments.as_evaluated:
        return _play_again(arguments, run, config, name)
    rows = select_rows(config, arguments.row or "0")
    names = arguments.seats.split(",") if arguments.seats else None
    if name:
        if names is not None:
            raise ConfigError(f"expected the players once, found {arguments.run} and --seats {arguments.seats}")
        names = _with_player(rows, split_name(config, name)[0], name)
    with contextlib.nullcontext() if arguments.video is None else VideoRecorder(arguments.video) as film:
        results = Results(
            evaluate(
                run,
                config,
                rows=rows,
                names=names,
                at=arguments.at,
                episodes=arguments.episodes or EPISODES,
                copies=arguments.copies or COPIES,
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


def _with_player(rows: Sequence[TableRow], player: str, name: str) -> list[str]:
    """Return the players of a row's seats, with the weights that a name chooses for its player.

    Raises:
      ConfigError: the player sits in none of the rows, or there are several rows.
    """
    if len(rows) > 1 or all(seat.player != player for seat in rows[0].seats):
        raise ConfigError(f"{name}: expected a player of the row that is played; --row chooses one")
    return [name if seat.player == player else seat.player for seat in rows[0].seats]


def _play_again(arguments: argparse.Namespace, run: RunDirectory, config: RunConfig, name: str) -> int:
    """Play a recorded evaluation once more; return 1 if its mean is another one.

    Raises:
      ConfigError: an option is fixed by the evaluation, or it cannot be played.
    """
    fixed = ("episodes", "copies", "seats", "row", "seed", "deterministic", "video")
    given = next((option for option in fixed if getattr(arguments, option) not in (None, False)), None)
    if given is not None:
        raise ConfigError(f"--{given}: expected none beside --as-evaluated, since the evaluation has it")
    player, at = split_version(name, arguments.at, NEWEST)
    played, recorded = play_again(run, config, player or None, at)
    results = Results(played)
    mean = results[recorded.player].mean
    equal = mean == recorded.mean
    if arguments.json:
        compared = {"player": recorded.player, "steps": recorded.steps, "recorded_mean": recorded.mean, "equal": equal}
        print(json.dumps({"run": str(run), "at": at, "evaluation": compared, **results.to_json()}, indent=1))
    else:
        _print(run, config, results)
        verdict = "equal" if equal else "different: the environment, its version or this machine does not repeat it"
        print(f"  {recorded.player} at {recorded.steps:,} steps: recorded {recorded.mean!r}, now {mean!r} ({verdict})")
    return 0 if equal else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("arena eval", description="Play the trained players of a run against each other.")
    parser.add_argument(
        "run", help="a run directory, such as runs/quickstart; runs/x:blue@best chooses the weights of a player"
    )
    parser.add_argument("--episodes", type=positive, help=f"number of episodes ({EPISODES})")
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
    parser.add_argument(
        "--as-evaluated",
        action="store_true",
        help="play the episodes of an evaluation while training again, with the weights of --at, and compare the mean "
        "return with the recorded one",
    )
    parser.add_argument("--row", help="which row of the table to play, from 0, or all (0)")
    parser.add_argument("--deterministic", action="store_true", help="take the most likely actions")
    parser.add_argument("--seed", type=int, help="seed of the episodes (default: the seed of the run)")
    parser.add_argument("--copies", type=positive, help=f"number of environments at the same time ({COPIES})")
    parser.add_argument("--json", action="store_true", help="print the results as JSON, with every return")
    parser.add_argument("--video", type=Path, metavar="FILE", help="write a film: out.mp4 or out.gif")
    parser.add_argument(
        "--video-episodes", type=positive, default=1, help="number of episodes in the film (%(default)s)"
    )
    return parser


def _print(run: RunDirectory, config: RunConfig, results: Results) -> None:
    console = make_console(sys.stdout, find_terminal(sys.stdout))
    chosen = colors.resolve({name: policy.color for name, policy in config.players.items()})
    chosen = {name: chosen[split_name(config, name)[0]] for name in results}
    policies = {name: config.players[split_name(config, name)[0]].use for name in results}
    console.print(player_table(str(run), policies, results, chosen, outcomes=bool(results.pairs)))
    if len(results.pairs) > 1:
        console.print(pair_table(results.pairs, chosen))
