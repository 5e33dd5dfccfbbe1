"""Both ends of a match in one rank: its worker and what else is an environment process, by turns in one thread.

Either is written as for a rank of its own, and they speak over the same memory. Where one would wait for the other,
that one gets on instead (greenlets): no other core to wake, no cache to fill anew, and no rank for the environment.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from greenlet import getcurrent, greenlet

from arena.waiting import HangError, Present, Waiter

HANG_SIGNAL = signal.SIGUSR2
"""What interrupts a rank that hangs in its own code."""

GRACE = 10.0
"""Seconds that a rank has to report what it was interrupted in, before it ends: it may hang outside of Python."""


class EnvironmentInWorker:
    """An environment process in its worker's process; to be entered by the worker.

    Attributes:
      waiter: how the worker waits meanwhile: whatever it waits for, the environment gets on first.
    """

    def __init__(self, serve: Callable[[Waiter], None], waiter: Waiter) -> None:
        """Begin nothing yet.

        Args:
          serve: plays the environment process's part to its end, given how that waits.
          waiter: how this rank waits.
        """
        worker = getcurrent()
        self._environment = greenlet(lambda: serve(_EnvironmentWaiter(waiter, worker.switch)))
        self.waiter: Waiter = _WorkerWaiter(waiter, self._get_on)
        self._turns = 0
        self._watchdog = _Watchdog(waiter.abort_after, lambda: self._turns, waiter.present)

    def _get_on(self) -> None:
        """Let the environment get on until it waits."""
        self._turns += 1
        self._environment.switch()

    def __enter__(self) -> "EnvironmentInWorker":
        self._watchdog.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        try:
            if kind is None:
                self.waiter.until(lambda: self._environment.dead, lambda: "the environment to end")
        finally:
            self._watchdog.stop()
            self._environment.throw()  # where it has not ended, it closes its copies
        if isinstance(error, _Interrupted):
            raise HangError(str(error)) from error


class _WorkerWaiter(Waiter):
    """Lets the environment get on before each test; really waits where neither of the two can go on."""

    def __init__(self, waiter: Waiter, let_environment: Callable[[], None]) -> None:
        self.__dict__.update(waiter.__dict__)
        self._let_environment = let_environment

    def until(self, test: Callable[[], bool], what: Callable[[], str], yielding: float = 0.0) -> None:
        self._let_environment()
        if test():
            return

        def look() -> bool:
            self._let_environment()
            return test()

        super().until(look, what, yielding)


class _EnvironmentWaiter(Waiter):
    """Hands back to the worker, which waits for both."""

    def __init__(self, waiter: Waiter, let_worker: Callable[[], Any]) -> None:
        self.__dict__.update(waiter.__dict__)
        self._let_worker = let_worker

    def until(self, test: Callable[[], bool], what: Callable[[], str], yielding: float = 0.0) -> None:
        while not test():
            self._let_worker()


class _Interrupted(BaseException):
    """Like an interrupt from the keyboard, this is not for code that takes any exception for one of its own."""


class _Watchdog:
    """Interrupts a rank whose environment or policy does not come back: nobody else waits for them."""

    def __init__(self, patience: float, turns: Callable[[], int], present: Present) -> None:
        """Watch how the count of turns grows while this rank does not wait for others; raise after ``patience``."""
        self._patience, self._turns, self._present = patience, turns, present
        self._over = threading.Event()
        self._before: Any = None

    def start(self) -> None:
        """Begin to watch the main thread."""
        self._before = signal.signal(HANG_SIGNAL, self._interrupt)
        threading.Thread(target=self._watch, daemon=True).start()

    def stop(self) -> None:
        """Watch no more."""
        self._over.set()
        signal.signal(HANG_SIGNAL, self._before)

    def _what(self) -> str:
        return f"waited {self._patience:.0f} s for the environment or the policy of this rank"

    def _interrupt(self, *_: Any) -> None:
        if not self._over.is_set():
            raise _Interrupted(self._what())

    def _watch(self) -> None:
        turns, since = -1, 0.0
        while not self._over.wait(min(1.0, self._patience / 10)):
            now = time.monotonic()
            if self._turns() != turns or self._present.what is not None:
                turns, since = self._turns(), now
            elif now - since > self._patience:
                signal.pthread_kill(threading.main_thread().ident or 0, HANG_SIGNAL)
                if not self._over.wait(GRACE):
                    print(f"error: {self._what()}", file=sys.stderr, flush=True)
                    os._exit(1)
