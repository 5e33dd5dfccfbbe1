"""``arena sweep``: several runs of one configuration, on this machine or as a SLURM job array."""

import argparse
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from arena.commands import slurm
from arena.commands.arguments import positive
from arena.common.text import count_of
from arena.launch import slurm_script
from arena.plan.layout import plan
from arena.sweeps.configuration import load_sweep
from arena.sweeps.results import SweepResult
from arena.sweeps.sweep import Prepared, prepare, start
from arena.system.signals import stop_signals

INTERRUPTED = 130
"""Exit code of a sweep that a signal has stopped."""


def main(argv: Sequence[str]) -> int:
    """Run ``arena sweep``; return the exit code: 0 if all runs have finished, 1 if one has failed.

    Raises:
      ConfigError: a key or a value is wrong, two runs would have the same name, or a run cannot start.
    """
    arguments = _parser().parse_args(argv)
    config = load_sweep(arguments.sweep)
    if arguments.name is not None:
        config = config.model_copy(update={"name": arguments.name})
    prepared = prepare(config, arguments.set, arguments.parallel)
    if arguments.dry_run:
        _show(prepared)
        return 0
    if arguments.slurm:
        _write_array(arguments, prepared)
        return 0
    for number in (*stop_signals(), signal.SIGUSR1):
        signal.signal(number, _interrupt)
    try:
        result = start(prepared, _print)
    except KeyboardInterrupt:
        again = shlex.join(["arena", "sweep", *argv])
        print(f"stopped; it continues with what is missing: {again}", file=sys.stderr)
        return arguments.stopped_code
    return _conclude(result)


def _interrupt(number: int, _frame: object) -> NoReturn:
    if number == signal.SIGHUP:  # the terminal and its shell each send one: the second would kill the runs
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _print(line: str) -> None:
    print(line, flush=True)


def _show(prepared: Prepared) -> None:
    """Print the runs and their states."""
    for run in prepared.runs:
        print(f"{run.directory}: {run.state}")
    if prepared.sweep.config.search is not None:
        print(f"{prepared.sweep.path}: a search of {prepared.sweep.config.search.trials} trials")
    print(f"{prepared.runs_at_a_time()} at a time; the plan of one: arena {prepared.sweep.config.run} --dry-run")


def _write_array(arguments: argparse.Namespace, prepared: Prepared) -> None:
    """Write the script of a job array: a task for each missing run, or tasks that share the trials of a search.

    Raises:
      ConfigError: the requested resources do not suffice, or the file is there already.
    """
    sweep = prepared.sweep
    config = prepared.first.on_cores(slurm.cores_of(arguments))
    shape = slurm.choose(config, arguments.nodes, arguments.ntasks_per_node)
    planned = [
        plan(round_.rows, shape.node_of_rank, config.spares, evaluators=config.evaluators)
        for round_ in config.round_list()
    ]
    memory = max(max(need.of_nodes(each).values()) for need, each in zip(prepared.needs, planned, strict=True))
    options = [*slurm.job_options(arguments, sweep.config.name, shape, memory), "--output=%x-%A_%a.out"]
    title = f"{sweep.path}: %s of {shape.ranks} ranks each. Written by `arena sweep`; submit it from where you are now."
    missing = {run.name: run.arguments for run in prepared.runs if not run.is_finished}
    if sweep.config.search is not None:
        tasks = prepared.parallel or 1
        words = [str(arguments.sweep), *(word for each in arguments.set for word in ("--set", each)), "--parallel", "1"]
        words += ["--name", arguments.name] if arguments.name else []
        title %= f"a search by {count_of(tasks, 'task')}, runs"
        text = slurm_script.ready(title, [f"--array=0-{tasks - 1}", *options], words, slurm_script.SWEEP)
    elif missing:
        limit = f"%{prepared.parallel}" if prepared.parallel is not None else ""
        title %= count_of(len(missing), "run")
        text = slurm_script.array(title, [f"--array=0-{len(missing) - 1}{limit}", *options], missing)
    else:
        print(f"{sweep.path}: all {len(prepared.runs)} runs are finished")
        return
    path = slurm.write_script(arguments, Path(f"{sweep.config.name}.sbatch"), text)
    print(f"written to {path}; submit it: sbatch {shlex.quote(str(path))}")


def _conclude(result: SweepResult) -> int:
    for name, line in result.failed.items():
        print(f"failed: {result.path / name}: {line}", file=sys.stderr)
    if result.finished > 1:
        print(f"compare them: arena compare {result.path}")
    return 1 if result.failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "arena sweep",
        description="Run a configuration with several seeds, with all combinations of a grid of values, or with values "
        "that a search by Optuna chooses. Ctrl-C stops all runs in order; started again, the sweep continues with "
        "what is missing.",
    )
    parser.add_argument("sweep", type=Path, help="the YAML file of the sweep")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="override a key of all runs, as in a run"
    )
    parser.add_argument("--name", help="name of the sweep (default: that in the file, else the file's)")
    parser.add_argument(
        "--parallel", type=positive, metavar="N", help="number of runs at a time (default: that in the file)"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the runs and their states, and stop")
    parser.add_argument(
        "--slurm", action="store_true", help="write the SLURM script of a job array in place of running anything"
    )
    slurm.add_job_options(parser.add_argument_group("options of --slurm"))
    parser.add_argument("--stopped-code", type=int, default=INTERRUPTED, help=argparse.SUPPRESS)
    return parser
