"""Checks of the run root: whether it is writable, its speed, and whether every machine sees the same files."""

import contextlib
import os
import shutil
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_BLOCK, _BLOCKS, _COMMITS = 1 << 20, 32, 15
SEEN_WITHIN = 10.0
"""Seconds that a network file system may take to show a new file elsewhere."""


class Storage(NamedTuple):
    """Measurements of the run root.

    Attributes:
      kind: kind of the file system, as named by the kernel.
      free: free bytes.
      speed: bytes per second, until they are on the disk.
      commit: median seconds to write, sync and rename a small file.
      records: median seconds of an SQLite transaction.
    """

    kind: str
    free: int
    speed: float
    commit: float
    records: float


@contextlib.contextmanager
def trial_folder(root: Path) -> Iterator[Path]:
    """Create a folder in the run root, and the run root if needed; leave nothing behind.

    Raises:
      OSError: it cannot be created.
    """
    root = root.absolute()
    missing = [path for path in (root, *root.parents) if not path.exists()]
    root.mkdir(parents=True, exist_ok=True)
    try:
        folder = tempfile.mkdtemp(prefix=".doctor-", dir=root)
        try:
            yield Path(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        for path in missing:
            with contextlib.suppress(OSError):  # another process has begun to use it
                path.rmdir()


def measure(folder: Path) -> Storage:
    """Measure writing, syncing and renaming in this folder.

    Raises:
      OSError, sqlite3.Error: one of them is not possible.
    """
    block = os.urandom(_BLOCK)
    began = time.perf_counter()
    with open(folder / "large", "wb") as file:
        file.writelines(block for _ in range(_BLOCKS))
        file.flush()
        os.fsync(file.fileno())
    speed = _BLOCK * _BLOCKS / (time.perf_counter() - began)
    commits = [_timed_commit(folder, block[:4096]) for _ in range(_COMMITS)]
    return Storage(kind_of(folder), shutil.disk_usage(folder).free, speed, statistics.median(commits), _records(folder))


def _timed_commit(folder: Path, content: bytes) -> float:
    began = time.perf_counter()
    with open(folder / "small.new", "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(folder / "small.new", folder / "small")
    return time.perf_counter() - began


def _records(folder: Path) -> float:
    """Return the seconds of a transaction with the journal mode of the records."""
    times = []
    with contextlib.closing(sqlite3.connect(folder / "records.sqlite", timeout=5, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = TRUNCATE")
        connection.execute("CREATE TABLE numbers (number INTEGER)")
        for number in range(_COMMITS):
            began = time.perf_counter()
            connection.execute("INSERT INTO numbers VALUES (?)", (number,))
            times.append(time.perf_counter() - began)
    return statistics.median(times)


def kind_of(path: Path) -> str:
    """Return the kind of file system that holds this path: ext4, nfs4, lustre, ..."""
    best, kind = "", "unknown"
    with contextlib.suppress(OSError):
        for line in Path("/proc/mounts").read_text().splitlines():
            _, mounted, file_system, *_ = line.split()
            mounted = mounted.replace("\\040", " ")
            if path.resolve().is_relative_to(mounted) and len(mounted) >= len(best):
                best, kind = mounted, file_system
    return kind


def appears(file: Path) -> bool:
    """Return whether a file of another machine becomes visible here in time."""
    until = time.monotonic() + SEEN_WITHIN
    while time.monotonic() < until:
        with contextlib.suppress(OSError):
            os.listdir(file.parent)  # makes a network file system refresh the folder
        if file.exists():
            return True
        time.sleep(0.2)
    return False
