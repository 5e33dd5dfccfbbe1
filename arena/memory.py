"""Memory that two processes share and that no file system knows: nothing is left of it when both are gone."""

import mmap
import os
import tempfile

import numpy as np


def new_memory(size: int) -> int:
    """Return the descriptor of ``size`` bytes of memory, all zero; whoever opens it must close it.

    Raises:
      OSError: there is not enough.
    """
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("arena-copy", os.MFD_CLOEXEC)
    else:  # not Linux: a file that has lost its name already
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, size)
    return descriptor


def map_memory(descriptor: int, size: int) -> np.ndarray:
    """Return the memory as bytes ``[size]``; it goes when nobody refers to the array any more."""
    return np.frombuffer(mmap.mmap(descriptor, size), np.uint8)
