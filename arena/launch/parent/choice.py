"""Decision whether ranks and commands are forks of a parent process.

Each rank imports it, so it imports nothing heavy.
"""

import itertools
import os
import sys
from collections.abc import Mapping, Sequence

from arena.launch.commands import COMMANDS
from arena.launch.parent.client import SOCKET, START, stand_for_forked_command, stand_for_forked_rank
from arena.system import launcher_env

_DEVICES_PER_TASK = ("SLURM_GPUS_PER_TASK", "SLURM_GPU_BIND", "SLURM_TRES_PER_TASK", "SLURM_TRES_BIND")
"""Environment variables of a step in which tasks may have control groups with different devices: a fork would have
those of the task that started the parent."""


def way_to_start(arguments: Sequence[str], environ: Mapping[str, str]) -> str:
    """Return how ranks start, by the command line, else by ``ARENA_START``, else ``auto``."""
    words = [word.removeprefix("--start=") for word in arguments if word.startswith("--start=")]
    words += [word for before, word in itertools.pairwise(arguments) if before == "--start"]
    return words[-1] if words else environ.get(START, "auto")


def reason_to_spawn(environ: Mapping[str, str]) -> str | None:
    """Return the reason why the ranks of a job start by themselves, None if they can be forks of a parent process.

    Args:
      environ: environment variables of the launcher, or of a rank.
    """
    if sys.platform != "linux":
        return "only Linux ends ranks with their parent process"
    if "LD_PRELOAD" in environ:
        return "LD_PRELOAD is set, for example by a profiler"
    if "SLURM_STEP_ID" in environ and any(name in environ for name in _DEVICES_PER_TASK):
        return "SLURM gives each task devices of its own"
    return None


def rank_of(arguments: Sequence[str], environ: Mapping[str, str]) -> int | None:
    """Return the rank of a process with this command line; None for a launcher and for any other command."""
    launched = launcher_env.started_by_mpi(environ)
    if launched is None or not arguments or arguments[0] in COMMANDS or "--dry-run" in arguments:
        return None
    return launched[0]


def become_client(arguments: list[str]) -> None:
    """Stand for a forked rank or command, and end with it, if this process can be forked; else return.

    Args:
      arguments: command line of the process, without the program.
    """
    if way_to_start(arguments, os.environ) == "spawn":
        return
    reason, rank = reason_to_spawn(os.environ), rank_of(arguments, os.environ)
    if rank is None:
        if SOCKET in os.environ and reason is None and _can_be_forked(arguments):
            stand_for_forked_command(arguments)
    elif reason is None and launcher_env.ranks_on_machine() != 1:
        stand_for_forked_rank(arguments)
    elif reason is not None and rank == 0:
        print(f"each rank imports by itself: {reason}", flush=True)


def _can_be_forked(arguments: Sequence[str]) -> bool:
    """Return whether a command can be a fork: neither it nor Python's options concern its own start."""
    options = sys.orig_argv[1:2]  # such as -X importtime
    plain = not options or options == ["-m"] or not options[0].startswith("-")
    return plain and (not arguments or arguments[0] not in ("parent", "doctor"))
