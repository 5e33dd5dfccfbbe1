"""Bounded and polite waiting: spin while the answer is microseconds away, then yield, then sleep for ever longer."""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from copy import copy
from typing import Any, NamedTuple


class HangError(RuntimeError):
    """Something that this rank waits for did not come within ``abort_after``."""


def do_nothing() -> None:
    """What a rank with nothing to look after does while it waits."""


TELL_AFTER = 0.5
"""Seconds after which a wait is worth telling who asks."""


ALONE = 0.999
"""Cores from which on a rank has one for itself (three thirds of a core are one)."""


LATE = 0.01
"""Share of the time that a wait has lasted by which its end may be noticed late."""

LONGEST_SLEEP = 0.01
"""Seconds that this comes to at most."""


class Waits(NamedTuple):
    """Seconds that a rank tests without a pause, then with its core given away each time; then sleeps between tests."""

    spin: float
    yielding: float
    max_sleep: float


def usual_waits(cores_share: float) -> Waits:
    """Return how a rank waits that has so many cores for itself: one that shares its core gives it away at once.

    A sleep is over some 100 microseconds too late, so that giving the core away is better, while few ranks want it. The
    more ranks a core has, the sooner and the longer they sleep: looking takes microseconds, which must not fill the
    core. A rank that is about to be answered may give its core away for longer (``Waiter.until``).
    """
    if cores_share >= ALONE:
        return Waits(spin=2e-4, yielding=5e-4, max_sleep=2e-4)
    crowd = 1 / cores_share
    return Waits(spin=0.0, yielding=max(5e-5, 2e-3 / crowd**2), max_sleep=2.5e-4 * max(2.0, crowd))


class CurrentWait:
    """What a rank waits for just now.

    Attributes:
      what: it; None while its own code runs.
      since: when that began, on the monotonic clock.
    """

    def __init__(self) -> None:
        """Start without a wait."""
        self.what: str | None = None
        self.since = 0.0

    def __str__(self) -> str:
        """Say it in a line."""
        what = self.what
        return "does not wait" if what is None else f"waits for {what}, {time.monotonic() - self.since:.0f} s"


class Waiter:
    """How one rank waits.

    Attributes:
      spin: seconds of testing without a pause.
      yielding: seconds of testing after that, each test giving the core away once.
      max_sleep: longest pause between two tests, seconds, while nothing is known of how long it will take.
      late: share of the time waited so far that a pause may last where that is more; 10 ms at most.
      warn_after: seconds after which ``on_warn`` is told what this rank waits for (again after each doubling).
      abort_after: seconds after which waiting ends with a HangError.
      on_idle: called before each sleep; may raise to end the wait.
      check: the same, in every wait: lets MPI get on, which not every test does, and raises where a rank has died.
      current_wait: what this rank waits for just now; another thread may read it.
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

    def like(self, **changes: Any) -> "Waiter":
        """Return another way for this rank to wait, with these attributes changed."""
        other = copy(self)
        for name, value in changes.items():
            setattr(other, name, value)
        return other

    def until(self, test: Callable[[], bool], what: Callable[[], str], yielding: float = 0.0) -> None:
        """Return once ``test()`` is true; ``what()`` names what is waited for.

        Args:
          test: says whether it is there.
          what: names it.
          yielding: at least so many seconds of testing, each test giving the core away, before the first sleep.

        Raises:
          HangError: ``abort_after`` seconds went by.
        """
        clock = time.perf_counter
        until = clock() + self.spin
        while clock() < until:
            if test():
                return
        until += max(self.yielding, yielding)
        while clock() < until:
            os.sched_yield()
            if test():
                return
        self._sleep_until(test, what, self.max_sleep, self.late)

    def until_acquired(self, acquire: Callable[[], bool], what: Callable[[], str]) -> None:
        """Return once ``acquire()`` is true, which sleeps for a while itself; ``what()`` names what is waited for.

        Raises:
          HangError: ``abort_after`` seconds went by.
        """
        if not acquire():
            self._sleep_until(acquire, what, max_sleep=0.0, late=0.0)

    def _sleep_until(self, test: Callable[[], bool], what: Callable[[], str], max_sleep: float, late: float) -> None:
        began = time.monotonic()
        warn_at, tell_at = self.warn_after, TELL_AFTER
        pause = min(2e-5, max_sleep)
        while not test():
            self.check()
            self.on_idle()
            time.sleep(pause)
            waited = time.monotonic() - began
            # Who has waited for long looks less often: each look takes the core from those that are waited for.
            pause = max(min(pause * 1.2, max_sleep), min(late * waited, LONGEST_SLEEP))
            if waited > tell_at:
                self.current_wait.since, self.current_wait.what = began, what()
                tell_at = waited + TELL_AFTER
            if waited > self.abort_after:
                raise HangError(f"waited {waited:.0f} s for {what()}")
            if waited > warn_at:
                self.on_warn(f"has waited {waited:.0f} s for {what()}")
                warn_at *= 2
        self.current_wait.what = None

    @contextlib.contextmanager
    def watching(self, what: str) -> Iterator[None]:
        """Bound a wait that cannot be asked in between: after ``abort_after`` seconds this process ends.

        Args:
          what: is waited for.
        """
        self.current_wait.since, self.current_wait.what = time.monotonic(), what

        def end() -> None:
            print(f"error: waited {self.abort_after:.0f} s for {what}", file=sys.stderr, flush=True)
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
    """Says when something that is done now and then is due."""

    def __init__(self, every: float) -> None:
        """Be due ``every`` so many seconds, the first time at once."""
        self._every, self._next = every, 0.0

    def due(self) -> bool:
        """Whether it is time; the next time is counted from now."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + self._every
        return True
