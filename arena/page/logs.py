"""The logs of a run, read piece by piece from their ends."""

from pathlib import Path
from typing import Any

from arena.records.run_directory import RunDirectory

PIECE = 128_000
"""Bytes of one answer."""

MAX_FILES = 5_000
"""Files that are listed."""


def read_log(run: RunDirectory, name: str, start: int | None, before: int | None) -> dict[str, Any]:
    """Return a piece of a log as JSON values.

    Args:
      run: the run directory.
      name: name of the file; the run's own log if it is empty.
      start: byte from which the piece begins, the end of the last one; None for the newest piece.
      before: byte before which the piece ends, for an earlier one.

    Returns:
      ``files``: (name, bytes) of all logs; ``name``; ``text``, whole lines; ``start`` and ``end``, its bytes.

    Raises:
      LookupError: there is no such log.
    """
    files = _files(run)
    name = name or (run.arena_log.name if run.arena_log.name in files else next(iter(files), ""))
    if not files:
        return {"files": [], "name": "", "text": "", "start": 0, "end": 0}
    if name not in files:  # a name is one of these, and no path
        raise LookupError(f"there is no log {name!r}; there are: {', '.join(list(files)[:20])}")
    path = files[name]
    size = path.stat().st_size
    if start is not None and start <= size:
        first, last = start, min(size, start + PIECE)
    else:
        last = size if before is None else min(before, size)
        first = max(0, last - PIECE)
    with open(path, "rb") as file:
        file.seek(first)
        data = file.read(last - first)
    if start is None and first > 0:  # from the beginning of a line
        skipped = data.find(b"\n") + 1
        first, data = first + skipped, data[skipped:]
    if (complete := data.rfind(b"\n") + 1) and first + len(data) == size:
        data = data[:complete]  # the last line is being written
    listed = [[each, file.stat().st_size] for each, file in files.items()]
    return {
        "files": listed,
        "name": name,
        "text": data.decode("utf-8", "replace"),
        "start": first,
        "end": first + len(data),
    }


def _files(run: RunDirectory) -> dict[str, Path]:
    """Return the logs by name: the run's own first, then those of the ranks."""
    try:
        found = sorted(path for path in run.log.iterdir() if path.suffix in (".log", ".out", ".txt") and path.is_file())
    except OSError:
        return {}
    found.sort(key=lambda path: path != run.arena_log)
    return {path.name: path for path in found[:MAX_FILES] if not path.is_symlink()}
