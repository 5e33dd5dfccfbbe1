"""Memory that processes share and that no file system knows: nothing is left of it when all of them are gone."""

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
"""Whether processors of this machine see each other's writes in the order in which they were made, and read in order:
Intel's and AMD's do (Intel SDM, volume 3A, 9.2.2; streaming stores are not ordered, and code that uses them ends with a
fence), those of Arm and IBM do not."""

_fence = Lock()


def new_memory(size: int) -> int:
    """Return the descriptor of ``size`` bytes of memory, all zero; the caller must close it.

    Raises:
      OSError: there is not enough.
    """
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("arena", os.MFD_CLOEXEC)
    else:  # not Linux: a file that has lost its name already
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    try:
        os.ftruncate(descriptor, size)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def map_memory(descriptor: int, size: int) -> np.ndarray:
    """Return the memory as bytes ``[size]``; it goes when nobody refers to the array any more."""
    return np.frombuffer(mmap.mmap(descriptor, size), np.uint8)


class MemoryName(NamedTuple):
    """By what another process of the machine finds memory, as long as it is offered.

    Attributes:
      process, descriptor: who offers it, and as what.
      device, inode: what tells it from anything else that may be found there, in a container for example.
    """

    process: int
    descriptor: int
    device: int
    inode: int


class OfferedMemory:
    """New memory, all zero, that others find until it is withdrawn; then it stays until nobody refers to it.

    No file system knows of it: nothing is left of it, however those who have it end.

    Attributes:
      name: what ``find_memory`` takes.
      view: its bytes.
    """

    def __init__(self, size: int) -> None:
        """Make so many bytes.

        Raises:
          OSError: the machine has none to give.
        """
        self._descriptor = new_memory(size)
        try:
            os.posix_fallocate(self._descriptor, 0, size)  # where there is not enough, it fails now, by no signal later
            self.view = memoryview(mmap.mmap(self._descriptor, size))
            status = os.fstat(self._descriptor)
        except OSError:
            self.withdraw()
            raise
        self.name = MemoryName(os.getpid(), self._descriptor, status.st_dev, status.st_ino)

    def withdraw(self) -> None:
        """Offer it no longer: all who need it have found it, or never will."""
        os.close(self._descriptor)


def offer_memory(size: int) -> OfferedMemory | None:
    """Return so many zero bytes for others to find; None where the machine has none to give."""
    if sys.platform != "linux":  # elsewhere there is no /proc to find it in
        return None
    with suppress(OSError):
        return OfferedMemory(size)
    return None


def find_memory(name: MemoryName, size: int) -> memoryview | None:
    """Return what is offered by this name; None where this process cannot see it."""
    path = f"/proc/{name.process}/fd/{name.descriptor}"
    with suppress(OSError):
        if not _is(name, os.stat(path)):  # before it is opened: that may do something where it is another file
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
    """Have other processors see what this one has read and written before what follows; needed unless ``ORDERED``.

    Taking a lock that was given back is the fence that Python has.
    """
    _fence.acquire(blocking=False)  # it is free only where a signal has ended the last call half way
    _fence.release()
    _fence.acquire(blocking=False)


def whole_pages(size: int) -> int:
    """Return the bytes of the whole pages that hold so many."""
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
