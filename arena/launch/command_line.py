"""``python -m arena.launch config.yaml``: arguments to configuration, plan, and this rank's role.

Under mpirun this process becomes one rank of the run; without mpirun it starts mpirun with the ranks that the
configuration needs, and prints that command.
"""

import argparse
import contextlib
import importlib
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from arena.common.errors import ConfigError, GivenUpError
from arena.common.user_code import short_path
from arena.launch import mpirun
from arena.launch.commands import COMMANDS
from arena.launch.owner import end_with_owner
from arena.launch.parent.client import SOCKET, START
from arena.system import aslr, launcher_env
from arena.system.control_groups import memory_for_job
from arena.system.cores import cores_of_job
from arena.system.output_file import last_lines

if TYPE_CHECKING:
    from arena.config.run import RunConfig
    from arena.records.run_directory import Resume, RunDirectory

OTHERS = """Without mpirun, arena CONFIG starts mpirun itself, with the ranks that the configuration needs.

other commands (each has its own --help):
  arena eval RUN               play the trained players of a run
  arena tournament RUN...      rate players by a round robin
  arena league RUN             show the players of a league and the win rate of each pair
  arena exploitability RUN     measure the distance of players from a Nash equilibrium
  arena page RUN...            look at runs in a browser, while they go on and afterwards
  arena sweep FILE             run a configuration with several seeds and values
  arena compare RUN...         compare runs: seeds, settings, algorithms
  arena track RUN --to NAME    send the curves of runs to wandb, MLflow or trackio
  arena plots RUN              draw the plots of a run again
  arena serve RUN              serve the players of a run over HTTP
  arena export RUN PLAYER      write a player to a file for other programs (ONNX)
  arena check-export FILE      check such a file
  arena doctor [CONFIG]        check the machine before a run
  arena slurm CONFIG           write a SLURM batch script
  arena parent SOCKET          import once for a series of runs
  arena schema                 print the JSON Schema of the configuration
  arena fake-gamecore URL      play the side of a game against a server, to test it
  arena fake-actor             answer every request of a game alike, to test its client"""
"""Text at the end of ``--help``."""

STARTS = ("auto", "fork", "spawn")
"""Values of ``--start``: how ranks start."""

INTERRUPTED = 130
"""Exit code of a command that Ctrl-C has ended, as in shells."""

LOST = (
    "error: mpirun ended with exit code 0, but the run had not ended: most likely a machine was lost "
    "(see the message of mpirun above); continue from the last checkpoint with --resume"
)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Return the parsed command line.

    Raises:
      ConfigError: ``ARENA_START`` is misspelt.
    """
    parser = argparse.ArgumentParser(
        prog="arena",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Train the policies of a configuration file, over MPI.",
        epilog=OTHERS,
    )
    parser.add_argument("config", type=Path, help="the YAML file")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="override a key, e.g. policies.blue.use=random"
    )
    beginning = parser.add_mutually_exclusive_group()
    beginning.add_argument("--resume", action="store_true", help="continue from the newest checkpoint of the run")
    beginning.add_argument(
        "--resume-or-start",
        action="store_true",
        help="continue from the newest checkpoint if there is one, else start: for batch jobs",
    )
    parser.add_argument(
        "--stopped-code",
        type=int,
        default=0,
        metavar="CODE",
        help="exit code if a signal stopped the run before its budget was spent (default: 0)",
    )
    parser.add_argument(
        "--restarts",
        type=int,
        default=0,
        metavar="K",
        help="start again from the newest checkpoint if the run fails, at most K times (default: 0)",
    )
    parser.add_argument("--dry-run", action="store_true", help="print which rank would do what, and stop; needs no MPI")
    parser.add_argument(
        "--diagram", type=Path, metavar="OUT.svg", help="with --dry-run: also draw the plan to this file"
    )
    parser.add_argument(
        "-n", "--ranks", type=int, metavar="N", help="number of ranks (default: what the configuration needs)"
    )
    parser.add_argument(
        "--hosts", metavar="A:N,B:N", help="start on these machines over ssh, at most N ranks on each (Open MPI)"
    )
    parser.add_argument(
        "--start",
        choices=STARTS,
        default=os.environ.get(START, "auto"),
        help="fork: ranks are forks of one process that has imported everything; spawn: each rank imports by itself; "
        "auto: fork where it is known to work (default: ARENA_START, else auto)",
    )
    parser.add_argument(
        "--rank-command",
        default="",
        metavar="WORDS",
        help='put before the command of each rank, e.g. "numactl -l --"; implies --start spawn',
    )
    parser.add_argument(
        "--ranks-per-node", type=int, metavar="N", help="with --dry-run: number of ranks on each node (default: all)"
    )
    if not argv:
        parser.print_help(sys.stderr)
        raise SystemExit(2)
    arguments = parser.parse_args(argv)
    if arguments.start not in STARTS:  # argparse does not validate a default
        raise ConfigError(f"{START}: expected one of {', '.join(STARTS)}, found {arguments.start!r}")
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code: 0 done or stopped in order, 2 for a user error, else 1."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        if arguments and arguments[0] in COMMANDS:
            try:
                return importlib.import_module(COMMANDS[arguments[0]]).main(arguments[1:])
            except KeyboardInterrupt:
                return INTERRUPTED
        return start_run(parse(arguments), own_process=argv is None)
    except BrokenPipeError:  # the reader of the output has ended, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:  # before mpirun was started
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except GivenUpError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def start_run(args: argparse.Namespace, *, own_process: bool) -> int:
    """Plan a run, start it, or run as a rank of it; return the exit code.

    Args:
      args: the parsed command line.
      own_process: whether the process is the arena's own, and may be restarted.

    Raises:
      ConfigError: an argument or the configuration is wrong.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when NumPy and torch load, so set first
    if launcher_env.started_by_mpi() is not None and not args.dry_run:
        if own_process:
            aslr.disable_aslr()
        from arena.launch.ranks.entry import play

        return play(args.config, args.set, resume=_resume(args), stopped_code=args.stopped_code)
    return dry_run(args) if args.dry_run else start_under_mpi(args)


