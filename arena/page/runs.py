"""The runs that a page shows, and the state of each: going on, finished, stopped, failed or lost."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from arena.common.errors import ConfigError
from arena.page.series.curves import RETURN
from arena.page.source import Source
from arena.records.checkpoints import Checkpoints
from arena.records.lease import EXPIRES, Holder, holder_of
from arena.records.readers.run import Attempt
from arena.records.run_directory import RunDirectory
from arena.report.run_groups import runs_at, runs_below

RECENT = 500
"""Episodes from which the current steps and speed are computed."""

SPARKLINE = 64
"""Points of the small curve beside a run."""

SPARKLINES = 3
"""Players with a small curve: the first ones that learn."""


class Catalogue:
    """The run directories of a page, by name; those below a root are looked up again each time."""

    def __init__(self, paths: Sequence[Path], root: Path | None = None) -> None:
        """Find the runs.

        Args:
          paths: run directories, or directories of run directories.
          root: a directory of run directories that may still grow; None for none.

        Raises:
          ConfigError: a path is neither, or the root is no directory.
        """
        self._sources: dict[str, Source] = {}
        self._root = root
        for path in paths:
            for run in runs_at(path):
                self._add(run, path)
        if root is not None and not root.is_dir():
            raise ConfigError(f"--root: expected a directory of runs, found no directory {root}")

    def sources(self) -> dict[str, Source]:
        """Return the runs by name, those that came last at the end."""
        if self._root is not None:
            known = {source.run.path.resolve() for source in self._sources.values()}
            for run in runs_below(self._root):
                if run.path.resolve() not in known:
                    self._add(run, self._root)
        return self._sources

    def _add(self, run: RunDirectory, place: Path) -> None:
        """Add a run found at a place, or one or two levels below it: ``quickstart``, or ``sweep/seed-1``."""
        below = run.path.relative_to(place) if run.path.is_relative_to(place) else Path()
        own = below.as_posix() if below.parts else run.path.resolve().name
        name, number = own, 1
        while name in self._sources:
            number += 1
            name = f"{own} ({number})"
        self._sources[name] = Source(run)


class StateReader:
    """Determines the states of runs; it remembers when another machine last renewed its lease."""

    def __init__(self) -> None:
        """Start without any lease."""
        self._renewed: dict[Path, tuple[Holder, float]] = {}

    def is_running(self, run: RunDirectory) -> bool:
        """Return whether a run is being written: its rank 0 lives, or renewed its lease within ``EXPIRES`` seconds."""
        holder = holder_of(run.path)
        if holder is None or holder.is_here:
            self._renewed.pop(run.path, None)
            return holder is not None
        now = time.monotonic()
        last, since = self._renewed.setdefault(run.path, (holder, now))
        if last != holder:
            self._renewed[run.path], since = (holder, now), now
        return now - since < 2 * EXPIRES

    def state(self, run: RunDirectory, attempts: Sequence[Attempt], faults: Sequence[dict[str, Any]]) -> dict[str, str]:
        """Return the ``state`` of a run, and a ``reason`` in a sentence where it is not obvious.

        Args:
          run: the run directory.
          attempts: its attempts.
          faults: its newest faults, the oldest first.
        """
        if self.is_running(run):
            return {"state": "running", "reason": ""}
        if not attempts:
            return {"state": "not started", "reason": "no rank has written any record yet"}
        last = attempts[-1]
        if last.exit_code is None:
            return {
                "state": "lost",
                "reason": "the last attempt has ended without an exit code: it was killed, or its machine was lost",
            }
        if last.exit_code != 0:
            texts = [fault["what"].strip() for fault in faults if fault["attempt"] == last.number]
            reason = texts[-1].splitlines()[-1] if texts and texts[-1] else f"exit code {last.exit_code}; see the log"
            return {"state": "failed", "reason": reason}  # of a traceback, the line with the error
        if _is_finished(run):
            return {"state": "finished", "reason": ""}
        return {"state": "stopped", "reason": "stopped before its budget was spent; it can be resumed"}


def _is_finished(run: RunDirectory) -> bool:
    manifest = Checkpoints(run.checkpoints).newest_manifest()
    try:
        rounds = len(json.loads(run.plan.read_text("utf-8"))["rounds"])
        return manifest is not None and bool(manifest["finished"]) and manifest["round"] == rounds - 1
    except (OSError, ValueError, LookupError, TypeError):
        return False


def describe(name: str, source: Source, states: StateReader) -> dict[str, Any]:
    """Return the line of a run in the table of runs, as JSON values; ``error`` if its records cannot be read."""
    try:
        players, attempts, faults = source.players(), source.attempts(), source.faults()
        steps, speed = _steps_and_speed(source)
    except ConfigError as error:
        return {"name": name, "state": "unreadable", "reason": str(error), "players": [], "attempts": 0}
    manifest = Checkpoints(source.run.checkpoints).newest_manifest() or {}
    shown = []
    for player, info in players.items():
        taken = max(steps.get(player, 0), int(manifest.get("steps", {}).get(player, 0)))
        shown.append({"name": player, **info, "steps": taken})
    learning = [player["name"] for player in shown if player["learns"]] or list(players)
    state = states.state(source.run, attempts, faults)
    return {
        "name": name,
        **state,
        "started": attempts[0].started if attempts else None,
        "ended": attempts[-1].ended if attempts else None,
        "attempts": len(attempts),
        "ranks": attempts[-1].ranks if attempts else None,
        "host": attempts[-1].host if attempts else None,
        "players": shown,
        "speed": speed if state["state"] == "running" else _mean_speed(manifest),
        "faults": len(faults),
        "concerns": source.concerns(),
        "sparklines": {player: _sparkline(source, player) for player in learning[:SPARKLINES]},
        "progress": source.curves.progress,
    }


def _steps_and_speed(source: Source) -> tuple[dict[str, int], float | None]:
    """Return the transition steps of the players that played last, and the environment steps per second."""
    with source.records() as connection:
        (newest,) = connection.execute("SELECT coalesce(max(id), 0) FROM episodes").fetchone()
        query = "SELECT player, max(steps) FROM episode_entities WHERE episode > ? GROUP BY player"
        steps = dict(connection.execute(query, (newest - RECENT,)).fetchall())
        query = (
            "SELECT player, max(steps) FROM metrics WHERE rowid > (SELECT max(rowid) FROM metrics) - ? GROUP BY player"
        )
        for player, taken in connection.execute(query, (RECENT,)).fetchall():
            steps[player] = max(taken, steps.get(player, 0))
        query = "SELECT sum(length), max(ended_at) - min(ended_at) FROM episodes WHERE id > ?"
        total, seconds = connection.execute(query, (newest - RECENT,)).fetchone()
    return steps, total / seconds if total and seconds else None


def _mean_speed(manifest: dict[str, Any]) -> float | None:
    """Return the environment steps per second of a run up to its newest checkpoint."""
    statistics = manifest.get("statistics") or {}
    seconds = statistics.get("seconds")
    return statistics["environment_steps"] / seconds if seconds and "environment_steps" in statistics else None


def _sparkline(source: Source, player: str) -> list[float]:
    """Return a player's mean returns in at most ``SPARKLINE`` pieces of equally many buckets."""
    buckets = source.curves.of(player, RETURN)
    if buckets is None or not len(buckets):
        return []
    return [float(piece.mean()) for piece in np.array_split(buckets.means(), min(SPARKLINE, len(buckets)))]
