"""The cores available to a rank: its affinity, its control group, its scheduler's grant, shared with its neighbours."""

import os
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from arena.system.launcher_env import cores_of_nodes, granted_cores


class Cores(NamedTuple):
    """The cores that are available to one rank.

    Attributes:
      allowed: the logical cores that it may run on; fewer than the node has if it is bound or in a cpuset.
      limit: CPU time of the job on this node in cores (a control group's quota, or the scheduler's grant on nodes where
        it does not enforce it); infinite without a limit.
    """

    allowed: frozenset[int]
    limit: float


def available_cores(environ: Mapping[str, str] = os.environ, groups: Path = Path("/sys/fs/cgroup")) -> Cores:
    """Return the cores that are available to this process."""
    if hasattr(os, "sched_getaffinity"):
        allowed = frozenset(os.sched_getaffinity(0))
    else:
        allowed = frozenset(range(os.cpu_count() or 1))
    return Cores(allowed, min(_quota(groups), granted_cores(environ)))


def count_cores(ranks: Collection[Cores]) -> int:
    """Return the number of cores that some ranks of one node have together, at least one."""
    everything = frozenset().union(*(rank.allowed for rank in ranks))
    return threads_in(min(len(everything), *(rank.limit for rank in ranks)))


def cores_of_job(environ: Mapping[str, str] = os.environ) -> int:
    """Return the number of cores of this batch job on all its nodes; outside of one, those of this process."""
    on_nodes = cores_of_nodes(environ)
    here = count_cores([available_cores(environ)])
    return here if len(on_nodes) < 2 else sum(on_nodes)


def core_shares(ranks: Sequence[Cores], resting: Collection[int] = ()) -> list[float]:
    """Return the share of cores of each rank of a node, given the available cores of all its ranks.

    A core that several ranks may use counts for each of them in equal parts; a limit scales all of them down. A rank
    that is idle most of the time takes no share from the others, but shares the cores that it uses with them.

    Args:
      ranks: available cores of each rank.
      resting: indices of the ranks that are idle most of the time.
    """
    users = Counter(core for place, rank in enumerate(ranks) if place not in resting for core in rank.allowed)
    everything = frozenset().union(*(rank.allowed for rank in ranks))
    scale = min(1.0, min(rank.limit for rank in ranks) / len(everything))
    return [
        scale * sum(1 / (users[core] + (place in resting)) for core in rank.allowed) for place, rank in enumerate(ranks)
    ]


@contextmanager
def pinned_to(core: int | None) -> Iterator[None]:
    """Pin this thread, and the threads that it starts, to one core for a while; None leaves it to the kernel."""
    if core is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def threads_in(share: float) -> int:
    """Return the number of threads that fit into a share, at least one."""
    return max(1, int(share + 1e-6))  # three thirds of a core are one


def _quota(groups: Path) -> float:
    """Return the smallest quota, in cores, of this process's control group and of its ancestors."""
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        return float("inf")
    smallest = float("inf")
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":  # version 2
            smallest = min([smallest, *(_read(place / "cpu.max") for place in _upwards(groups, path))])
        elif "cpu" in controllers.split(","):  # version 1
            names = "cpu.cfs_quota_us", "cpu.cfs_period_us"
            places = _upwards(groups / "cpu", path)
            smallest = min([smallest, *(_read(*(place / name for name in names)) for place in places)])
    return smallest


def _upwards(root: Path, path: str) -> list[Path]:
    below = root / path.lstrip("/")
    return [below, *(place for place in below.parents if place.is_relative_to(root))]


def _read(*files: Path) -> float:
    """Return quota / period from the words in some files; infinite if they are missing or contain no limit."""
    try:
        quota, period = " ".join(file.read_text(encoding="ascii") for file in files).split()
        return int(quota) / int(period) if int(quota) > 0 else float("inf")
    except (OSError, ValueError, ZeroDivisionError):  # "max 100000", or a group that is not visible in a container
        return float("inf")
