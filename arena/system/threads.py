"""Threads of users' code that are no daemons, for which the interpreter would wait without a bound."""

import sys
import threading
import traceback
from collections.abc import Sequence

from arena.common.user_code import user_place

GRACE = 2.0
"""Seconds in which the threads may end by themselves."""


def remaining_threads(seconds: float = GRACE) -> list[threading.Thread]:
    """Wait until all threads that are no daemons have ended, as the interpreter does; return those that have not."""
    if not _alive():
        return []
    # In a thread of its own, since it has no timeout. It also ends the idle threads of pools.
    waits = threading.Thread(target=threading._shutdown, daemon=True)  # type: ignore[attr-defined]
    waits.start()
    waits.join(seconds)
    return _alive()


def describe(threads: Sequence[threading.Thread]) -> str:
    """Return the names of threads, with the lines of the user's code that they are at."""
    frames = sys._current_frames()
    listed = []
    for thread in threads:
        frame = frames.get(thread.ident or 0)
        place = user_place(traceback.extract_stack(frame)) if frame is not None else ""
        listed.append(f"{thread.name!r}{f' at {place}' if place else ''}")
    return ", ".join(listed)


def _alive() -> list[threading.Thread]:
    main = threading.main_thread()
    return [thread for thread in threading.enumerate() if thread is not main and not thread.daemon]
