"""Operating-system queries and signals about processes: lifetime, memory, process groups."""

import contextlib
import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1


def die_with_parent(number: int = signal.SIGKILL, parent: int | None = None) -> None:
    """Request from the kernel that this process ends when its parent ends (on Linux; 0 cancels the request).

    Args:
      number: number of the signal.
      parent: process id of the parent; if it has ended before this call, the process ends immediately.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    if parent is not None and os.getppid() != parent:
        os.kill(os.getpid(), number)


def birth_of(pid: int) -> int:
    """Return the start time of a process in the kernel's ticks; 0 if there is none, or only its zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in "ZX" else int(fields[19])


def identity() -> str:
    """Return this process as text: its id and its start time, since ids are used again."""
    return f"{os.getpid()}:{birth_of(os.getpid())}"


def is_alive(process: str) -> bool:
    """Return whether a process of this machine is alive, given its ``identity``."""
    pid, _, birth = process.partition(":")
    return birth_of(int(pid)) == int(birth)


def megabytes_of(pid: int) -> float:
    """Return the resident memory of a process in megabytes, 0 if unknown."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    except (OSError, ValueError, IndexError):
        return 0.0


def kill_group(pid: int) -> None:
    """End a process that leads a process group, and its descendants in that group."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(OSError):
            kill(pid, signal.SIGKILL)
