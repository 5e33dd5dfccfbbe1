"""A rank over all rounds of a run: the root leads them, every other rank takes its role in the plan of each."""

import logging
import signal
import socket
import sqlite3
import sys
import time
import traceback
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from arena.common.errors import ConfigError, GivenUpError, PolicyGoesOnError
from arena.common.user_code import short_path
from arena.common.waiting import HangError, Pacer, Waiter
from arena.comms import Mailbox, World
from arena.config.run import RunConfig
from arena.group.context import Context
from arena.launch.ranks.fault_tolerance import FaultTolerance
from arena.launch.ranks.roles import Roles
from arena.plan.assignment import Plan, Role, describe_part, row_of
from arena.plan.idle_cores import keys_for_cores
from arena.plan.pinning import ANYWHERE, place_of
from arena.protocol.checkpoints import SaveState, SurvivorState, WriteCheckpoint
from arena.protocol.messages import Failure, Printed, RoundOver, RoundStart
from arena.records.lease import LeaseLostError
from arena.records.run_directory import RunDirectory
from arena.root.early_end import ENDED_WITHIN
from arena.system.cores import pinned_to
from arena.system.measurements import measure
from arena.system.output_file import FIRST_LINES, OutputFile, terminal_errors
from arena.system.stack_dump import StackCollector, StackReporter

if TYPE_CHECKING:  # only the root loads them
    from arena.records.writers.run import RecordWriter
    from arena.report.summary import Activity
    from arena.root.process import Root

ABORT_GRACE = ENDED_WITHIN + 2.0
"""Seconds that a failing rank leaves the root to save what is whole and end the job, before it ends the job itself."""

POLL_RESCUE_EVERY = 0.1
"""Seconds between two polls of a waiting rank for a request to save its state."""

STOP_SIGNALS = signal.SIGTERM, signal.SIGUSR1, signal.SIGINT
"""Signals that end a run early."""


