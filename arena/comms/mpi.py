"""Initialisation of MPI, and receives that never block in it."""

import os
import sys
from pathlib import Path
from typing import Any

import mpi4py

from arena.common.waiting import Waiter
from arena.system import aslr, cores
from arena.system.idle_class import idle_class
from arena.system.launcher_env import DEFERRED
from arena.system.timer_slack import relaxed_timer_slack


def _set_variables() -> None:
    """Set the variables that Open MPI reads in MPI_Init, unless the user or the site has set them."""
    # Open MPI yields the core while it waits only where it detects that ranks share cores. It cannot detect that where
    # a scheduler counts more cores than there are, and then every collective costs each rank a time slice.
    os.environ.setdefault("OMPI_MCA_mpi_yield_when_idle", "1")
    # Open MPI searches for its one-sided path over libfabric, which the arena does not use, in MPI_Init, and sleeps for
    # a second if it finds nothing. This is switched off for the Open MPI of PyPI; a site's own is left as the site has
    # set it up.
    if (Path(sys.prefix) / "lib" / "libmpi.so").exists():
        os.environ.setdefault("OMPI_MCA_btl", "^ofi")


_set_variables()
# Only the main thread of a rank calls MPI; requesting no more keeps locks out of the step path.
mpi4py.rc.thread_level = "funneled"
if DEFERRED in os.environ:
    mpi4py.rc.initialize = mpi4py.rc.finalize = False
with relaxed_timer_slack(), idle_class(aslr.is_oversubscribed(os.environ, cores.available_cores())):
    from mpi4py import MPI

__all__ = ["MPI", "initialize", "receive"]


def initialize() -> None:
    """Initialise MPI in a rank that was forked from a process which has imported this module without doing so."""
    with relaxed_timer_slack(), idle_class(aslr.is_oversubscribed(os.environ, cores.available_cores())):
        MPI.Init_thread(MPI.THREAD_FUNNELED)


def receive(comm: MPI.Comm, source: int, tag: int, waiter: Waiter, description: str) -> Any:
    """Return the next pickled message of a rank, however large, without ever blocking in MPI."""
    name = f"{description} from rank {source}"
    arriving: list[MPI.Message] = []

    def begins() -> bool:
        message = comm.improbe(source, tag)
        arriving.extend([] if message is None else [message])
        return message is not None

    if not begins():
        waiter.until(begins, lambda: name)
    request = arriving[0].irecv()
    arrived: list[Any] = []

    def ends() -> bool:
        done, message = request.test()
        arrived.extend([message] if done else [])
        return done

    if not ends():
        waiter.until(ends, lambda: name)
    return arrived[0]
