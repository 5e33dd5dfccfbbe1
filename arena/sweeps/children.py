"""Runs of a sweep as child processes: as many at a time as there is room for, and how each has ended."""

import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

from arena.api.launcher import Launcher
from arena.records.lease import WRITTEN_BY, holder_of
from arena.sweeps.planned import PlannedRun

POLL_EVERY = 0.1
"""Seconds between two checks of the children."""

INSPECT_EVERY = 1.0
"""Seconds between two decisions on whether a run continues."""

HELD_FOR = 5.0
"""Seconds after which a run that another process writes is tried again."""


class Ended(NamedTuple):
    """End of a run.

    Attributes:
      code: exit code of its launcher.
      seconds: duration.
      finished: whether it has spent its budget.
      last_line: last line of its error output, or of its output; empty if there is none.
    """

    code: int
    seconds: float
    finished: bool
    last_line: str


class Source(Protocol):
    """A supply of runs: a list, or a search."""

    def next_run(self) -> PlannedRun | None:
        """Return a run to start now; None if there is none."""

    def postpone(self, run: PlannedRun, holder: str) -> None:
        """Defer a run that another process, described by ``holder``, writes."""

    def continues(self, run: PlannedRun) -> bool:
        """Return whether a running run continues."""

    def ended(self, run: PlannedRun, end: Ended) -> None:
        """Record the end of a run."""

    @property
    def waits(self) -> bool:
        """Whether there will be runs to start, although there may be none now."""


class _Child:
    def __init__(self, run: PlannedRun) -> None:
        self.run, self.since = run, time.monotonic()
        self.launcher = Launcher([*run.arguments, "--resume-or-start"], on_terminal=False, writes_progress=False)
        self.inspected = self.since
        self.stopped = False

    def end(self, code: int) -> Ended:
        """Return how it has ended."""
        for output in (self.launcher.errors, self.launcher.output):
            while output.new_text():
                pass
        lines = self.launcher.errors.last_lines or self.launcher.output.last_lines
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return Ended(code, time.monotonic() - self.since, code == 0 and self.run.is_finished, last)


def run_all(source: Source, parallel: int, log: Callable[[str], None]) -> None:
    """Run the runs of a source, at most ``parallel`` at a time, until it has none left.

    An interrupt stops all of them in order: each writes a checkpoint. Interrupted again, they are killed.

    Args:
      source: supply of the runs.
      parallel: number of runs at a time.
      log: receives a line about what happens.

    Raises:
      KeyboardInterrupt: it was interrupted, and all runs have ended.
    """
    children: list[_Child] = []
    try:
        while True:
            while len(children) < parallel and (run := source.next_run()) is not None:
                holder = holder_of(run.directory.path) if run.directory.path.is_dir() else None
                if holder is not None and holder.is_here:
                    source.postpone(run, f"process {holder.process}")
                    continue
                children.append(_Child(run))
            if not children and not source.waits:
                return
            time.sleep(POLL_EVERY)
            _poll(source, children)
    except BaseException:
        _stop_all(source, children, log)
        raise


def _poll(source: Source, children: list[_Child]) -> None:
    """Conclude the children that have ended, and stop those that a search ends early."""
    for child in list(children):
        code = child.launcher.exit_code
        if code is None:
            if not child.stopped and time.monotonic() - child.inspected > INSPECT_EVERY:
                child.inspected = time.monotonic()
                child.stopped = not source.continues(child.run)
                if child.stopped:
                    child.launcher.interrupt()
            continue
        children.remove(child)
        end = child.end(code)
        _, is_held, holder = end.last_line.partition(f"{WRITTEN_BY} ")
        if code == 2 and is_held:  # by a process of another machine, or by one that has begun simultaneously
            source.postpone(child.run, holder.partition(";")[0])
            continue
        source.ended(child.run, end)


def _stop_all(source: Source, children: list[_Child], log: Callable[[str], None]) -> None:
    for child in children:
        child.launcher.interrupt()
    if children:
        log(f"stopping {len(children)} run{'s' * (len(children) > 1)} in order; interrupt again to kill them")
    while children:
        try:
            time.sleep(POLL_EVERY)
            _poll_stopped(children)
        except KeyboardInterrupt:
            for child in children:
                child.launcher.interrupt()


def _poll_stopped(children: list[_Child]) -> None:
    for child in list(children):
        if child.launcher.exit_code is not None:
            children.remove(child)
