"""Where a process's memory lies: alike for all ranks of a machine where more of them run than it has cores.

The kernel lays out every process at addresses of its own, drawn at random. Ranks that take turns on a core then find
nothing where the one before had it: not the branches that the core has learned to foresee, and not the code that it
holds by address. Laid out alike, six ranks on two cores take nearly twice as many match steps per second, and 31 more
than twice as many (benchmarks/NOTES.md). A rank with a core of its own gains nothing and keeps its random addresses.
"""

import ctypes
import os
import sys
from collections.abc import Mapping

from arena.system import cores, launcher_env

SETTLED = "ARENA_ADDRESSES"
"""Environment variable: present where addresses are to stay as they are; a rank's second start has it, too."""

_ASK = 0xFFFFFFFF
_NO_RANDOM_ADDRESSES = 0x0040000  # ADDR_NO_RANDOMIZE in linux/personality.h


def disable_aslr() -> None:
    """Start this rank again, laid out like its neighbours, where they outnumber the cores and the kernel allows it.

    To be called before anything is loaded that the second start would have to load again, and before MPI starts.
    """
    if sys.platform != "linux" or SETTLED in os.environ or not is_oversubscribed(os.environ, cores.given()):
        return
    personality = ctypes.CDLL(None).personality
    now = personality(ctypes.c_ulong(_ASK))
    if now < 0 or now & _NO_RANDOM_ADDRESSES:
        return
    personality(ctypes.c_ulong(now | _NO_RANDOM_ADDRESSES))  # containers may refuse it
    if personality(ctypes.c_ulong(_ASK)) & _NO_RANDOM_ADDRESSES:
        os.environ[SETTLED] = "alike"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def is_oversubscribed(environ: Mapping[str, str], given: cores.Cores) -> bool:
    """Whether a rank's machine has fewer cores for its ranks than they are, as far as it can tell before MPI starts.

    Args:
      environ: of the rank, with its launcher's words.
      given: its cores.
    """
    return launcher_env.ranks_on_machine(environ) > min(len(given.allowed), given.limit)
