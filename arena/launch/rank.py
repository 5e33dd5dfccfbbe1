"""A run as every rank goes through it: set up the world, then round after round take the role that the plan gives."""

import logging
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from arena.common.errors import ConfigError, GivenUpError, PolicyGoesOnError
from arena.common.logs import open_log
from arena.common.waiting import LATE, HangError, Pacer, Waiter, usual_waits
from arena.comms import Mailbox, World
from arena.config.resumed import kept_settings
from arena.config.run import RunConfig, WaitConfig, load_config
from arena.group.context import Context
from arena.launch.fault_tolerance import FaultTolerance
from arena.launch.roles import Roles
from arena.plan.layout import Role, describe_part, plan
from arena.plan.pinning import ANYWHERE, place_of
from arena.protocol.messages import Failure, LogLine, RoundOver, RoundStart, SaveState, SurvivorState, WriteCheckpoint
from arena.records.lease import LeaseLostError
from arena.records.run_directory import Resume, RunDirectory
from arena.system.control_groups import memory_for_job
from arena.system.cores import pinned_to
from arena.system.launcher_env import CHECKED, ranks_on_machine, started_by_mpi
from arena.system.processes import die_with_parent
from arena.system.stack_dump import StackCollector, StackReporter

ABORT_GRACE = 5.0
"""Seconds that a failing rank leaves the root to print its message and end the job, before it ends the job itself."""

POLL_RESCUE_EVERY = 0.1
"""Seconds between two looks of a rank that waits for a request to save its state."""

STOP_SIGNALS = signal.SIGTERM, signal.SIGUSR1, signal.SIGINT
"""Signals that end a run early."""

ALONE = (
    "the launcher started {ranks} processes, but each of them finds itself alone: it belongs to another MPI than the "
    "library that mpi4py loads; use the mpirun of that MPI (arena doctor, started in the same way, says which), and "
    "with SLURM's srun try --mpi=pmix or --mpi=pmi2"
)


def ignore_signals() -> None:
    """Ignore the signals that ask a run to end."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def play(path: Path, overrides: Sequence[str], *, resume: Resume, stopped_code: int = 0) -> int:
    """Be one rank of a run, from its start to its end.

    Args:
      path: the configuration file.
      overrides: ``key=value`` each.
      resume: whether to go on from a checkpoint.
      stopped_code: what to exit with where a signal has ended the run before its budgets were spent.

    Returns:
      The exit code; that of the root counts for the run.
    """
    # A rank that is busy in user code polls nothing: without this it would outlive an mpirun that is killed.
    die_with_parent(parent=os.getppid())
    early: list[int] = []  # signals that come before the root can act on them
    for number in STOP_SIGNALS:
        signal.signal(number, lambda number, _frame: early.append(number))
    sys.argv = sys.argv[:1]  # code of users that parses its arguments finds none of ours
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
    if world.rank:  # code of users may change the folder; the root runs none
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
        rank.run_member()
    rank.fault_tolerance.finalize(code)
    world.close()
    return code


def _check_as_launcher(path: Path, overrides: Sequence[str], started: tuple[int, int]) -> str:
    """Make the checks of the launcher where a user has started mpirun; return why the run cannot start, if it cannot.

    Before MPI is initialised, since user code runs in a fork.
    """
    if CHECKED in os.environ:
        return ""
    from arena.launch.preflight import check_memory, inspect_run

    try:
        config = load_config(path, overrides)
        needs = inspect_run(config)
        if ranks_on_machine(os.environ) == started[1]:
            check_memory(needs, config, started[1], memory_for_job())
    except ConfigError as error:
        return str(error)
    return ""


def _agree_on_config(
    world: World, waiter: Waiter, path: Path, overrides: Sequence[str], resume: Resume, refused: str
) -> tuple[RunConfig | None, RunDirectory | None, bool]:
    """Have the root alone read the file, take the lease of the run directory and fill it.

    Returns:
      The configuration, None on every rank after an error of the user's; on the root, the run directory, and whether
      the run goes on from a checkpoint.
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
            plans = [plan(round_.rows, world.nodes, config.spares) for round_ in config.round_list()]
            described = {
                "ranks": world.size,
                "hosts": world.hosts,
                "rounds": [_plan_as_data(p) for p in plans],
            }
            run.create(config.to_yaml(), described, continues)
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
    """Return how this rank waits."""
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


