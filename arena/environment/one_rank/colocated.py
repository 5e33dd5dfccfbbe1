"""A worker and its environment process in one rank, scheduled cooperatively in one thread.

Each is written as for a rank of its own, and they exchange messages through shared memory. Where one would wait for the
other, the other runs instead (greenlets): no core to wake, no cache to refill, and no rank for the environment.
"""

import contextlib
import logging
import sys
import time
from collections.abc import Callable, Iterator

from greenlet import GreenletExit, getcurrent, greenlet

from arena.common.errors import ConfigError
from arena.common.waiting import HangError, Waiter
from arena.environment.one_rank.watchdog import InterruptedByWatchdog, Watchdog


@contextlib.contextmanager
def environment_in_worker(serve: Callable[[Waiter], None], waiter: Waiter, log: logging.Logger) -> Iterator[Waiter]:
    """Run an environment process within its worker's process.

    Args:
      serve: runs the environment process until it ends, given its waiter.
      waiter: bounded waits of this rank.
      log: log of this rank.

    Yields:
      The waiter of the worker.

    Raises:
      HangError: one of the two does not return.
      BaseException: ``serve`` raised it.
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
    """The environment process, as a greenlet.

    Attributes:
      turns: number of switches into and out of it; odd while it runs.
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
        """Return the name of the code that runs while the environment does."""
        return "environment"

    def outside(self) -> str:
        """Return the name of the code that runs while it does not."""
        return "policy"

    def has_ended(self) -> bool:
        """Return whether it has ended."""
        return self._greenlet.dead

    def resume(self) -> None:
        """Run it until it waits.

        Raises:
          ConfigError: this is another thread than the one it began in.
        """
        try:
            self._greenlet.parent = getcurrent()  # a policy may step from greenlets of its own
        except ValueError:  # a greenlet cannot change its thread, and this one must have begun before a step
            text = "env.in_worker: expected a policy that steps in the main thread, found another one"
            raise ConfigError(text) from None
        self.turns += 1
        began = time.perf_counter()
        try:
            self._greenlet.switch()
        finally:
            self._waiter.activity.environment += time.perf_counter() - began
            self.turns += 1
        if self._failure is not None:
            raise _EnvironmentFailedError(self._failure)

    def end(self, log: logging.Logger | None) -> None:
        """End the process after it has closed its copies; log an exception, if a log is given."""
        if self._greenlet.dead:
            return
        self._greenlet.throw()
        if self._failure is not None:
            if log is None:
                raise self._failure
            log.error("the copies could not be closed", exc_info=self._failure)


class _WorkerWaiter(Waiter):
    """Runs the environment before each test; waits only if neither of the two can continue."""

    def __init__(self, waiter: Waiter, let_environment: Callable[[], None]) -> None:
        self.__dict__.update(waiter.__dict__)
        self._let_environment = let_environment

    def until(self, test: Callable[[], bool], description: Callable[[], str], yielding: float = 0.0) -> None:
        self._let_environment()
        if test():
            return

        def poll() -> bool:
            self._let_environment()
            return test()

        in_environment = self.activity.environment
        super().until(poll, description, yielding)
        self.activity.waiting -= self.activity.environment - in_environment


class _EnvironmentWaiter(Waiter):
    """Switches to the worker, which waits for both."""

    def __init__(self, waiter: Waiter) -> None:
        self.__dict__.update(waiter.__dict__)

    def until(self, test: Callable[[], bool], description: Callable[[], str], yielding: float = 0.0) -> None:
        while not test():
            getcurrent().parent.switch()


class _EnvironmentFailedError(BaseException):
    """The environment process has failed; a BaseException, so that the policy that steps it does not catch it."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error
