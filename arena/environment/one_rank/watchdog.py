"""Watchdog of a rank that hosts several roles."""

import faulthandler
import os
import signal
import threading
import time
from typing import Any, Protocol

from arena.common.waiting import CurrentWait
from arena.system.output_file import terminal_errors

HANG_SIGNAL = signal.SIGUSR2
"""Signal that interrupts a rank that hangs in its own code."""

GRACE = 10.0
"""Seconds that an interrupted rank has to report before it exits: it may hang outside of Python."""


class Turns(Protocol):
    """The part that currently runs in a rank that hosts several roles.

    Attributes:
      turns: number of switches into and out of parts; odd while one runs.
    """

    turns: int

    def inside(self) -> str:
        """Return the name of the code that runs while a part does."""

    def outside(self) -> str:
        """Return the name of the code that runs while no part does."""


class InterruptedByWatchdog(BaseException):
    """Like KeyboardInterrupt, not an ``Exception``, so that general handlers do not catch it."""


class Watchdog:
    """Interrupts a rank that hosts several roles when one of them blocks: no other rank would notice."""

    def __init__(self, patience: float, parts: Turns, current_wait: CurrentWait) -> None:
        """Raise in the main thread after ``patience`` seconds without a switch in which this rank waits for none."""
        self._patience, self._parts, self._current_wait = patience, parts, current_wait
        self._over = threading.Event()
        self._ending = threading.Lock()  # held between setting and cancelling a deadline
        self._text = ""

    def start(self) -> None:
        """Begin to watch the main thread."""
        signal.signal(HANG_SIGNAL, self._interrupt)  # never restored: a late signal must not end this rank
        self._end_in(self._patience + GRACE)
        threading.Thread(target=self._watch, daemon=True).start()

    def stop(self) -> None:
        """Stop watching."""
        self._over.set()
        with self._ending:
            faulthandler.cancel_dump_traceback_later()

    def _interrupt(self, *_: Any) -> None:
        if self._text and not self._over.is_set():
            raise InterruptedByWatchdog(self._text)

    def _watch(self) -> None:
        turns, since = -1, 0.0
        while not self._over.wait(min(1.0, self._patience / 10)):
            now, before, turns = time.monotonic(), turns, self._parts.turns
            inside = turns % 2 == 1
            if turns != before or (self._current_wait.what is not None and not inside):
                since = now
                # Code that holds Python's lock stops this thread, too; this ends the process without it.
                self._end_in(self._patience + GRACE)
            elif now - since > self._patience:
                name = self._parts.inside() if inside else self._parts.outside()
                self._text = f"waited {self._patience:.0f} s for the {name} of this rank"
                self._end_in(GRACE + 1)
                signal.pthread_kill(threading.main_thread().ident or 0, HANG_SIGNAL)
                if not self._over.wait(GRACE):
                    print(f"error: {self._text}", file=terminal_errors(), flush=True)
                    os._exit(1)

    def _end_in(self, seconds: float) -> None:
        with self._ending:
            if not self._over.is_set():
                faulthandler.dump_traceback_later(seconds, exit=True, file=terminal_errors())