def dry_run(args: argparse.Namespace) -> int:
    """Print (and draw) the plan of every round."""
    from arena.config.rounds import Round
    from arena.config.run import load_config
    from arena.launch.preflight.inspection import check_memory, inspect_run
    from arena.launch.preflight.notes_on_cores import notes_on_cores
    from arena.launch.preflight.notes_on_evaluations import notes_on_evaluations
    from arena.plan.describe import describe
    from arena.plan.layout import plan, ranks_to_start
    from arena.plan.updates import notes_on_updates

    config = load_config(args.config, args.set)
    # Of other nodes nothing is known: a core for each rank, as batch systems grant by default.
    config = config.on_cores(cores_of_job() if args.ranks_per_node is None else args.ranks)
    ranks = args.ranks or ranks_to_start(config, launcher_env.tasks_of_job())
    per_node = args.ranks_per_node or ranks
    needs = inspect_run(config)
    shown: list[Round] = []
    for round_ in config.round_list():
        same = next((earlier for earlier in shown if earlier.rows == round_.rows), None)
        if same is not None:
            print(f"round {round_.index + 1} is planned like round {same.index + 1}")
            continue
        shown.append(round_)
        planned = plan(
            round_.rows, [rank // per_node for rank in range(ranks)], config.spares, evaluators=config.evaluators
        )
        print(describe(planned, config, round_, needs=needs[round_.index]))
        for note in notes_on_updates(config, round_, planned):
            print(f"note: {note}\n")
        if args.ranks_per_node is None and round_.index == 0:
            for note in notes_on_cores(config, planned, cores_of_job()):
                print(f"note: {note}\n")
        if args.diagram is not None and round_.index == 0:
            from arena.common.colors import resolve
            from arena.plan.diagram import draw_plan

            frozen = [name for name, policy in config.players.items() if not policy.learns]
            colors = resolve({name: policy.color for name, policy in config.players.items()})
            args.diagram.write_text(draw_plan(planned, colors, config.name, frozen=frozen), encoding="utf-8")
            print(f"drawn to {args.diagram}")
    for note in notes_on_evaluations(config):
        print(f"note: {note}\n")
    if args.ranks_per_node is None:
        sys.stdout.flush()
        check_memory(needs, config, ranks, memory_for_job())
    return 0


def start_under_mpi(args: argparse.Namespace) -> int:
    """Check a run as far as possible beforehand, then start mpirun and wait for it.

    The parent process of forked ranks imports its modules meanwhile.
    """
    from arena.config.run import load_config
    from arena.launch.parent.started import parent_process

    end_with_owner()
    mpirun.check_srun()
    config = load_config(args.config, args.set)
    config = config.on_cores(cores_of_job() if args.hosts is None else args.ranks)
    path = mpirun.find_mpirun()
    reason: str | None = ""
    if args.start != "spawn":
        reason = _reason_to_spawn(args)
        if reason is not None and args.start == "fork":
            raise ConfigError(f"--start fork: ranks cannot be forked: {reason}; leave it at auto, or use spawn")
    parent_of_series = os.environ.get(SOCKET)
    if reason is not None:
        parents: contextlib.AbstractContextManager[str | None] = contextlib.nullcontext()
    elif parent_of_series is not None:
        parents = contextlib.nullcontext(parent_of_series)
    else:
        parents = parent_process()
    with parents as parent:
        ranks = _check(args, config)
        if reason:
            print(f"each rank imports by itself: {reason}", flush=True)
        return _run_and_restart(args, config, path, ranks, parent)


def _reason_to_spawn(args: argparse.Namespace) -> str | None:
    """Return the reason why ranks start by themselves, None if they are forked."""
    from arena.launch.parent.choice import reason_to_spawn

    if args.rank_command:
        return "--rank-command"
    return reason_to_spawn(os.environ)


def _check(args: argparse.Namespace, config: "RunConfig") -> int:
    """Check a run before it starts; return the number of its ranks.

    Raises:
      ConfigError: it cannot start.
    """
    from arena.launch.preflight.inspection import check_files, check_memory, check_trackers, inspect_run
    from arena.plan.layout import plan, ranks_of_run, ranks_to_start
    from arena.records.run_directory import RunDirectory

    ranks = args.ranks or ranks_to_start(config, launcher_env.tasks_of_job())
    mpirun.check_tasks(ranks, ranks_of_run(config))
    for round_ in config.round_list():
        plan(round_.rows, [0] * ranks, config.spares, evaluators=config.evaluators)
    check_files(config)
    check_trackers(config)
    needs = inspect_run(config)
    if args.hosts is None:
        check_memory(needs, config, ranks, memory_for_job())
    run = RunDirectory(config.run_root, config.name)
    run.check(run.continues(_resume(args)))
    return ranks


def _run_and_restart(args: argparse.Namespace, config: "RunConfig", path: str, ranks: int, parent: str | None) -> int:
    """Start mpirun, repeatedly after failures if configured, and return the exit code."""
    from arena.records.readers.run import part_of_rank
    from arena.records.run_directory import RunDirectory

    def about(rank: int) -> mpirun.RankAbout:
        file = run.output_of_rank(rank)
        return mpirun.RankAbout(part_of_rank(run, rank), short_path(str(file)), last_lines(file))

    run = RunDirectory(config.run_root, config.name)
    start = mpirun.Start(forked=parent is not None, prefix=_words(args.rank_command))
    tolerant = config.fault_tolerance == "ulfm"
    own = ["--start", "spawn"] * (parent is None)
    line = mpirun.command(path, ranks, [*_for_ranks(args), *own], args.hosts, tolerant=tolerant, start=start)
    for number in range(args.restarts + 1):
        before, _ = _last_attempt(run)
        # The launcher's parent process may be what has failed: restarted ranks create one for themselves.
        code, asked, stuck, early = mpirun.run(
            line,
            about,
            parent=parent if number == 0 else None,
            has_begun=run.is_being_written,
        )
        attempt, ended = _last_attempt(run)
        finished = attempt != before and ended == 0
        if early:
            code = args.stopped_code
        elif finished and (stuck or (asked and code not in (0, 2, args.stopped_code, INTERRUPTED))):
            code = args.stopped_code if asked else 0
        elif code == 0 and not finished:  # Open MPI's mpirun also returns it when it has lost a machine
            print(LOST, file=sys.stderr)
            code = 1
        if code in (0, 2) or asked or number == args.restarts:
            break
        print(f"restart {number + 1} of {args.restarts}, from the newest checkpoint", file=sys.stderr, flush=True)
        words = [word for word in _for_ranks(args) if word != "--resume"]
        again = words if args.resume_or_start else [*words, "--resume-or-start"]
        line = mpirun.command(path, ranks, [*again, *own], args.hosts, tolerant=tolerant, start=start)
    return code


def _last_attempt(run: "RunDirectory") -> tuple[int, int | None]:
    """Return number and exit code of the last attempt; (0, None) if the records are damaged."""
    from arena.records.readers.run import read_last_attempt

    try:
        return read_last_attempt(run.database)
    except ConfigError:
        return 0, None


def _resume(args: argparse.Namespace) -> "Resume":
    return "always" if args.resume else "if possible" if args.resume_or_start else "never"


def _words(text: str) -> list[str]:
    """Return the words of ``--rank-command``.

    Raises:
      ConfigError: a quotation mark is missing.
    """
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"--rank-command: expected words as in a shell, found {text!r}: {error}") from None


def _for_ranks(args: argparse.Namespace) -> list[str]:
    """Return the arguments of each rank; the others are mpirun's."""
    words = [str(args.config), *(word for override in args.set for word in ("--set", override))]
    words += ["--resume"] * args.resume + ["--resume-or-start"] * args.resume_or_start
    return words + (["--stopped-code", str(args.stopped_code)] if args.stopped_code else [])
