"""Early ends of a run: failures, ranks that are stuck when a run is to stop, and what is saved before an abort."""

import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

from arena.common.files import write_text
from arena.protocol.checkpoints import SaveState, StateSaved, SurvivorState
from arena.protocol.gateway import RunFailed
from arena.protocol.messages import Episodes, Failure, LogLine, Progress
from arena.root.hang_report import hang_report
from arena.root.run_state import RunState
from arena.root.stop_bound import WITHIN, StopBound
from arena.system.stack_dump import StackCollector

Reply = TypeVar("Reply")

REPORT_WITHIN = 2.5
"""Seconds that ranks have to report their activity."""

STATES_WITHIN, WRITTEN_WITHIN = 5.0, 10.0
"""Seconds that ranks have, before a job is aborted, to report their state, and to write it; with more ranks than cores
a rank that waits may report late."""

LAST_ANSWERS = 0.5
"""Seconds in which gateways answer waiting clients, before a job is aborted."""

ENDED_WITHIN = STATES_WITHIN + WRITTEN_WITHIN + REPORT_WITHIN + LAST_ANSWERS
"""Seconds from the report of a failure until the root aborts the job, if no reply arrives."""


class EarlyEnd:
    """Aborts a run after its records are complete and the states of whole ranks are saved."""

    def __init__(self, state: RunState, stack_collector: StackCollector, handle: Callable[[Any], None]) -> None:
        """Create it.

        Args:
          state: state of the run.
          stack_collector: queries the ranks.
          handle: handles a message that concerns the records.
        """
        self._state, self._stack_collector, self._handle = state, stack_collector, handle
        self._is_saving = False
        self._stop_bound: StopBound | None = None

    def fail(self, failure: Failure) -> None:
        """Print the failure of a rank, once, and abort the whole job."""
        if not failure.user_error:
            self._save_whole_states(failure.rank)
        self._state.view.close(failed=True)
        for text in self._state.given_up:
            print(f"error: {text}", file=sys.stderr, flush=True)
        code = report_failure(failure)
        if failure.hang:
            self._report_hang(failure)
        self._state.records.fault(failure)
        self._state.records.close(exit=code)
        if failure.user_error:
            self._state.run.forget()
            self._state.run.release_lease()
        self._warn_gateways(failure.rank)
        self._state.world.abort(code)

    def bound_stop(self) -> None:
        """End a run that is to stop without the ranks that are stuck in a call of an environment."""
        if not self._state.progress.stopping:
            return
        bound = self._stop_bound = self._stop_bound or StopBound(self._state.config.waits.stop_after)
        if not bound.is_due():
            return
        origins = self._state.world.origins
        reports = self._stack_collector.ask(WITHIN)
        by_rank = {origins.index(rank): report for rank, report in reports.items() if rank in origins}
        stuck = bound.find_stuck(range(1, self._state.world.size), by_rank)
        if not stuck:
            return
        for rank, place in stuck.items():
            blocker = f"rank {rank} ({self._state.role_of(origins[rank])})"
            text = (
                f"{blocker} has not come back from its environment for {self._state.config.waits.stop_after:g} s{place}"
            )
            self._state.records.log_line("WARNING", f"{text}: the run ends without it")
        self._save_whole_states(-1)
        self._state.view.close()
        self._state.records.close(exit=0)
        self._state.run.release_lease()
        self._warn_gateways(-1)
        self._state.world.abort(self._state.stopped_code)

    def _save_whole_states(self, failed: int) -> None:
        """Write a last checkpoint from the ranks that are between two updates, before the job is aborted.

        Args:
          failed: the rank that ends the run; nothing is saved for 0.
        """
        if failed == 0 or self._state.plan is None or self._state.config.deterministic or self._is_saving:
            return
        self._is_saving = True
        try:
            self._rescue()
        except Exception as error:  # the first failure counts
            self._state.records.log_line("WARNING", f"no last checkpoint: {error}")

    def _rescue(self) -> None:
        assert self._state.plan is not None
        members = [a.rank for a in self._state.plan.assignments if a.player is not None or a.role == "runner"]
        for rank in members:
            self._state.mailbox.post(rank, SaveState())
        states = self._replies(SurvivorState, len(members), STATES_WITHIN)
        if not any(state.player is not None and state.learns for state in states):
            return
        recovery = self._state.progress.order_recovery(states)
        if recovery.order is None:
            return
        for rank in recovery.writers.values():
            self._state.mailbox.post(rank, SaveState(recovery.order))
        written = {reply.player for reply in self._replies(StateSaved, len(recovery.writers), WRITTEN_WITHIN)}
        self._state.progress.saved = {
            player: state for player, state in self._state.progress.saved.items() if player in written
        }
        self._state.progress.complete_recovery(recovery, [*self._state.progress.steps])

    def _replies(self, kind: type[Reply], count: int, seconds: float) -> list[Reply]:
        """Return ``count`` messages of a type, or those that arrive in time; keep the records meanwhile."""
        replies: list[Reply] = []
        until = time.monotonic() + seconds
        while len(replies) < count and time.monotonic() < until:
            mail = self._state.mailbox.poll()
            if mail is None:
                time.sleep(0.01)
            elif isinstance(mail[1], kind):
                replies.append(mail[1])
            elif isinstance(mail[1], Progress | Episodes | LogLine):
                self._handle(mail[1])
        return replies

    def _warn_gateways(self, failed: int) -> None:
        """Let gateways answer their waiting clients before the job is aborted."""
        if self._state.plan is None or not self._state.gateways:
            return
        for match in self._state.gateways:
            rank, _ = self._state.plan.match_ranks(match)
            if rank != failed:
                self._state.mailbox.post(rank, RunFailed())
        until = time.monotonic() + LAST_ANSWERS
        while time.monotonic() < until:
            self._state.mailbox.poll(SurvivorState)  # makes progress; no other message is handled any more
            time.sleep(0.01)

    def _report_hang(self, failure: Failure) -> None:
        """Query the activity of every rank, and write it to a file."""
        origins = self._state.world.origins
        replies = {
            origins.index(rank): reply
            for rank, reply in self._stack_collector.ask(REPORT_WITHIN).items()
            if rank in origins
        }
        text = hang_report(failure, self._state.plan, self._state.world.hosts, self._state.world.processes, replies)
        try:
            write_text(self._state.run.hang_report, text)
        except OSError as error:
            print(f"{text}\n({self._state.run.hang_report} cannot be written: {error})", file=sys.stderr, flush=True)
        else:
            silent = self._state.world.size - 1 - len(replies)
            text = f"what every rank was doing ({silent} gave no answer): {self._state.run.hang_report}"
            print(text, file=sys.stderr, flush=True)


def report_failure(failure: Failure) -> int:
    """Print a failure to the terminal and return its exit code."""
    if failure.user_error:
        text, code = f"error: {failure.text}", 2
    else:
        name = f"rank {failure.rank} on {failure.host}, {failure.role}"
        name += f" of player {failure.player!r}" if failure.player else ""
        reason = failure.text.rstrip()
        text, code = f"error: {name} failed:{chr(10) if chr(10) in reason else ' '}{reason}", 1
    print(text, file=sys.stderr, flush=True)
    return code
