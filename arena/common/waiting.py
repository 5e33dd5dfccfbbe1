"""Bounded waits: poll without a pause for microseconds, then yield the core, then sleep with growing pauses."""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from copy import copy
from typing import Any, NamedTuple

from arena.common.activity import Activity


class HangError(RuntimeError):
    """An awaited event did not happen within ``abort_after``."""


def do_nothing() -> None:
    """Do nothing: the default callback of a waiting rank."""


TELL_AFTER = 0.5
"""Seconds after which a wait is worth reporting in an answer to a query."""


ALONE = 0.999
"""Share of a core from which a rank counts as having one to itself (three thirds of a core are one)."""


LATE = 0.01
"""Largest delay in detecting the end of a wait, as a share of the time waited."""

LONGEST_SLEEP = 0.01
"""Upper bound of that delay in seconds."""


class Waits(NamedTuple):
    """Seconds of polling without a pause, and of polling that yields the core each time, before the first sleep."""

    spin: float
    yielding: float
    max_sleep: float


def usual_waits(cores_share: float) -> Waits:
    """Return the waits of a rank with this share of a core; one that shares its core yields immediately.

    A sleep ends some 100 microseconds late, so yielding the core is better while few ranks need it. The more ranks a
    core has, the sooner and the longer they sleep: a poll takes microseconds, and polls must not fill the core. A rank
    that expects a reply soon may yield for longer (``Waiter.until``).
    """
    if cores_share >= ALONE:
        return Waits(spin=2e-4, yielding=5e-4, max_sleep=2e-4)
    crowd = 1 / cores_share
    return Waits(spin=0.0, yielding=max(5e-5, 2e-3 / crowd**2), max_sleep=2.5e-4 * max(2.0, crowd))


class CurrentWait:
    """The event that a rank currently waits for.

    Attributes:
      what: description of it; None while the rank's own code runs.
      since: start of the wait, on the monotonic clock.
    """

    def __init__(self) -> None:
        """Start without a wait."""
        self.what: str | None = None
        self.since = 0.0

    def __str__(self) -> str:
        """Describe the wait in a line."""
        what = self.what
        return "does not wait" if what is None else f"waits for {what}, {time.monotonic() - self.since:.0f} s"


class Waiter:
    """Bounded waiting of one rank.

    Attributes:
      spin: seconds of polling without a pause.
      yielding: seconds of polling after that, yielding the core after each poll.
      max_sleep: longest pause between two polls, in seconds, at the beginning of a wait.
      late: pauses may also last this share of the time waited so far, but at most 10 ms.
      warn_after: seconds after which ``on_warn`` gets a description of the wait (again after each doubling).
      abort_after: seconds after which a wait raises a HangError.
      on_idle: called before each sleep; may raise to end the wait.
      check: called in every wait; makes MPI progress, which not every test does, and raises if a rank has died.
      current_wait: the event that this rank currently waits for; another thread may read it.
      activity: seconds that this rank has spent, with waits and otherwise.
    """

    def __init__(
        self,
        *,
        spin: float,
        yielding: float,
        max_sleep: float,
        late: float = LATE,
        warn_after: float,
        abort_after: float,
        on_warn: Callable[[str], None],
        on_idle: Callable[[], None] = do_nothing,
        check: Callable[[], None] = do_nothing,
    ) -> None:
        self.spin = spin
        self.yielding = yielding
        self.max_sleep = max_sleep
        self.late = late
        self.warn_after = warn_after
        self.abort_after = abort_after
        self.on_warn = on_warn
        self.on_idle = on_idle
        self.check = check
        self.current_wait = CurrentWait()
        self.activity = Activity()

    def like(self, **changes: Any) -> "Waiter":
        """Return a copy with these attributes changed."""
        other = copy(self)
        for name, value in changes.items():
            setattr(other, name, value)
        return other

    def until(self, test: Callable[[], bool], description: Callable[[], str], yielding: float = 0.0) -> None:
        """Return once ``test()`` is true.

        Args:
          test: returns whether the awaited event has happened.
          description: returns a description of the event, for warnings and errors.
          yielding: least seconds of polling that yields the core before the first sleep.

        Raises:
          HangError: it was false for ``abort_after`` seconds.
        """
        clock = time.perf_counter
        now = began = clock()
        until = began + self.spin
        while now < until:
            if test():
                self.activity.waiting += now - began
                return
            now = clock()
        until += max(self.yielding, yielding)
        while now < until:
            os.sched_yield()
            if test():
                self.activity.waiting += clock() - began
                return
            now = clock()
        self.activity.waiting += now - began
        self._sleep_until(test, description, self.max_sleep, self.late)

    def until_acquired(self, acquire: Callable[[], bool], description: Callable[[], str]) -> None:
        """Return once ``acquire()`` is true, which sleeps for a while itself; ``what()`` describes the event.

        Raises:
          HangError: it was false for ``abort_after`` seconds.
        """
        began = time.perf_counter()
        acquired = acquire()
        self.activity.waiting += time.perf_counter() - began
        if not acquired:
            self._sleep_until(acquire, description, max_sleep=0.0, late=0.0)

    def _sleep_until(
        self, test: Callable[[], bool], description: Callable[[], str], max_sleep: float, late: float
    ) -> None:
        began, counted = time.monotonic(), 0.0
        warn_at, tell_at = self.warn_after, TELL_AFTER
        pause = min(2e-5, max_sleep)
        while not test():
            self.check()
            self.on_idle()
            time.sleep(pause)
            waited = time.monotonic() - began
            self.activity.waiting += waited - counted  # now: the wait may last minutes
            counted = waited
            # After a long wait polls become rarer: each takes the core from the ranks that are waited for.
            pause = max(min(pause * 1.2, max_sleep), min(late * waited, LONGEST_SLEEP))
            if waited > tell_at:
                self.current_wait.since, self.current_wait.what = began, description()
                tell_at = waited + TELL_AFTER
            if waited > self.abort_after:
                raise HangError(f"waited {waited:.0f} s for {description()}")
            if waited > warn_at:
                self.on_warn(f"has waited {waited:.0f} s for {description()}")
                warn_at *= 2
        self.activity.waiting += time.monotonic() - began - counted
        self.current_wait.what = None

    @contextlib.contextmanager
    def watching(self, description: str) -> Iterator[None]:
        """Bound a call that blocks: after ``abort_after`` seconds this process exits.

        Args:
          description: description of the awaited event.
        """
        self.current_wait.since, self.current_wait.what = time.monotonic(), description

        def end() -> None:
            print(f"error: waited {self.abort_after:.0f} s for {description}", file=sys.stderr, flush=True)
            os._exit(1)

        timer = threading.Timer(self.abort_after, end)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            self.current_wait.what = None


class Pacer:
    """Timer of an action that recurs at an interval."""

    def __init__(self, every: float) -> None:
        """Create a timer that is due now, and then ``every`` so many seconds."""
        self._every, self._next = every, 0.0

    def due(self) -> bool:
        """Return whether the action is due; the next interval begins now."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + self._every
        return True
