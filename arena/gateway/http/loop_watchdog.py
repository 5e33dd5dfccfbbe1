"""Watchdog of the event loop: logs the stack of code that blocks it, mostly an actor."""

import logging
import sys
import threading
import time
import traceback

HELD = 0.25
"""Seconds for which the loop may block before the stack is logged."""

logger = logging.getLogger(__name__)


class LoopWatchdog:
    """Checks, from a thread of its own, when the loop last ran."""

    def __init__(self) -> None:
        """Watch the calling thread."""
        self._watched = threading.get_ident()
        self._beat = time.monotonic()
        self._over = threading.Event()
        threading.Thread(target=self._watch, name="stack-watch", daemon=True).start()

    def beat(self) -> None:
        """Record that the loop runs; to be called much more often than every ``HELD`` seconds."""
        self._beat = time.monotonic()

    def close(self) -> None:
        """Stop watching."""
        self._over.set()

    def _watch(self) -> None:
        warned_at = 0.0
        while not self._over.wait(HELD / 4):
            beat = self._beat
            held = time.monotonic() - beat
            frame = sys._current_frames().get(self._watched)
            if held < HELD or beat == warned_at or frame is None or beat != self._beat:
                continue
            warned_at = beat
            stack = "".join(traceback.format_stack(frame)[-8:])
            logger.warning(
                "all games have waited for %.2f s: an actor that waits should await, or have actor_threads; "
                "or this machine has too few cores for its load. The server was at\n%s",
                held,
                stack,
            )
