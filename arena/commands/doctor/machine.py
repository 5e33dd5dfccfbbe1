"""A rank's machine: cores, memory, graphics cards; needs no MPI."""

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from arena.common.package import VERSION
from arena.system.control_groups import cpu_quota, memory_limit


class Machine(NamedTuple):
    """A machine as seen by one rank.

    Attributes:
      rank: rank of the process.
      host: name of the machine.
      software: versions of Python and of the arena.
      cores: numbers of the cores that the process may run on.
      all_cores: number of cores of the machine.
      quota: CPU time in cores that a control group grants; None for no limit.
      memory: free bytes for this job: those of the machine, or the rest of the control group's limit.
      memory_limit: bytes of the control group's limit; None for no limit.
      shared_memory: free bytes in /dev/shm, which the ranks of a machine communicate through.
      load: average number of runnable threads over the last minute.
    """

    rank: int
    host: str
    software: str
    cores: tuple[int, ...]
    all_cores: int
    quota: float | None
    memory: int
    memory_limit: int | None
    shared_memory: int | None
    load: float


def inspect(rank: int) -> Machine:
    """Return the machine as seen by this process."""
    limit, used = memory_limit()
    free = _free_memory()
    return Machine(
        rank=rank,
        host=platform.node(),
        software=f"Python {platform.python_version()}, arena {VERSION}",
        cores=tuple(sorted(os.sched_getaffinity(0))),
        all_cores=os.cpu_count() or 1,
        quota=cpu_quota(),
        memory=free if limit is None else max(0, min(free, limit - used)),
        memory_limit=limit,
        shared_memory=shutil.disk_usage("/dev/shm").free if os.path.isdir("/dev/shm") else None,
        load=os.getloadavg()[0],
    )


def _free_memory() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return 1024 * int(line.split()[1])
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


class Graphics(NamedTuple):
    """The graphics cards of one machine.

    Attributes:
      cards: names of the cards.
      usable: number of cards that PyTorch can use.
      torch: version of CUDA that PyTorch was built for, or None.
    """

    cards: tuple[str, ...]
    usable: int
    torch: str


def graphics() -> Graphics:
    """Return the NVIDIA cards of this machine; PyTorch is queried in a process of its own, if there are any."""
    cards = _output(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]).splitlines()
    if not cards:
        return Graphics((), 0, "")
    answer = _output([sys.executable, "-c", "import torch; print(torch.cuda.device_count(), torch.version.cuda)"])
    usable, _, built_for = answer.strip().partition(" ")
    return Graphics(tuple(card.strip() for card in cards), int(usable or 0), built_for)


def _output(line: list[str]) -> str:
    try:
        return subprocess.run(line, capture_output=True, text=True, errors="replace", check=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
