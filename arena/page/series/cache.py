"""Curves that have been read, in a file of the user's cache: a long run is read once, not at each start of a page.

The run directory stays as it is. A file that is damaged, or of another version, is as good as none.
"""

import hashlib
import json
import os
import tempfile
import time
import zipfile
from pathlib import Path

import numpy as np

from arena.page.matches import MatchCounts
from arena.page.series.buckets import Buckets
from arena.page.series.curves import Curves, State
from arena.page.series.pairs import Pairs

VERSION = 3
"""Version of the files."""

WORTHWHILE = 200_000
"""Rows that must have been read since the last file: fewer are read again in two seconds."""

KEPT = 30 * 86_400
"""Seconds after which an unused file is removed."""


class CurveCache:
    """The file of one run's curves."""

    def __init__(self, records: Path) -> None:
        """Find the file for these records; nothing is read yet."""
        name = hashlib.sha256(os.fsencode(records.resolve())).hexdigest()[:24]
        self._path = folder() / f"{name}.npz"
        self._rows = 0

    def load(self, curves: Curves) -> None:
        """Continue ``curves`` from the file, if there is one."""
        try:
            with np.load(self._path, allow_pickle=False) as file:
                state = _state(file)
            os.utime(self._path)
        except (OSError, ValueError, LookupError, TypeError, zipfile.BadZipFile):
            return
        curves.restore(state)
        self._rows = curves.rows

    def save(self, curves: Curves) -> None:
        """Write the file, if enough rows have been read since the last time; a full disk is no reason to stop."""
        if curves.rows - self._rows < WORTHWHILE:
            return
        self._rows = curves.rows
        partial = None
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            _remove_old(self._path.parent)
            with tempfile.NamedTemporaryFile(dir=self._path.parent, suffix=".part", delete=False) as file:
                partial = Path(file.name)
                np.savez(file, allow_pickle=False, **_arrays(curves.state()))
            partial.replace(self._path)
        except OSError:
            if partial is not None:
                partial.unlink(missing_ok=True)


def folder() -> Path:
    """Return the folder of the files: below ``$XDG_CACHE_HOME``, or ``~/.cache``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "arena" / "page"


def _remove_old(files: Path) -> None:
    for path in [*files.glob("*.npz"), *files.glob("*.part")]:
        if time.time() - path.stat().st_mtime > KEPT:
            path.unlink(missing_ok=True)


def _arrays(state: State) -> dict[str, np.ndarray]:
    """Return a state as few arrays: those of all curves one after the other."""
    parts = [buckets.state() for buckets in state.series.values()]
    games, arrays = state.pairs.state()
    text = {
        "version": VERSION,
        "attempts": state.attempts,
        "backlogs": state.backlogs,
        "series": list(state.series),
        "games": games,
        "matches": state.matches.state(),
    }
    arrays |= {"text": np.frombuffer(json.dumps(text).encode(), np.uint8)}
    for name in parts[0] if parts else ():
        arrays[name] = np.concatenate([part[name] for part in parts])
        arrays[f"{name} of"] = np.array([len(part[name]) for part in parts])
    return arrays


def _state(file: np.lib.npyio.NpzFile) -> State:
    """Return the state of arrays.

    Raises:
      ValueError, LookupError: it is of another version.
    """
    text = json.loads(file["text"].tobytes())
    if text["version"] != VERSION:
        raise ValueError(text["version"])
    split = {
        name: np.split(file[name], np.cumsum(file[f"{name} of"])[:-1])
        for name in ("shape", "index", "columns", "sizes", "samples")
        if text["series"]
    }
    series = {
        (player, name): Buckets.restored({part: split[part][at] for part in split})
        for at, (player, name) in enumerate(text["series"])
    }
    backlogs = {table: (end, [tuple(rows) for rows in ranges]) for table, (end, ranges) in text["backlogs"].items()}
    pairs = Pairs.restored(text["games"], {name: file[name] for name in ("keys", "sums")})
    return State(text["attempts"], backlogs, series, pairs, MatchCounts(text["matches"]))
