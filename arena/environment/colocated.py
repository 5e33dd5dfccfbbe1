"""Both ends of a match in one rank: its worker and what else is an environment process, by turns in one thread.

Either is written as for a rank of its own, and they speak over the same memory. Where one would wait for the other,
that one gets on instead (greenlets): no other core to wake, no cache to fill anew, and no rank for the environment.
"""

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator

from greenlet import GreenletExit, getcurrent, greenlet

from arena.common.errors import ConfigError
from arena.common.waiting import HangError, Waiter
from arena.environment.watchdog import InterruptedByWatchdog, Watchdog


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
    watchdog = Watchdog(waiter.abort_after, environment, waiter.current_wait)
    inside = _WorkerWaiter(waiter, environment.resume)
    watchdog.start()
    try:
        yield inside
        inside.until(environment.has_ended, lambda: "the environment to end")
    except InterruptedByWatchdog as hang:
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
        except (GreenletExit, InterruptedByWatchdog):
            raise
        except BaseException as error:
            self._failure = error

    def inside(self) -> str:
        """Return what does not come back where the turn is its."""
        return "environment"

    def outside(self) -> str:
        """Return what does not come back where it is not."""
        return "policy"

    def has_ended(self) -> bool:
        """Whether its part is played to the end."""
        return self._greenlet.dead

    def resume(self) -> None:
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


class _EnvironmentFailedError(BaseException):
    """Nor is this: the environment's part has ended by an error, which is no business of the policy that steps it."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error
