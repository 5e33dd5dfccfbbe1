"""Measurements of this process: how it has spent its time, and its memory."""

import os
import time
from typing import Any

from arena.common.activity import Activity
from arena.common.waiting import CurrentWait
from arena.system.processes import megabytes_of


def measure(activity: Activity, current_wait: CurrentWait) -> dict[str, Any]:
    """Return the measurements of this rank so far, as JSON values; not only its main thread may call this."""
    return {
        "seconds": time.monotonic(),
        "processor": time.process_time(),
        "waiting": activity.waiting,
        "environment": activity.environment,
        "learning": activity.learning,
        "megabytes": megabytes_of(os.getpid()),
        "waits_for": "" if current_wait.what is None else str(current_wait).removeprefix("waits for "),
    }
