"""Limits of this process's control groups: memory and CPU time."""

import os
from collections.abc import Iterator
from pathlib import Path

MEMBERSHIP = Path("/proc/self/cgroup")
CGROUPS = Path("/sys/fs/cgroup")

UNLIMITED = 1 << 60
"""Bytes from which a limit counts as none: version 1 has no word for that."""


def _control_groups(controller: str) -> Iterator[Path]:
    """Yield the directories of this process's control group and of its ancestors, of either version."""
    for line in MEMBERSHIP.read_text().splitlines():
        _, controllers, place = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        # Inside a container the path is that of the host, of which only the root is visible.
        root = CGROUPS / controllers if controllers else CGROUPS
        group = root / place.strip("/")
        yield from (path for path in (group, *group.parents) if path.is_relative_to(root) and path.is_dir())


def _numbers(path: Path) -> list[int]:
    """Return the numbers in a file; an empty list if it is missing or contains max."""
    try:
        return [int(word) for word in path.read_text().split() if word.lstrip("-").isdecimal()]
    except OSError:
        return []


def cpu_quota() -> float | None:
    """Return the smallest CPU quota of the control groups in cores, or None."""
    quotas = []
    for group in _control_groups("cpu"):
        quota = _numbers(group / "cpu.max")  # version 2: quota and period, or "max" and period
        if len(quota) != 2:
            quota = _numbers(group / "cpu.cfs_quota_us") + _numbers(group / "cpu.cfs_period_us")
        if len(quota) == 2 and quota[0] > 0:
            quotas.append(quota[0] / quota[1])
    return min(quotas, default=None)


def memory_limit() -> tuple[int | None, int]:
    """Return (bytes that the tightest control group allows or None, bytes that it uses)."""
    limits = []
    for group in _control_groups("memory"):
        for limit, used in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
            allowed, used_bytes = _numbers(group / limit), _numbers(group / used)
            if allowed and used_bytes and allowed[0] < UNLIMITED:
                limits.append((allowed[0], used_bytes[0]))
    return min(limits, default=(None, 0))


def memory_for_job() -> int:
    """Return the bytes that a job may use on this machine: the least of its memory and its limits."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    limit, _ = memory_limit()
    if limit is not None:
        limits.append(limit)
    granted = os.environ.get("SLURM_MEM_PER_NODE", "")
    if granted.isdecimal() and int(granted):
        limits.append(int(granted) << 20)
    return min(limits)
