"""Timer slack: the delay by which the kernel may wake a sleeping thread."""

import contextlib
import ctypes
import sys
from collections.abc import Iterator

# Folds: a source that has nothing left is removed.


_SET_TIMER_SLACK = 29  # of prctl, in linux/prctl.h

_PATIENT_SLACK = 20_000_000
"""Nanoseconds by which sleeps may be late during MPI's own waits."""


def relax_timer_slack() -> None:
    """Let the kernel wake this thread, and the threads that it starts, some milliseconds late from here on.

    In MPI_Init and MPI_Finalize, Open MPI checks every 100 µs whether the other ranks have arrived. Where ranks
    outnumber cores, these checks alone keep the cores so busy that the late ranks hardly make progress.
    """
    _set_timer_slack(_PATIENT_SLACK)


@contextlib.contextmanager
def relaxed_timer_slack() -> Iterator[None]:
    """Apply ``relax_timer_slack`` for a while."""
    relax_timer_slack()
    try:
        yield
    finally:
        _set_timer_slack(0)  # the thread's default


def _set_timer_slack(nanoseconds: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_TIMER_SLACK, ctypes.c_ulong(nanoseconds), 0, 0, 0)
