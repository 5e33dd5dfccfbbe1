"""The state of a running run as a file, written by the root for the process that has started it."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from arena.records.player_statistics import PlayerInfo, PlayerStatistics
from arena.report.progress_table import ProgressState

WRITE_EVERY = 0.5
"""Seconds between two states."""

_COUNTS = (
    "name",
    "seconds",
    "round",
    "rounds",
    "matches",
    "environment_steps",
    "environment_steps_per_second",
    "faults",
)


def write_progress(path: Path, state: ProgressState) -> None:
    """Write the state of a run; a failing disk costs the view of it, not the run."""
    players = {name: {"info": player.info, "state": player.state()} for name, player in state.players.items()}
    text = json.dumps({**{name: getattr(state, name) for name in _COUNTS}, "players": players})
    temporary = path.with_name(f".{path.name}.tmp")  # not synchronised with the disk: it is outdated in a moment
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)


class ProgressReader:
    """Reads the states that ``write_progress`` has written, and measures the players' speeds from one to the next."""

    def __init__(self, path: Path) -> None:
        """Read what is written to ``path`` from now on."""
        self._path = path
        self._seen = path.stat().st_mtime_ns if path.is_file() else 0  # of an earlier attempt
        self._players: dict[str, PlayerStatistics] = {}

    def read(self) -> ProgressState | None:
        """Return the newest state; None if there is none since the last call."""
        try:
            written = self._path.stat().st_mtime_ns
            if written == self._seen:
                return None
            data: Mapping[str, Any] = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        self._seen, now = written, time.monotonic()
        for name, player in data["players"].items():
            statistics = self._players.setdefault(name, PlayerStatistics(PlayerInfo(*player["info"])))
            statistics.restore(player["state"])
            statistics.read_speed(now)
        return ProgressState(**{name: data[name] for name in _COUNTS}, players=self._players, now=now)
