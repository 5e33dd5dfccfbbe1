"""Anonymous memory shared by processes, without a file: it is freed when the last of them ends."""

import mmap
import os
import platform
import sys
import tempfile
from contextlib import suppress
from threading import Lock
from typing import NamedTuple

import numpy as np

ORDERED = platform.machine() in ("x86_64", "AMD64")
"""Whether processors of this machine observe writes of others in program order, and read in order:

Intel's and AMD's do (Intel SDM, volume 3A, 9.2.2; streaming stores are not ordered, and code that uses them ends with a
fence), those of Arm and IBM do not.
"""

_fence = Lock()


def new_memory(size: int) -> int:
    """Return the descriptor of ``size`` zeroed bytes of memory; the caller must close it.

    Raises:
      OSError: there is not enough memory.
    """
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("arena", os.MFD_CLOEXEC)
    else:  # not Linux: a file that is unlinked already
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    try:
        os.ftruncate(descriptor, size)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def map_memory(descriptor: int, size: int) -> np.ndarray:
    """Return the memory as bytes ``[size]``; it is freed with the last reference to the array."""
    return np.frombuffer(mmap.mmap(descriptor, size), np.uint8)


class MemoryName(NamedTuple):
    """Name by which another process of the machine maps offered memory.

    Attributes:
      process, descriptor: the process that offers it, and its file descriptor there.
      device, inode: identity of the memory, to detect another file of this name (in a container, for example).
    """

    process: int
    descriptor: int
    device: int
    inode: int


class OfferedMemory:
    """New zeroed memory that other processes can map until the offer is withdrawn.

    It stays until the last reference to it is gone.

    It has no file, so that nothing is left of it, however its processes end.

    Attributes:
      name: argument of ``find_memory``.
      view: its bytes.
    """

    def __init__(self, size: int) -> None:
        """Allocate this many bytes.

        Raises:
          OSError: the system cannot allocate them.
        """
        self._descriptor = new_memory(size)
        try:
            # without enough memory this fails here instead of with a signal later
            os.posix_fallocate(self._descriptor, 0, size)
            self.view = memoryview(mmap.mmap(self._descriptor, size))
            status = os.fstat(self._descriptor)
        except OSError:
            self.withdraw()
            raise
        self.name = MemoryName(os.getpid(), self._descriptor, status.st_dev, status.st_ino)

    def withdraw(self) -> None:
        """End the offer: every process that needs the memory has mapped it, or never will."""
        os.close(self._descriptor)


def offer_memory(size: int) -> OfferedMemory | None:
    """Return this many zero bytes for other processes to map; None if the system cannot allocate them."""
    if sys.platform != "linux":  # other systems have no /proc to find it in
        return None
    with suppress(OSError):
        return OfferedMemory(size)
    return None


def find_memory(name: MemoryName, size: int) -> memoryview | None:
    """Return the memory offered by this name; None if this process cannot see it."""
    path = f"/proc/{name.process}/fd/{name.descriptor}"
    with suppress(OSError):
        if not _is(name, os.stat(path)):  # checked before opening, which may have effects if it is another file
            return None
        descriptor = os.open(path, os.O_RDWR)
        try:
            if _is(name, os.fstat(descriptor)):
                return memoryview(mmap.mmap(descriptor, size))
        finally:
            os.close(descriptor)
    return None


def _is(name: MemoryName, status: os.stat_result) -> bool:
    return (status.st_dev, status.st_ino) == (name.device, name.inode)


def keep_order() -> None:
    """Order this processor's earlier reads and writes before its later ones; needed unless ``ORDERED``.

    Acquiring a lock that was released is the only fence that Python has.
    """
    _fence.acquire(blocking=False)  # the lock is taken only if a signal has interrupted the previous call
    _fence.release()
    _fence.acquire(blocking=False)


def whole_pages(size: int) -> int:
    """Return the bytes of the whole pages that hold ``size`` bytes."""
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
