"""The address layout of a process: equal for all ranks of a machine that has fewer cores than ranks.

The kernel lays out every process at random addresses. Ranks that alternate on a core then cannot reuse what the
previous one left in it: neither branch predictions nor code that is cached by address. With equal layouts, six ranks on
two cores take nearly twice as many match steps per second, and 31 ranks more than twice as many (benchmarks/NOTES.md).
A rank with a core of its own gains nothing and keeps its random addresses.
"""

import ctypes
import os
import sys
from collections.abc import Mapping

from arena.system import cores, launcher_env

SETTLED = "ARENA_ADDRESSES"
"""Environment variable: present if the address layout is settled, as in a rank's second start."""

_ASK = 0xFFFFFFFF
_NO_RANDOM_ADDRESSES = 0x0040000  # ADDR_NO_RANDOMIZE in linux/personality.h


def disable_aslr() -> None:
    """Restart this rank with a fixed address layout, if ranks outnumber the cores and the kernel allows it.

    To be called before anything is loaded that the second start would have to load again, and before MPI starts.
    """
    if sys.platform != "linux" or SETTLED in os.environ or not is_oversubscribed(os.environ, cores.available_cores()):
        return
    personality = ctypes.CDLL(None).personality
    now = personality(ctypes.c_ulong(_ASK))
    if now < 0 or now & _NO_RANDOM_ADDRESSES:
        return
    personality(ctypes.c_ulong(now | _NO_RANDOM_ADDRESSES))  # containers may forbid it
    if personality(ctypes.c_ulong(_ASK)) & _NO_RANDOM_ADDRESSES:
        os.environ[SETTLED] = "alike"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def is_oversubscribed(environ: Mapping[str, str], available: cores.Cores) -> bool:
    """Return whether a rank's machine has fewer cores than ranks, as far as is known before MPI starts.

    Args:
      environ: environment variables of the rank, including its launcher's.
      available: cores of the rank.
    """
    return launcher_env.ranks_on_machine(environ) > min(len(available.allowed), available.limit)
