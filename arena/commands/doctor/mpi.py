"""The doctor's own MPI calls: those that a run never makes, and those before MPI is initialised."""

import contextlib
import ctypes
import os
import re
import signal
import time
from pathlib import Path
from statistics import median

import mpi4py
import numpy as np

from arena.commands.doctor.measured import Library, Pings
from arena.common.waiting import Waiter

# A library started by the wrong launcher may end the process when MPI starts: check before.
mpi4py.rc.initialize, mpi4py.rc.finalize = False, True
from mpi4py import MPI  # noqa: E402 (see above)

_PING, _ECHO = 11, 12
_LARGE = 1 << 20
_REPEATS, _FEW_REPEATS = 300, 30
_LOSE_WITHIN = 20
"""Seconds until the kernel ends a rank that waits for the notice of a death."""


def library() -> Library:
    """Return the library that mpi4py has loaded; MPI need not be initialised."""
    first = re.split(r"[,\n\0]", MPI.Get_library_version().strip())[0]
    return Library(_short(first), mpi4py.__version__, _library_path())


def _short(name: str) -> str:
    """Return ``Open MPI 5.0.11``, ``MPICH 5.0.2`` or ``Intel MPI 2021.18`` for a library's own version string."""
    name = re.sub(r"Intel\(R\) MPI Library (\S+).*", r"Intel MPI \1", name)
    return re.sub(r"(Version:\s*|\bv(?=\d))", "", name).strip()


def _library_path() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/maps").read_text().splitlines():
            path = line.rpartition(" ")[2]
            if re.fullmatch(r"libmpi\.so[.\d]*", os.path.basename(path)):
                return path
    return "libmpi.so"


def initialize() -> None:
    """Initialise MPI as the arena does."""
    MPI.Init_thread(MPI.THREAD_FUNNELED)


def world_size() -> int:
    """Return the number of ranks according to MPI."""
    return MPI.COMM_WORLD.size


def thread_level() -> str:
    """Return the name of MPI's thread level."""
    levels = {
        MPI.THREAD_SINGLE: "single",
        MPI.THREAD_FUNNELED: "funneled",
        MPI.THREAD_SERIALIZED: "serialized",
        MPI.THREAD_MULTIPLE: "multiple",
    }
    return levels[MPI.Query_thread()]


def gpu_aware() -> bool | None:
    """Return whether MPI sends from a GPU's memory; None if the library does not report it."""
    try:
        ask = ctypes.CDLL(_library_path()).MPIX_Query_cuda_support
    except (OSError, AttributeError):
        return None
    return bool(ask())


def _send(comm: MPI.Comm, buffer: np.ndarray, other: int, tag: int, waiter: Waiter) -> None:
    waiter.until(comm.Isend(buffer, other, tag).Test, lambda: f"a message to rank {other} to leave")


def _receive(comm: MPI.Comm, buffer: np.ndarray, other: int, tag: int, waiter: Waiter) -> None:
    waiter.until(comm.Irecv(buffer, other, tag).Test, lambda: f"an answer of rank {other}")


def _round_trip(comm: MPI.Comm, buffer: np.ndarray, other: int, waiter: Waiter) -> float:
    """Send and receive as a run does, by bounded polling; return the seconds."""
    began = time.perf_counter()
    _send(comm, buffer, other, _PING, waiter)
    _receive(comm, buffer, other, _ECHO, waiter)
    return time.perf_counter() - began


def ping(comm: MPI.Comm, other: int, waiter: Waiter) -> Pings:
    """Measure messages with ``other``, which calls ``echo`` meanwhile.

    Raises:
      HangError: it does not reply.
    """
    small, large, clock = np.zeros(64, np.uint8), np.zeros(_LARGE, np.uint8), np.zeros(1, np.float64)
    round_trip = median(_round_trip(comm, small, other, waiter) for _ in range(_REPEATS))
    there_and_back = median(_round_trip(comm, large, other, waiter) for _ in range(_FEW_REPEATS))
    readings = []
    for _ in range(_REPEATS):
        sent = time.time()
        took = _round_trip(comm, clock, other, waiter)
        readings.append((took, float(clock[0]) - (sent + took / 2)))
    return Pings(round_trip, 2 * _LARGE / there_and_back, min(readings)[1])


def echo(comm: MPI.Comm, other: int, waiter: Waiter) -> None:
    """Reply to the messages of ``ping``.

    Raises:
      HangError: no more messages arrive.
    """
    small, large, clock = np.zeros(64, np.uint8), np.zeros(_LARGE, np.uint8), np.zeros(1, np.float64)
    for buffer, count in ((small, _REPEATS), (large, _FEW_REPEATS), (clock, _REPEATS)):
        for _ in range(count):
            _receive(comm, buffer, other, _PING, waiter)
            clock[0] = time.time()
            _send(comm, buffer, other, _ECHO, waiter)


def lose_a_rank() -> None:
    """Run as one of several ranks of which the last dies; the first prints the seconds until the others continued.

    If fault tolerance is a dummy, no rank detects the death: each then ends by itself.
    """
    signal.alarm(_LOSE_WITHIN)
    initialize()
    comm = MPI.COMM_WORLD
    comm.Set_errhandler(MPI.ERRORS_RETURN)
    with contextlib.suppress(MPI.Exception):  # a slow rank may detect the death in here
        comm.Barrier()
    if comm.rank == comm.size - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.perf_counter()
    while comm.Get_failed().size == 0 and not comm.Is_revoked():
        with contextlib.suppress(MPI.Exception):  # the calling rank detects the death by an error
            comm.Iprobe(MPI.ANY_SOURCE, _PING)
        time.sleep(0.001)
    comm.Revoke()
    survivors = comm.Shrink()
    total = survivors.allreduce(1)
    if survivors.rank == 0:
        print(f"survived: {total} of {comm.size} ranks after {time.perf_counter() - began:.3f} s", flush=True)
    survivors.Barrier()
    os._exit(0)  # MPI_Finalize may wait for the dead rank
