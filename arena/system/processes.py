"""What the operating system knows of processes: which ends with which, and how much memory one holds."""

import contextlib
import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1


def die_with_parent(number: int = signal.SIGKILL, parent: int | None = None) -> None:
    """Have the kernel end this process when its parent ends, however that ends (on Linux; 0 takes it back).

    Args:
      number: the signal.
      parent: process id of the parent, in case that it has ended before this call: the process then ends at once.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    if parent is not None and os.getppid() != parent:
        os.kill(os.getpid(), number)


def megabytes_of(pid: int) -> float:
    """Return the resident memory of a process, 0 where it cannot be told."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    except (OSError, ValueError, IndexError):
        return 0.0


def kill_group(pid: int) -> None:
    """End a process that leads a group of its own, and what it has started."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(OSError):
            kill(pid, signal.SIGKILL)