def ignore_signals() -> None:
    """Ignore the signals that stop a run."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _part(context: Context) -> str:
    """Return a rank's role in a round, for its log."""
    me = context.me
    if me.role == "learner":
        learners = context.plan.learners[str(me.player)]
        return f"{describe_part(me)}, number {learners.index(me.rank)} of {len(learners)}"
    if me.match is None:
        return f"{me.role} on {context.world.host}"
    match = context.plan.matches[me.match]
    env = row_of(match, context.round.rows).env
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
        self._output: OutputFile | None = None

    def redirect_output(self) -> None:
        """Let what users' code prints go to a file, and its first lines to the root, as configured."""
        kind, shared = self.config.records.output, self.config.records.log == "node"
        if kind == "terminal" or self.world.rank == 0:
            return
        rank, node = self.world.rank, self.world.nodes[self.world.rank]
        path = self.run.output_of_rank(rank)
        lines, forward = (FIRST_LINES, None) if kind == "file" else (0, f"(rank {rank})")
        if shared:
            path = path.with_name(f"node-{node:05d}.out")
            if self.world.nodes.index(node, 1) < rank:  # another rank reads the file
                lines, forward = 0, None
            elif forward is not None:
                forward = f"(node {node})"
        try:
            self._output = OutputFile(path, first_lines=lines, forward=forward, shared=shared)
        except OSError as error:
            self.log.warning("%s cannot be opened, so output goes to the terminal: %s", path, error)
            return
        self.mailbox.for_root = self._printed

    def _printed(self) -> list[Printed]:
        """Return the first lines that have been printed since the last call."""
        assert self._output is not None
        lines = self._output.new_lines()
        if not lines:
            return []
        rank = self.world.rank
        node = self.world.nodes[rank] if self.config.records.log == "node" else None
        file = short_path(str(self._output.path))
        return [Printed(self.world.origins[rank], text, file, node) for text in lines]

    def restore_output(self) -> None:
        """Let the rest of this process print to the terminal."""
        if self._output is not None:
            self.mailbox.for_root = tuple
            self._output.close()

    def start_stack_reporter(self, waiter: Waiter) -> None:
        """Start a thread that reports this rank's activity on request; on the root, one that collects the reports."""
        world = self.world
        if world.rank == 0:
            self.stack_collector = StackCollector(socket.gethostname())
            world.bcast(self.stack_collector.address, waiter)
        else:
            address = world.bcast(None, waiter)
            is_near = world.nodes[world.rank] == world.nodes[0]
            StackReporter(address, world.rank, is_near, lambda: str(self.waiter.current_wait), self._measure)

    def _measure(self) -> dict[str, Any]:
        """Return the measurements of this rank so far."""
        return measure(self.waiter.activity, self.waiter.current_wait)

    # The root -------------------------------------------------------------------------------------------------

    def run_root(self, resume: bool, stopped_code: int, early: Sequence[int]) -> int:
        """Execute all rounds as rank 0; return the exit code of the run.

        Args:
          resume: whether to continue from a checkpoint.
          stopped_code: exit code if not all rounds were finished.
          early: signals that have arrived already.
        """
        root: Root | None = None
        try:
            root = self._make_root(stopped_code)
            records = root.state.records
            root.listen_to_signals()
            root.state.progress.stopping = root.state.progress.stopping or bool(early)
            nodes = len(set(self.world.nodes))
            where = f"{self.world.size} ranks on {nodes} node(s)"
            records.log_line("INFO", f"{self.run} begins: {where}, attempt {records.attempt}")
            if resume:
                root.state.progress.resume(root.evaluations)
            self._run_rounds(root)
            root.printed.conclude()
            root.finish_evaluations()
            if root.evaluations is not None:
                root.evaluations.close()
            if root.films is not None:
                root.films.close()
            root.state.view.close()
            root.describe_ranks()
            errors = root.errors
            if not records.close(exit=1 if errors else 0):
                errors.append(f"{self.run}: the last records could not be written to {self.run.database.name}")
            self.stack_collector.close()
            self._conclude(records, root.state.plan)
            for text in root.trackers.close():  # they end when the records are closed
                print(f"warning: {text}", file=sys.stderr, flush=True)
            self.run.release_lease()
            ignore_signals()  # all is written; Python restores default handlers before it ends
            for text in errors:
                print(f"error: {text}", file=sys.stderr, flush=True)
            return 1 if errors else (0 if root.state.progress.finished else stopped_code)
        except LeaseLostError as error:  # the records belong to another run now
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

    def _make_root(self, stopped_code: int) -> "Root":
        from arena.records.player_statistics import players_of
        from arena.records.writers.run import RecordWriter
        from arena.report.progress import ProgressView
        from arena.root.process import Root
        from arena.root.run_progress import RunProgress
        from arena.root.run_state import RunState

        records = RecordWriter(
            self.run,
            players_of(self.config),
            host=self.world.host,
            ranks=self.world.size,
            tensorboard=self.config.records.tensorboard,
            deterministic=self.config.deterministic,
        )
        state = RunState(
            world=self.world,
            mailbox=self.mailbox,
            config=self.config,
            run=self.run,
            records=records,
            view=ProgressView(records, self.config),
            progress=RunProgress(self.config, self.run, records),
            stopped_code=stopped_code,
        )
        return Root(state, self.stack_collector, self._measure)

    def _run_rounds(self, root: "Root") -> None:
        """Announce one round after the other and supervise it."""
        from arena.root.process import polling_waiter

        reading = polling_waiter(root, self.waiter)
        continues = True
        while continues:
            try:
                continues = self._lead_round(root, reading)
            except Exception as error:
                self.fault_tolerance.recover(error, partial(self.fault_tolerance.recover_as_root, root))

    def _lead_round(self, root: "Root", reading: Waiter) -> bool:
        """Execute a round, or a stretch of it; return False if none was left."""
        start: RoundStart = self.world.bcast(root.state.progress.next_round(), reading)
        if start.number < 0:
            return False
        planned = self.fault_tolerance.planned(self.rounds[start.number])
        self.world.split_group(None, reading)
        root.supervise(planned)
        order = root.state.progress.order_last_checkpoint()
        self.world.bcast(order, reading)
        self.world.barrier(reading, "all ranks at the end of the round")
        root.handle_mail()  # also what a rank could not write, reported just before it entered the barrier
        root.state.progress.end_round(order)
        return True

    def _conclude(self, records: "RecordWriter", planned: Plan | None) -> None:
        from arena.report.summary import write_summary

        if self.config.records.plots:
            from arena.report.plots import write_plots

            write_plots(self.run)
        print(write_summary(self.run, records, self._activity(planned)), flush=True)

    def _activity(self, planned: Plan | None) -> "Activity | None":
        """Return how busy the ranks were in this attempt; None if it was too short, or the records cannot be read."""
        from arena.records.readers.ranks import read_busy_ranks
        from arena.records.readers.run import open_records
        from arena.report.summary import Activity

        try:
            with open_records(self.run.database) as connection:
                ranks = read_busy_ranks(connection)
        except (ConfigError, sqlite3.Error):
            return None
        if planned is None or not ranks:
            return None
        busy, cores = sum(rank.busy for rank in ranks), self.world.cores
        return Activity(ranks, cores, keys_for_cores(self.config, planned, cores, busy))

    # The other ranks -------------------------------------------------------------------------------------------

    def answer_while_waiting(self) -> None:
        """In each longer wait, save the state of this rank on request of the root: the run may be about to fail."""
        check, polling = self.waiter.check, Pacer(POLL_RESCUE_EVERY)

        def check_and_answer() -> None:
            check()
            if polling.due():
                self._answer_rescue()
                for message in self.mailbox.for_root():
                    self.mailbox.post(0, message)

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
        """Execute all rounds as any other rank."""
        ignore_signals()  # only the root handles them, and notifies the others
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
        self.roles.drop_last_round()  # only now: its state is on disk once the root has begun another round
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
        if self._output is not None:
            self._output.update()
        if me.role != "idle":
            self.mailbox.post(0, RoundOver(self.world.rank, me.role, "torch" in sys.modules))
        self.mailbox.flush(self.waiter)
        order: WriteCheckpoint = self.world.bcast(None, self.waiter)
        if self.roles.worker is not None:
            self.roles.worker.write_part(order)
            if order.last:
                self.roles.worker.write_snapshot(self.run)
        self.mailbox.flush(self.waiter)
        for seat in self.roles.seats:
            seat.close()
        if channel is not None:
            channel.close()
        self.world.barrier(self.waiter, "all ranks at the end of the round")
        return True

    # Failures --------------------------------------------------------------------------------------------------

    def _failure(self, error: BaseException) -> Failure:
        known = isinstance(error, ConfigError)
        is_known = known or isinstance(error, GivenUpError | PolicyGoesOnError)
        text = str(error) if is_known else "".join(traceback.format_exception(error))
        hang = isinstance(error, HangError)
        return Failure(self.world.rank, self.world.host, self.role, self.player, known, text, hang)

    def _report_failure(self, error: BaseException) -> None:
        """Report to the root why this rank cannot continue; the root prints it and ends the job."""
        failure = self._failure(error)
        self.log.error("cannot continue: %s", failure.text)
        patience = time.monotonic() + ABORT_GRACE
        try:
            self.mailbox.post(0, failure)
            while time.monotonic() < patience:
                self.world.make_progress()  # lets MPI send the message
                self._answer_rescue()
                time.sleep(0.01)
        except Exception:  # the root is gone, or is ending the job: nothing more can be reported
            self.log.exception("the root cannot be reached")
        print(f"error: rank {self.world.rank} failed:\n{failure.text}", file=terminal_errors(), flush=True)
        sys.stdout.flush()
        self.world.abort(2 if failure.user_error else 1)
