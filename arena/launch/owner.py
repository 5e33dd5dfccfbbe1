"""The process that has started the launcher from Python: when it ends, for whatever reason, the run ends in order."""

import os
import signal
import threading
import time

from arena.system.launcher_env import ENDS_WITH
from arena.system.processes import is_alive

POLL_EVERY = 0.5
"""Seconds between two checks of whether the owner is alive."""

STOPPED_WITHIN = 8.0
"""Seconds that the run has to write its checkpoint and end; then it is killed."""


def end_with_owner() -> None:
    """Watch the process that ``ARENA_ENDS_WITH`` names, if it does, and stop this launcher when that has ended.

    The kernel's own signal at the death of a parent would arrive at the end of the thread that started this process.
    """
    owner = os.environ.pop(ENDS_WITH, None)
    if owner is None:
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a notebook's kernel may have ignored it
    threading.Thread(target=_watch, args=(owner,), name="owner", daemon=True).start()


def _watch(owner: str) -> None:
    while is_alive(owner):
        time.sleep(POLL_EVERY)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(STOPPED_WITHIN)
    os.kill(os.getpid(), signal.SIGTERM)
