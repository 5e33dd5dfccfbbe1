"""Interrupts a rank whose own code does not come back, where no other rank waits for it."""

import faulthandler
import os
import signal
import sys
import threading
import time
from typing import Any, Protocol

from arena.common.waiting import CurrentWait

HANG_SIGNAL = signal.SIGUSR2
"""What interrupts a rank that hangs in its own code."""

GRACE = 10.0
"""Seconds that a rank has to report what it was interrupted in, before it ends: it may hang outside of Python."""


class Turns(Protocol):
    """Whose turn it is in a rank that is several parts.

    Attributes:
      turns: how often one was let on and has come back; odd while it is on.
    """

    turns: int

    def inside(self) -> str:
        """Return what does not come back while a part is on."""

    def outside(self) -> str:
        """Return what does not come back while none is."""


class InterruptedByWatchdog(BaseException):
    """Like an interrupt from the keyboard, this is not for code that takes any exception for one of its own."""


class Watchdog:
    """Interrupts a rank whose parts do not come back: no other rank waits for them."""

    def __init__(self, patience: float, parts: Turns, current_wait: CurrentWait) -> None:
        """Watch turns go by while this rank does not wait for others; raise ``patience`` seconds after the last one."""
        self._patience, self._parts, self._current_wait = patience, parts, current_wait
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
            raise InterruptedByWatchdog(self._text)

    def _watch(self) -> None:
        turns, since = -1, 0.0
        while not self._over.wait(min(1.0, self._patience / 10)):
            now, before, turns = time.monotonic(), turns, self._parts.turns
            inside = turns % 2 == 1
            if turns != before or (self._current_wait.what is not None and not inside):
                since = now
                # Code that keeps Python's lock stops this thread, too. This ends the process without it.
                self._end_in(self._patience + GRACE)
            elif now - since > self._patience:
                who = self._parts.inside() if inside else self._parts.outside()
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