def _part(context: Context) -> str:
    """Say what a rank does in a round, for its log."""
    me = context.me
    if me.role == "learner":
        learners = context.plan.learners[str(me.player)]
        return f"{describe_part(me)}, number {learners.index(me.rank)} of {len(learners)}"
    if me.match is None:
        return f"{me.role} on {context.world.host}"
    match = context.plan.matches[me.match]
    env = context.round.rows[match.row].env
    if me.seat is None:
        seats = ", ".join(seat.player for seat in match.all_seats)
        return f"{describe_part(me)}: {env.use} x{env.num_envs}, seats {seats}"
    seat = match.seats[me.seat]
    group = context.plan.places[seat.player]
    return (
        f"worker on seat {me.seat} of match {match.index}, entities {list(seat.entities)}: {seat.player} "
        f"({context.config.players[seat.player].use}), worker {group.index((me.match, me.seat))} of {len(group)}"
        + (f"; it steps {env.use} x{env.num_envs} itself" if env.in_worker else "")
    )


class Rank:
    """This process through all rounds."""

    def __init__(
        self,
        world: World,
        mailbox: Mailbox,
        waiter: Waiter,
        config: RunConfig,
        run: RunDirectory,
        log: logging.Logger,
    ) -> None:
        self.world, self.mailbox, self.waiter = world, mailbox, waiter
        self.config, self.run, self.log = config, run, log
        self.rounds = config.round_list()
        self.role: Role = "root" if world.rank == 0 else "idle"
        self.player: str | None = None
        self.roles = Roles(world, mailbox, waiter, config, log)
        self.fault_tolerance = FaultTolerance(world, mailbox, waiter, config)

    def start_stack_reporter(self, waiter: Waiter) -> None:
        """Have a thread that says what this rank is doing should the run hang; on the root, one that asks."""
        world, current_wait = self.world, self.waiter.current_wait
        if world.rank == 0:
            self.stack_collector = StackCollector(socket.gethostname())
            world.bcast(self.stack_collector.address, waiter)
        else:
            address = world.bcast(None, waiter)
            StackReporter(address, world.rank, world.nodes[world.rank] == world.nodes[0], lambda: str(current_wait))

    # The root -------------------------------------------------------------------------------------------------

    def run_root(self, resume: bool, stopped_code: int, early: Sequence[int]) -> int:
        """Go through all rounds as rank 0; return the exit code of the run.

        Args:
          resume: whether to go on from a checkpoint.
          stopped_code: the code if not all rounds were played to their end.
          early: signals that have come already.
        """
        root: Any = None
        try:
            from arena.records.writer import RecordWriter, players_of
            from arena.report.progress import ProgressView
            from arena.root.process import Root

            records = RecordWriter(
                self.run,
                players_of(self.config),
                host=self.world.host,
                ranks=self.world.size,
                tensorboard=self.config.records.tensorboard,
                deterministic=self.config.deterministic,
            )
            view = ProgressView(records, self.config)
            root = Root(self.world, self.mailbox, self.config, self.run, records, view, self.stack_collector)
            root.listen_to_signals()
            root.progress.stopping = root.progress.stopping or bool(early)
            root.stopped_code = stopped_code
            nodes = len(set(self.world.nodes))
            where = f"{self.world.size} ranks on {nodes} node(s)"
            records.log_line("INFO", f"{self.run} begins: {where}, attempt {records.attempt}")
            if resume:
                root.progress.resume()
            self._run_rounds(root)
            view.close()
            root.describe_ranks()
            errors = root.errors
            if not records.close(exit=1 if errors else 0):
                errors.append(f"{self.run}: the last records could not be written to {self.run.database.name}")
            self.stack_collector.close()
            self._conclude(records)
            self.run.release_lease()
            ignore_signals()  # all is written; Python, as it ends, would die of what it has handled until then
            for text in errors:
                print(f"error: {text}", file=sys.stderr, flush=True)
            return 1 if errors else (0 if root.progress.finished else stopped_code)
        except LeaseLostError as error:  # the records are another run's now
            print(f"error: {error}", file=sys.stderr, flush=True)
            self.world.abort(1)
            raise
        except BaseException as error:
            failure = self._failure(error)
            if root is not None:
                root.fail(failure)
            print(f"error: the root failed:\n{failure.text}", file=sys.stderr, flush=True)
            self.world.abort(1)
            raise

    def _run_rounds(self, root: Any) -> None:
        """Announce one round after the other and supervise it."""
        from arena.root.process import polling_waiter

        reading = polling_waiter(root, self.waiter)
        continues = True
        while continues:
            try:
                continues = self._lead_round(root, reading)
            except Exception as error:
                self.fault_tolerance.recover(error, partial(self.fault_tolerance.recover_as_root, root))

    def _lead_round(self, root: Any, reading: Waiter) -> bool:
        """Play a round, or a stretch of it; False where there was none left."""
        start: RoundStart = self.world.bcast(root.progress.next_round(), reading)
        if start.number < 0:
            return False
        planned = self.fault_tolerance.planned(self.rounds[start.number])
        self.world.split_group(None, reading)
        root.supervise(planned)
        order = root.progress.order_last_checkpoint()
        self.world.bcast(order, reading)
        self.world.barrier(reading, "all ranks at the end of the round")
        root.progress.end_round(order)
        return True

    def _conclude(self, records: Any) -> None:
        from arena.report.summary import write_summary

        if self.config.records.plots:
            from arena.report.plots import write_plots

            write_plots(self.run)
        print(write_summary(self.run, records), flush=True)

    # The others -----------------------------------------------------------------------------------------------

    def answer_while_waiting(self) -> None:
        """In each longer wait, save the state of this rank if the root asks for it: the run may be about to fail."""
        check, polling = self.waiter.check, Pacer(POLL_RESCUE_EVERY)

        def check_and_answer() -> None:
            check()
            if polling.due():
                self._answer_rescue()

        self.waiter.check = check_and_answer

    def _answer_rescue(self) -> None:
        if (mail := self.mailbox.poll(SaveState)) is None:
            return
        worker = self.roles.worker
        if worker is None:
            self.mailbox.post(0, SurvivorState(self.world.rank))
        else:
            worker.answer_rescue(mail[1].order)

    def run_member(self) -> None:
        """Go through all rounds as any other rank."""
        ignore_signals()  # the root alone decides when one ends the run; the others are told
        continues = True
        try:
            while continues:
                try:
                    continues = self._follow_round()
                except Exception as error:
                    self.fault_tolerance.recover(
                        error, lambda: self.fault_tolerance.recover_as_member(self.roles.worker, self.log)
                    )
        except BaseException as error:
            self._report_failure(error)

    def _follow_round(self) -> bool:
        start: RoundStart = self.world.bcast(None, self.waiter)
        self.roles.forget()  # only now: what it has is on disk once the root has begun another round
        if start.number < 0:
            return False
        round_ = self.rounds[start.number]
        planned = self.fault_tolerance.planned(round_)
        me = planned.assignments[self.world.rank]
        self.role, self.player = me.role, me.player
        context = Context(self.world, self.mailbox, self.waiter, self.config, round_, start, planned, me, self.log)
        place = None
        if me.player is not None and (me.role == "learner" or me.player not in planned.learners):
            ranks = planned.learners.get(me.player) or planned.groups[me.player]
            place = sorted(planned.groups).index(me.player), ranks.index(me.rank)
        channel = self.world.split_group(place, self.waiter)
        self.log.info("rank %d, round %d: %s", me.rank, start.number, _part(context))
        home = ANYWHERE
        if me.match is not None and not round_.rows[planned.matches[me.match].row].outside:
            home = place_of(me.match, planned, round_, self.config, self.world.cores_here)
        with pinned_to(home.core):
            self.roles.serve(context, channel, home.neighbours)
        if me.role != "idle":
            self.mailbox.post(0, RoundOver(self.world.rank, me.role, "torch" in sys.modules))
        self.mailbox.flush(self.waiter)
        order: WriteCheckpoint = self.world.bcast(None, self.waiter)
        if self.roles.worker is not None:
            self.roles.worker.write_part(order)
            if order.last:
                self.roles.worker.write_snapshot(self.run)
        for seat in self.roles.seats:
            seat.close()
        if channel is not None:
            channel.close()
        self.world.barrier(self.waiter, "all ranks at the end of the round")
        return True

    # Failing --------------------------------------------------------------------------------------------------

    def _failure(self, error: BaseException) -> Failure:
        known = isinstance(error, ConfigError)
        told = known or isinstance(error, GivenUpError | PolicyGoesOnError)
        text = str(error) if told else "".join(traceback.format_exception(error))
        hang = isinstance(error, HangError)
        return Failure(self.world.rank, self.world.host, self.role, self.player, known, text, hang)

    def _report_failure(self, error: BaseException) -> None:
        """Tell the root why this rank cannot go on; the root prints it and ends the job."""
        failure = self._failure(error)
        self.log.error("cannot continue: %s", failure.text)
        patience = time.monotonic() + ABORT_GRACE
        try:
            self.mailbox.post(0, failure)
            while time.monotonic() < patience:
                self.world.make_progress()  # lets the message leave
                self._answer_rescue()
                time.sleep(0.01)
        except Exception:  # the root is gone, or ends the job at this moment: nothing more can be reported to it
            self.log.exception("the root cannot be reached")
        print(f"error: rank {self.world.rank} failed:\n{failure.text}", file=sys.stderr, flush=True)
        self.world.abort(2 if failure.user_error else 1)
