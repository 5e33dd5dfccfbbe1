"""How late the kernel may wake a thread that sleeps (timer slack)."""

import contextlib
import ctypes
import sys
from collections.abc import Iterator

# Folds: a source that has nothing left is removed.


_SET_TIMER_SLACK = 29  # of prctl, in linux/prctl.h

_PATIENT_SLACK = 20_000_000
"""Nanoseconds by which sleeps may be late while MPI waits in its own ways."""


def relax_timer_slack() -> None:
    """From here on let the kernel wake this thread, and threads that it starts, some milliseconds late.

    In MPI_Init and MPI_Finalize, Open MPI looks every 100 µs whether the others are there. Where ranks outnumber cores,
    that alone keeps the cores so busy that those who are waited for hardly get on.
    """
    _set_timer_slack(_PATIENT_SLACK)


@contextlib.contextmanager
def relaxed_timer_slack() -> Iterator[None]:
    """Have ``relax_timer_slack`` for a while."""
    relax_timer_slack()
    try:
        yield
    finally:
        _set_timer_slack(0)  # the thread's default


def _set_timer_slack(nanoseconds: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_TIMER_SLACK, ctypes.c_ulong(nanoseconds), 0, 0, 0)
