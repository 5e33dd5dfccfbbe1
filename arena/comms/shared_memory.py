"""Memory that all members of a communicator have mapped."""

import mmap
import os
import secrets
from contextlib import suppress
from pathlib import Path

from arena.comms.mpi import MPI

PLACE = Path("/dev/shm")


def shared_memory(comm: MPI.Comm, size: int) -> memoryview | None:
    """Return so many zero bytes; None where the members have no memory in common. All call it."""
    path = PLACE / f"arena-{secrets.token_hex(8)}"
    memory = _mapped(path, size, make=True) if comm.rank == 0 else None
    try:
        found = comm.bcast(None if memory is None else path)
        if comm.rank != 0 and found is not None:
            memory = _mapped(found, size, make=False)
        everyone = comm.allreduce(memory is not None, MPI.LAND)
    finally:
        if comm.rank == 0:
            path.unlink(missing_ok=True)  # the memory stays until the last of them is gone
    return memory if everyone else None


def whole_pages(size: int) -> int:
    """Return the bytes of the whole pages that hold so many."""
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE


def _mapped(path: Path, size: int, *, make: bool) -> memoryview | None:
    """Return a file as memory; None where that cannot be."""
    with suppress(OSError):
        file = os.open(path, os.O_RDWR | (os.O_CREAT | os.O_EXCL if make else 0), 0o600)
        try:
            if make:
                os.posix_fallocate(file, 0, size)  # where there is not enough, it fails now, and by no signal later
            return memoryview(mmap.mmap(file, size))
        finally:
            os.close(file)
    return None
