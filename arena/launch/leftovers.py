"""The files in shared memory that Open MPI's ranks leave behind where nobody is left to remove them."""

import contextlib
import os
import time
from pathlib import Path

PLACE = Path("/dev/shm")
NAMES = "sm_segment.*"

PATIENCE = 15.0
"""Seconds that ranks have to end with their mpirun: on busy cores they take 5."""


def segments() -> set[Path]:
    """Return those of this user."""
    found = set()
    for path in PLACE.glob(NAMES) if PLACE.is_dir() else ():
        with contextlib.suppress(OSError):
            if path.stat().st_uid == os.geteuid():
                found.add(path)
    return found


def in_use() -> set[Path]:
    """Return those that a process has mapped."""
    found = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            for line in maps.read_text(errors="replace").splitlines():
                if f"{PLACE}/sm_segment." in line:
                    found.add(Path(line[line.index(str(PLACE)) :].removesuffix(" (deleted)")))
    return found


def remove_since(before: set[Path]) -> None:
    """Remove what has come since ``before`` and nobody uses, once the ranks that an mpirun has left are gone."""
    mine = {path for path in segments() - before if path.stat().st_mtime < time.time()}
    until = time.monotonic() + PATIENCE
    time.sleep(0.2)  # another job's segment is mapped as soon as it is made
    while mine & in_use() and time.monotonic() < until:
        time.sleep(0.1)
    for path in mine - in_use():
        path.unlink(missing_ok=True)
