"""A whole match in one rank: the environment process's part and that of each seat, by turns in one thread.

Each part is written as for a rank of its own. Where it would wait, the others get on (greenlets); where all of them
wait, so does the rank.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from greenlet import GreenletExit, getcurrent, greenlet

from arena.common.waiting import HangError, Waiter
from arena.environment.watchdog import InterruptedByWatchdog, Watchdog

Play = Callable[[Waiter], None]


def run_cooperatively(parts: Mapping[str, Play], waiter: Waiter, log: logging.Logger) -> None:
    """Play all parts to their ends.

    Args:
      parts: by name: what plays one, given how it waits.
      waiter: how this rank waits.
      log: of this rank.

    Raises:
      HangError: a part did not come back, or what they all wait for did not come.
      BaseException: what a part raised; the others are ended.
    """
    players = [_Part(name, play, waiter) for name, play in parts.items()]
    turns = _Turns()
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
    """Return what the parts wait for."""
    return "; ".join(dict.fromkeys(part.awaited() for part in parts))


class _Turns:
    """Whose turn it is; see ``Watchdog``."""

    def __init__(self) -> None:
        self.turns = 0
        self._part: _Part | None = None

    def take(self, part: "_Part") -> None:
        self._part = part
        self.turns += 1
        try:
            part.resume()
        finally:
            self.turns += 1

    def inside(self) -> str:
        return "" if self._part is None else self._part.name

    def outside(self) -> str:
        return "runner"


class _Part:
    """One part, as a greenlet.

    Attributes:
      name: what it is.
      greenlet: it.
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

    def wait(self, test: Callable[[], bool], what: Callable[[], str]) -> None:
        """Let the others get on until a test is true, which is asked no more then: it may have taken something."""
        self._test, self._what, self._ready = test, what, False
        getcurrent().parent.switch()

    def ready(self) -> bool:
        """Whether it can get on."""
        if not self._ready:
            assert self._test is not None
            self._ready = self._test()
        return self._ready

    def awaited(self) -> str:
        """Return what it waits for."""
        return self._what()

    def resume(self) -> None:
        """Let it get on until it waits.

        Raises:
          BaseException: what it raised.
        """
        self.greenlet.switch()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def end(self, log: logging.Logger) -> None:
        """Have it give back what it has, where it has not ended; what that raises goes to the log."""
        if self.greenlet.dead:
            return
        self.greenlet.throw()
        if self._failure is not None:
            log.error("%s could not end in good order", self.name, exc_info=self._failure)


class _PartWaiter(Waiter):
    """Lets the other parts get on."""

    def __init__(self, waiter: Waiter, part: _Part) -> None:
        self.__dict__.update(waiter.__dict__)
        self._part: Any = part

    def until(self, test: Callable[[], bool], what: Callable[[], str], yielding: float = 0.0) -> None:
        if not test():
            self._part.wait(test, what)
