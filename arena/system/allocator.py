"""The C library's allocator in processes that compute on large arrays, of equal sizes again and again."""

import ctypes

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's ``mallopt``."""

LARGEST = 128 << 20
"""Bytes of the largest array that is allocated from the heap: replay buffers may have mappings of their own."""

KEPT = 1 << 30
"""Bytes at the end of the heap that are kept although they are free."""


def keep_freed_memory() -> bool:
    """Let this process keep the memory that it frees; return False if its C library is not glibc.

    By default glibc returns a large array to the kernel when it is freed. In the next one, every page is a fault, and
    zeroed: a tenth of the time of training from pictures (benchmarks/NOTES.md).
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # macOS, musl
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, LARGEST)) and bool(mallopt(M_TRIM_THRESHOLD, KEPT))
