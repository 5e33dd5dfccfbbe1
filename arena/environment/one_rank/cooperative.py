"""A whole match in one rank: the environment process and every seat, scheduled cooperatively in one thread.

Each part is written as for a rank of its own. Where it would wait, the other parts run (greenlets); where all of them
wait, so does the rank.
"""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from greenlet import GreenletExit, getcurrent, greenlet

from arena.common.activity import Activity
from arena.common.waiting import HangError, Waiter
from arena.environment.one_rank.watchdog import InterruptedByWatchdog, Watchdog

Play = Callable[[Waiter], None]

ENVIRONMENT = "environment"
"""Name of the part that steps the environment."""


def run_cooperatively(parts: Mapping[str, Play], waiter: Waiter, log: logging.Logger) -> None:
    """Run all parts to their ends.

    Args:
      parts: name -> function that runs the part, given its waiter.
      waiter: bounded waits of this rank.
      log: log of this rank.

    Raises:
      HangError: a part does not return, or the event that all of them wait for does not happen.
      BaseException: a part raised it; the other parts are ended.
    """
    players = [_Part(name, play, waiter) for name, play in parts.items()]
    turns = _Turns(waiter.activity)
    watchdog = Watchdog(waiter.abort_after, turns, waiter.current_wait)
    watchdog.start()
    try:
        while open_parts := [part for part in players if not part.greenlet.dead]:
            if not any(part.ready() for part in open_parts):
                waiter.until(lambda: any(part.ready() for part in open_parts), lambda: _awaited(open_parts))
            for part in open_parts:
                if part.ready():
                    turns.take(part)
    except InterruptedByWatchdog as hang:
        raise HangError(str(hang)) from hang
    finally:
        try:
            for part in players:
                part.end(log)
        finally:
            watchdog.stop()


def _awaited(parts: list["_Part"]) -> str:
    """Return a description of the events that the parts wait for."""
    return "; ".join(dict.fromkeys(part.awaited() for part in parts))


class _Turns:
    """The part that currently runs; see ``Watchdog``."""

    def __init__(self, activity: Activity) -> None:
        self.turns = 0
        self._activity = activity
        self._part: _Part | None = None

    def take(self, part: "_Part") -> None:
        self._part = part
        self.turns += 1
        began = time.perf_counter()
        try:
            part.resume()
        finally:
            if part.name == ENVIRONMENT:
                self._activity.environment += time.perf_counter() - began
            self.turns += 1

    def inside(self) -> str:
        return "" if self._part is None else self._part.name

    def outside(self) -> str:
        return "runner"


class _Part:
    """One part, as a greenlet.

    Attributes:
      name: name of the part.
      greenlet: greenlet that runs it.
    """

    def __init__(self, name: str, play: Play, waiter: Waiter) -> None:
        self.name = name
        self.greenlet = greenlet(self._play)
        self._function, self._waiter = play, _PartWaiter(waiter, self)
        self._failure: BaseException | None = None
        self._test: Callable[[], bool] | None = None
        self._what: Callable[[], str] = lambda: name
        self._ready = True

    def _play(self) -> None:
        try:
            self._function(self._waiter)
        except (GreenletExit, InterruptedByWatchdog):
            raise
        except BaseException as error:
            self._failure = error

    def wait(self, test: Callable[[], bool], description: Callable[[], str]) -> None:
        """Switch to the other parts until a test is true; it is not repeated then, since it may receive a message."""
        self._test, self._what, self._ready = test, description, False
        getcurrent().parent.switch()

    def ready(self) -> bool:
        """Return whether the part can continue."""
        if not self._ready:
            assert self._test is not None
            self._ready = self._test()
        return self._ready

    def awaited(self) -> str:
        """Return a description of the event that the part waits for."""
        return self._what()

    def resume(self) -> None:
        """Run the part until it waits.

        Raises:
          BaseException: the part raised it.
        """
        self.greenlet.switch()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def end(self, log: logging.Logger) -> None:
        """End the part so that it frees its resources, if it has not ended; log an exception of it."""
        if self.greenlet.dead:
            return
        self.greenlet.throw()
        if self._failure is not None:
            log.error("%s could not end in good order", self.name, exc_info=self._failure)


class _PartWaiter(Waiter):
    """Switches to the other parts instead of waiting."""

    def __init__(self, waiter: Waiter, part: _Part) -> None:
        self.__dict__.update(waiter.__dict__)
        self._part: Any = part

    def until(self, test: Callable[[], bool], description: Callable[[], str], yielding: float = 0.0) -> None:
        if not test():
            self._part.wait(test, description)
