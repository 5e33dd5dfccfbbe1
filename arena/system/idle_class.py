"""The SCHED_IDLE scheduling class, for processes that run only while no other process needs the core."""

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def idle_class(needed: bool = True) -> Iterator[None]:
    """Run a block in the class SCHED_IDLE, if ``needed``.

    In MPI_Init ranks poll while they wait for their launcher's daemon. Where they outnumber the cores, the daemon gets
    no core for seconds: 91 ranks on two cores took 17 to 85 s, and take 13 to 15 s in this class.
    """
    changed = False
    if needed and hasattr(os, "SCHED_IDLE") and os.sched_getscheduler(0) == os.SCHED_OTHER:
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
            changed = True
    try:
        yield
    finally:
        if changed:
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
