"""Points of a run's curves in a fixed order, each once: also over kills and resumes.

A point is read when a checkpoint covers it. A resumed run continues from a checkpoint, so that it never replays what
has been read, and what it does replay has not been read.
"""

import math
import sqlite3
from collections.abc import Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from arena.records.checkpoints import Checkpoints
from arena.records.readers.run import NO_FAULT, open_records, superseded_steps
from arena.records.run_directory import RunDirectory

BINS = 500
"""Number of points of a curve of episode returns over a player's budget."""

BIN = 10_000
"""Transition steps of such a point, for a player without a budget."""

ROWS = 5000
"""Rows that are read at a time."""


class Point(NamedTuple):
    """Values of a player at one time.

    Attributes:
      player: name of the player.
      steps: its transition steps.
      time: Unix time.
      values: name of the curve, such as ``loss/policy``, ``eval/return`` or ``return`` -> value; all are finite.
    """

    player: str
    steps: int
    time: float
    values: dict[str, float]


class Coverage(NamedTuple):
    """Steps that are covered by a checkpoint, and those that were replayed.

    Attributes:
      covered: player -> steps up to which its records are final.
      superseded: (attempt, player) -> steps from which another attempt has continued.
      is_complete: whether the run has spent its budget, so that all its records are final.
    """

    covered: Mapping[str, int]
    superseded: Mapping[tuple[int, str], int]
    is_complete: bool

    def is_replayed(self, attempt: int, player: str, steps: int) -> bool:
        """Return whether another attempt has replayed these steps."""
        return steps > self.superseded.get((attempt, player), steps)

    def is_final(self, player: str, steps: int) -> bool:
        """Return whether no resume will replay these steps."""
        return self.is_complete or steps <= self.covered.get(player, -1)


class Points:
    """Reader of a run's points; its state is stored between two processes.

    Attributes:
      state: JSON values: the last rows that were read, and sums of episodes without a point.
    """

    def __init__(self, run: RunDirectory, state: Mapping[str, Any] | None = None) -> None:
        """Continue from a state, or begin."""
        self._run = run
        self.state: dict[str, Any] = {"metrics": 0, "evaluations": 0, "episodes": 0, "bins": {}, **(state or {})}

    def read(self) -> Iterator[list[Point]]:
        """Yield new points that are final, those of one update or episode together; ``state`` is behind them then.

        Raises:
          ConfigError: the records cannot be read.
        """
        # The checkpoint first: records of its steps are written before it.
        manifest = Checkpoints(self._run.checkpoints).newest_manifest() or {}
        with open_records(self._run.database) as connection:
            last = connection.execute("SELECT exit FROM runs ORDER BY attempt DESC LIMIT 1").fetchone()
            budgets = dict(connection.execute("SELECT player, budget FROM players").fetchall())
            is_complete = bool(manifest.get("finished")) and last is not None and last[0] == 0
            coverage = Coverage(manifest.get("steps", {}), superseded_steps(connection), is_complete)
            yield from self._metrics(connection, coverage)
            yield from self._evaluations(connection, coverage)
            yield from self._episodes(connection, coverage, budgets)

    def _metrics(self, connection: sqlite3.Connection, coverage: Coverage) -> Iterator[list[Point]]:
        query = (
            "SELECT rowid, attempt, player, steps, time, name, value FROM metrics WHERE rowid > ? "
            f"ORDER BY rowid LIMIT {ROWS}"
        )
        point: Point | None = None
        while rows := connection.execute(query, (self.state["metrics"],)).fetchall():
            for row, attempt, player, steps, at, name, value in rows:
                if point is not None and (player, steps, at) != point[:3]:
                    yield [point]
                    point = None
                is_replayed = coverage.is_replayed(attempt, player, steps)
                if not is_replayed and not coverage.is_final(player, steps):
                    return
                self.state["metrics"] = row
                if not is_replayed and value is not None and math.isfinite(value):
                    point = point or Point(player, steps, at, {})
                    point.values[name] = value
        if point is not None:
            yield [point]

    def _evaluations(self, connection: sqlite3.Connection, coverage: Coverage) -> Iterator[list[Point]]:
        columns = "rowid, attempt, player, steps, time, mean, deviation"
        query = f"SELECT {columns} FROM evaluations WHERE rowid > ? ORDER BY rowid"
        rows = connection.execute(query, (self.state["evaluations"],)).fetchall()
        for row, attempt, player, steps, at, mean, deviation in rows:
            is_replayed = coverage.is_replayed(attempt, player, steps)
            if not is_replayed and not coverage.is_final(player, steps):
                return
            self.state["evaluations"] = row
            if not is_replayed:
                yield [Point(player, steps, at, {"eval/return": mean, "eval/deviation": deviation})]

    def _episodes(
        self, connection: sqlite3.Connection, coverage: Coverage, budgets: Mapping[str, int | None]
    ) -> Iterator[list[Point]]:
        """Yield the means of episodes in parts of equal length in steps."""
        query = (
            "SELECT episode, attempt, player, steps, ended_at, avg(return), avg(episode_entities.length) "
            f"FROM episode_entities JOIN episodes ON episodes.id = episode WHERE {NO_FAULT} AND episode > ? "
            "AND episode <= ? GROUP BY episode, player ORDER BY episode, player"
        )
        (last,) = connection.execute("SELECT coalesce(max(id), 0) FROM episodes").fetchone()
        while self.state["episodes"] < last:
            end = min(self.state["episodes"] + ROWS, last)
            rows = connection.execute(query, (self.state["episodes"], end)).fetchall()
            for episode, players in groupby(rows, key=itemgetter(0)):
                kept = [row[2:] for row in players if not coverage.is_replayed(*row[1:4])]
                if not all(coverage.is_final(player, steps) for player, steps, *_ in kept):
                    return
                points = [point for row in kept for point in self._add(*row, budget=budgets.get(row[0]))]
                self.state["episodes"] = episode
                if points:
                    yield points
            self.state["episodes"] = end
        if coverage.is_complete and self.state["bins"]:
            bins, self.state["bins"] = self.state["bins"], {}
            yield [_point_of(player, sums) for player, sums in bins.items()]

    def _add(
        self, player: str, steps: int, at: float, total: float, length: float, *, budget: int | None
    ) -> Iterator[Point]:
        """Add an episode to its part; yield the point of the part before it, if that is over."""
        bins: dict[str, list[Any]] = self.state["bins"]
        number = steps // math.ceil((budget or BIN * BINS) / BINS)
        if player in bins and number > bins[player][0]:
            yield _point_of(player, bins.pop(player))
        own = bins.setdefault(player, [number, 0, at, 0.0, 0.0, 0])
        own[1:] = [max(own[1], steps), at, own[3] + total, own[4] + length, own[5] + 1]


def _point_of(player: str, sums: list[Any]) -> Point:
    """Return the point of a bin: its number, steps, time, sums of returns and lengths, and number of episodes."""
    _, steps, at, total, length, count = sums
    return Point(player, steps, at, {"return": total / count, "length": length / count})
