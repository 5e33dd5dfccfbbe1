"""MPI as the arena starts it, and what may be sent where."""

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
    # Open MPI gives the core away while it waits only where it knows that ranks share cores. It does not know where a
    # scheduler counts more cores than there are, and then every collective costs a time slice of each rank.
    os.environ.setdefault("OMPI_MCA_mpi_yield_when_idle", "1")
    # Open MPI's one-sided path over libfabric, which the arena does not use, is looked for in MPI_Init; where it finds
    # nothing to do it sleeps for a second. A site's own Open MPI is left as the site has set it up, that of PyPI is
    # not.
    if (Path(sys.prefix) / "lib" / "libmpi.so").exists():
        os.environ.setdefault("OMPI_MCA_btl", "^ofi")


_set_variables()
# Only the main thread of a rank speaks MPI; asking for no more keeps locks out of the step path.
mpi4py.rc.thread_level = "funneled"
if DEFERRED in os.environ:
    mpi4py.rc.initialize = mpi4py.rc.finalize = False
with relaxed_timer_slack(), idle_class(aslr.is_oversubscribed(os.environ, cores.given())):
    from mpi4py import MPI

__all__ = ["MPI", "initialize", "take"]


def initialize() -> None:
    """Initialise MPI in a rank that was forked from a process which has imported this module without doing so."""
    with relaxed_timer_slack(), idle_class(aslr.is_oversubscribed(os.environ, cores.given())):
        MPI.Init_thread(MPI.THREAD_FUNNELED)


def take(comm: MPI.Comm, source: int, tag: int, waiter: Waiter, what: str) -> Any:
    """Return the next pickled message of a rank, however large, without ever blocking in MPI."""
    name = f"{what} from rank {source}"
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
        done, thing = request.test()
        arrived.extend([thing] if done else [])
        return done

    if not ends():
        waiter.until(ends, lambda: name)
    return arrived[0]
