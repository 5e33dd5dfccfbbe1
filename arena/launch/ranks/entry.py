"""Entry point of a rank: agree with all ranks on the configuration and the plan, then run until the end."""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from arena.common.errors import ConfigError
from arena.common.logs import open_log
from arena.common.waiting import LATE, Waiter, usual_waits
from arena.comms import Mailbox, World
from arena.config.resumed import kept_settings
from arena.config.run import RunConfig, load_config
from arena.config.sections import WaitConfig
from arena.launch.preflight.code_copies import CodeCopies
from arena.launch.preflight.warm_start import WarmStarts
from arena.launch.ranks.rank import STOP_SIGNALS, Rank
from arena.plan.layout import plan
from arena.protocol.messages import LogLine
from arena.records.run_directory import Resume, RunDirectory
from arena.system.control_groups import memory_for_job
from arena.system.cores import cores_of_job
from arena.system.launcher_env import CHECKED, INSIDE, ranks_on_machine, started_by_mpi
from arena.system.processes import die_with_parent

ALONE = (
    "the launcher started {ranks} processes, but each of them finds itself alone: it belongs to another MPI than the "
    "library that mpi4py loads; use the mpirun of that MPI (arena doctor, started in the same way, names it), and "
    "with SLURM's srun try --mpi=pmix or --mpi=pmi2"
)


def play(path: Path, overrides: Sequence[str], *, resume: Resume, stopped_code: int = 0) -> int:
    """Run as one rank of a run, from start to end.

    Args:
      path: the configuration file.
      overrides: ``key=value`` each.
      resume: whether to continue from a checkpoint.
      stopped_code: exit code if a signal has ended the run before its budgets were spent.

    Returns:
      The exit code; that of the root counts for the run.
    """
    # A rank that is busy in user code polls nothing: without this it would outlive an mpirun that is killed.
    die_with_parent(parent=os.getppid())
    early: list[int] = []  # signals that arrive before the root can handle them
    for number in STOP_SIGNALS:
        signal.signal(number, lambda number, _frame: early.append(number))
    os.environ[INSIDE] = "a rank"
    sys.argv = sys.argv[:1]  # user code that parses its arguments must not see ours
    started = started_by_mpi()
    refused = _check_as_launcher(path, overrides, started) if started is not None and started[0] == 0 else ""
    world = World()
    if started is not None and world.size == 1 < started[1]:
        if started[0] == 0:
            print(f"error: {ALONE.format(ranks=started[1])}", file=sys.stderr, flush=True)
        return 2
    setup_waiter = _waiter(world, WaitConfig(), lambda text: print(f"rank {world.rank} {text}", file=sys.stderr))
    config, run, continues = _agree_on_config(world, setup_waiter, path, overrides, resume, refused)
    if config is None:
        return 2
    if world.rank:  # user code may change the folder; the root runs none
        config = config.model_copy(update={"run_root": os.path.abspath(config.run_root)})
        run = RunDirectory(config.run_root, config.name)
    assert run is not None
    mailbox = Mailbox(world)
    alone = config.records.log == "rank"
    log = open_log(run.log, f"rank-{world.rank:05d}" if alone else f"node-{world.nodes[world.rank]:05d}")

    def warn(text: str) -> None:
        log.warning(text)
        mailbox.post(0, LogLine(world.rank, "WARNING", text))

    rank = Rank(world, mailbox, _waiter(world, config.waits, warn), config, run, log)
    rank.start_stack_reporter(setup_waiter)
    if config.fault_tolerance == "ulfm":
        rank.fault_tolerance.prepare(setup_waiter)
    code = 0
    if world.rank == 0:
        code = rank.run_root(continues, stopped_code, early)
    else:
        rank.answer_while_waiting()
        rank.redirect_output()
        rank.run_member()
        rank.restore_output()
    rank.fault_tolerance.finalize(code)
    world.close()
    return code


def _check_as_launcher(path: Path, overrides: Sequence[str], started: tuple[int, int]) -> str:
    """Make the launcher's checks under a user's own mpirun; return why the run cannot start, or an empty string.

    To be called before MPI is initialised, since user code runs in a fork.
    """
    if CHECKED in os.environ:
        return ""
    from arena.launch.preflight.inspection import check_memory, inspect_run

    try:
        config = load_config(path, overrides).on_cores(cores_of_job())
        needs = inspect_run(config)
        if ranks_on_machine(os.environ) == started[1]:
            check_memory(needs, config, started[1], memory_for_job())
    except ConfigError as error:
        return str(error)
    return ""


def _agree_on_config(
    world: World, waiter: Waiter, path: Path, overrides: Sequence[str], resume: Resume, refused: str
) -> tuple[RunConfig | None, RunDirectory | None, bool]:
    """Read the file on the root, take the lease of the run directory and fill it; broadcast the result.

    Returns:
      The configuration, None on every rank after a user error; on the root, the run directory, and whether the run
      continues from a checkpoint.
    """
    config: RunConfig | None = None
    run: RunDirectory | None = None
    continues = False
    if world.rank == 0:
        try:
            if refused:
                raise ConfigError(refused)
            config = load_config(path, overrides)
            run = RunDirectory(config.run_root, config.name)
            run.take_lease()
            continues = run.continues(resume)
            if continues and run.config.is_file():
                kept = kept_settings(path, overrides, run.config)
                if kept:
                    settings = ", ".join(kept)
                    print(
                        f"kept from the beginning, as the file does not say otherwise: {settings}",
                        flush=True,
                    )
                    config = load_config(path, [*kept, *overrides])
            warm_starts = WarmStarts(config, run)
            config = warm_starts.config.on_cores(world.cores)
            plans = [
                plan(round_.rows, world.nodes, config.spares, evaluators=config.evaluators)
                for round_ in config.round_list()
            ]
            code = CodeCopies(config, run)
            described = {
                "ranks": world.size,
                "hosts": world.hosts,
                "rounds": [_plan_as_data(p) for p in plans],
                "code": code.described,
            }
            run.create(config.to_yaml(), described, continues)
            warm_starts.copy()
            code.write()
        except ConfigError as error:
            config = None
            if run is not None:
                run.release_lease()
            print(f"error: {error}", file=sys.stderr, flush=True)
    return world.bcast(config, waiter), run, continues


def _plan_as_data(planned: Any) -> dict[str, Any]:
    return {
        "assignments": [a._asdict() for a in planned.assignments],
        "matches": [{**m._asdict(), "seats": [s._asdict() for s in m.seats]} for m in planned.matches],
        "groups": planned.groups,
        "learners": planned.learners,
    }


def _waiter(world: World, waits: WaitConfig, on_warn: Callable[[str], None]) -> Waiter:
    """Return the bounded waits of this rank."""
    usual = usual_waits(world.cores_share)
    return Waiter(
        spin=usual.spin if waits.spin_us is None else waits.spin_us / 1e6,
        yielding=usual.yielding if waits.yield_us is None else waits.yield_us / 1e6,
        max_sleep=usual.max_sleep if waits.max_sleep_ms is None else waits.max_sleep_ms / 1e3,
        late=LATE if waits.max_sleep_ms is None else 0.0,
        warn_after=waits.warn_after,
        abort_after=waits.abort_after,
        on_warn=on_warn,
        check=world.make_progress,
    )
