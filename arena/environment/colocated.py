"""Both ends of a match in one rank: its worker and what else is an environment process, by turns in one thread.

Either is written as for a rank of its own, and they speak over the same memory. Where one would wait for the other,
that one gets on instead (greenlets): no other core to wake, no cache to fill anew, and no rank for the environment.
"""

import contextlib
import faulthandler
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from greenlet import GreenletExit, getcurrent, greenlet

from arena.common.errors import ConfigError
from arena.common.waiting import CurrentWait, HangError, Waiter

HANG_SIGNAL = signal.SIGUSR2
"""What interrupts a rank that hangs in its own code."""

GRACE = 10.0
"""Seconds that a rank has to report what it was interrupted in, before it ends: it may hang outside of Python."""


@contextlib.contextmanager
def environment_in_worker(serve: Callable[[Waiter], None], waiter: Waiter, log: logging.Logger) -> Iterator[Waiter]:
    """Have an environment process in its worker's process.

    Args:
      serve: plays the environment process's part to its end, given how that waits.
      waiter: how this rank waits.
      log: of this rank.

    Yields:
      How the worker waits for the environment.

    Raises:
      HangError: one of the two did not come back.
      BaseException: what ``serve`` raised.
    """
    environment = _Environment(serve, waiter)
    watchdog = _Watchdog(waiter.abort_after, environment, waiter.current_wait)
    inside = _WorkerWaiter(waiter, environment.get_on)
    watchdog.start()
    try:
        yield inside
        inside.until(environment.has_ended, lambda: "the environment to end")
    except _Interrupted as hang:
        raise HangError(str(hang)) from hang
    except _EnvironmentFailedError as failed:
        raise failed.error from None
    finally:
        try:
            environment.end(None if sys.exc_info()[0] is None else log)
        finally:
            watchdog.stop()


class _Environment:
    """The environment's part, as a greenlet.

    Attributes:
      turns: how often it was let on and has come back; odd while it is on.
    """

    def __init__(self, serve: Callable[[Waiter], None], waiter: Waiter) -> None:
        self.turns = 0
        self._serve = serve
        self._waiter = _EnvironmentWaiter(waiter)
        self._greenlet = greenlet(self._play)
        self._failure: BaseException | None = None

    def _play(self) -> None:
        try:
            self._serve(self._waiter)
        except (GreenletExit, _Interrupted):
            raise
        except BaseException as error:
            self._failure = error

    def has_ended(self) -> bool:
        """Whether its part is played to the end."""
        return self._greenlet.dead

    def get_on(self) -> None:
        """Let it get on until it waits.

        Raises:
          ConfigError: this is not the thread in which it was begun.
        """
        try:
            self._greenlet.parent = getcurrent()  # a policy may step from greenlets of its own
        except ValueError:  # but a greenlet stays in its thread; this one has begun, or there were no seat to step
            text = "env.in_worker: expected a policy that steps in the main thread, found another one"
            raise ConfigError(text) from None
        self.turns += 1
        try:
            self._greenlet.switch()
        finally:
            self.turns += 1
        if self._failure is not None:
            raise _EnvironmentFailedError(self._failure)

    def end(self, log: logging.Logger | None) -> None:
        """Have it close its copies, where it has not; what that raises goes to a log, where one is given."""
        if self._greenlet.dead:
            return
        self._greenlet.throw()
        if self._failure is not None:
            if log is None:
                raise self._failure
            log.error("the copies could not be closed", exc_info=self._failure)


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

    def __init__(self, waiter: Waiter) -> None:
        self.__dict__.update(waiter.__dict__)

    def until(self, test: Callable[[], bool], what: Callable[[], str], yielding: float = 0.0) -> None:
        while not test():
            getcurrent().parent.switch()


class _Interrupted(BaseException):
    """Like an interrupt from the keyboard, this is not for code that takes any exception for one of its own."""


class _EnvironmentFailedError(BaseException):
    """Nor is this: the environment's part has ended by an error, which is no business of the policy that steps it."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


class _Watchdog:
    """Interrupts a rank whose environment or policy does not come back: nobody else waits for them."""

    def __init__(self, patience: float, environment: _Environment, current_wait: CurrentWait) -> None:
        """Watch turns go by while this rank does not wait for others; raise ``patience`` seconds after the last one."""
        self._patience, self._environment, self._current_wait = patience, environment, current_wait
        self._over = threading.Event()
        self._ending = threading.Lock()  # between setting an end and taking it back for good
        self._text = ""

    def start(self) -> None:
        """Begin to watch the main thread."""
        signal.signal(HANG_SIGNAL, self._interrupt)  # for good: a late signal must not end this rank
        self._end_in(self._patience + GRACE)
        threading.Thread(target=self._watch, daemon=True).start()

    def stop(self) -> None:
        """Watch no more."""
        self._over.set()
        with self._ending:
            faulthandler.cancel_dump_traceback_later()

    def _interrupt(self, *_: Any) -> None:
        if self._text and not self._over.is_set():
            raise _Interrupted(self._text)

    def _watch(self) -> None:
        turns, since = -1, 0.0
        while not self._over.wait(min(1.0, self._patience / 10)):
            now, before, turns = time.monotonic(), turns, self._environment.turns
            inside = turns % 2 == 1
            if turns != before or (self._current_wait.what is not None and not inside):
                since = now
                # Code that keeps Python's lock stops this thread, too. This ends the process without it.
                self._end_in(self._patience + GRACE)
            elif now - since > self._patience:
                who = "environment" if inside else "policy"
                self._text = f"waited {self._patience:.0f} s for the {who} of this rank"
                self._end_in(GRACE + 1)
                signal.pthread_kill(threading.main_thread().ident or 0, HANG_SIGNAL)
                if not self._over.wait(GRACE):
                    print(f"error: {self._text}", file=sys.stderr, flush=True)
                    os._exit(1)

    def _end_in(self, seconds: float) -> None:
        with self._ending:
            if not self._over.is_set():
                faulthandler.dump_traceback_later(seconds, exit=True)
