"""Curves of a run, read from its records little by little: each row once, however long the run is."""

import secrets
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from arena.page.matches import MatchCounts
from arena.page.series.backlog import Backlog
from arena.page.series.buckets import COUNT, TIME, TOTAL, UPDATES, Buckets, limit_for
from arena.page.series.pairs import Pairs
from arena.records.readers.run import NO_FAULT, superseded_steps

RETURN, LENGTH, WINS = "return", "length", "win rate"
"""Curves of episodes."""

OF_EPISODES = (RETURN, LENGTH, WINS)

MAX_PENDING = 2_000_000
"""Values that wait in memory for their curves, some 100 MB: adding many together costs little more than adding few."""

_EPISODES = f"""
    SELECT player, id, attempt, steps, ended_at, return, episodes.length,
        CASE outcome WHEN 'win' THEN 1.0 WHEN 'draw' THEN 0.5 WHEN 'loss' THEN 0.0 ELSE -1.0 - CAST(outcome AS REAL) END
    FROM episodes JOIN episode_entities ON id = episode WHERE id > ? AND id <= ? AND {NO_FAULT}
"""
_METRICS = """
    SELECT player, rowid, attempt, steps, time, value, updates, name FROM metrics WHERE rowid > ? AND rowid <= ?
"""
ID, ATTEMPT, STEPS, AT, VALUE, SECOND, THIRD = range(7)
"""Columns of both queries after the player. Of episodes the last three are return, length and outcome: a rank, of which
the lower one wins, is -1 - rank. Of metrics they are value and updates."""


class State(NamedTuple):
    """All that has been read of a run, for a file.

    Attributes:
      attempts: the attempts of the run.
      backlogs: table -> number of the last known row, and the ranges that have not been read.
      series: the curves.
      pairs: games of each two players.
      matches: episodes of each match.
    """

    attempts: list[list[Any]]
    backlogs: dict[str, tuple[int, list[tuple[int, int]]]]
    series: dict[tuple[str, str], Buckets]
    pairs: Pairs
    matches: MatchCounts


class Curves:
    """Curves of all players of a run.

    Attributes:
      generation: a random word, another one when the reading starts over: after a resume, and in each process.
      stamp: number of the last change; buckets are marked with it.
      pairs: games of each two players.
      matches: episodes of each match.
    """

    def __init__(self) -> None:
        """Start before the first row."""
        self.generation = secrets.token_hex(4)
        self.stamp = 0
        self.pairs = Pairs()
        self.matches = MatchCounts()
        self._attempts: list[list[Any]] | None = None
        self._superseded: dict[tuple[int, str], int] = {}
        self._learns: dict[str, bool] = {}
        self._backlogs: dict[str, Backlog] = {}
        self._series: dict[tuple[str, str], Buckets] = {}
        self._names: dict[str, list[str]] = {}  # of the curves of each player
        # (player, name of the metric or None for episodes) -> arrays [M, columns] that are in no curve yet
        self._pending: dict[tuple[str, str | None], list[np.ndarray]] = {}
        self._waiting = 0

    @property
    def progress(self) -> float:
        """Fraction of the rows that have been read; 0 before the first reading."""
        total = sum(backlog.end for backlog in self._backlogs.values())
        left = sum(backlog.rows() for backlog in self._backlogs.values())
        return 1 - left / total if total else float(self._attempts is not None)

    @property
    def rows(self) -> int:
        """Number of rows that have been read."""
        return sum(backlog.end - backlog.rows() for backlog in self._backlogs.values())

    def state(self) -> State:
        """Return all that has been read."""
        self._add_pending()
        backlogs = {table: (backlog.end, backlog.ranges()) for table, backlog in self._backlogs.items()}
        return State(self._attempts or [], backlogs, self._series, self.pairs, self.matches)

    def restore(self, state: State) -> None:
        """Continue from a result of ``state``; what is not of this run is dropped by the next ``update``."""
        self._attempts = state.attempts
        self._backlogs = {table: Backlog(end, ranges) for table, (end, ranges) in state.backlogs.items()}
        self._series, self.pairs, self.matches = dict(state.series), state.pairs, state.matches
        self._names = {}
        for player, name in self._series:
            self._names.setdefault(player, []).append(name)

    # Reading the records ------------------------------------------------------------------------------------------

    def update(self, connection: sqlite3.Connection) -> bool:
        """Read the next rows; return whether there are more.

        Resumed runs play steps again: the rows that they supersede are skipped, which those read before a resume were
        not. So each new attempt is a new generation.
        """
        query = "SELECT attempt, started, resumed FROM runs ORDER BY attempt"
        attempts = [list(row) for row in connection.execute(query).fetchall()]
        (players,) = connection.execute("SELECT count(*) FROM players").fetchone()
        if attempts != self._attempts or players != len(self._learns):
            learning = connection.execute("SELECT player, learns FROM players").fetchall()
            self._learns = {name: bool(learns) for name, learns in learning}
        ends = {}
        for table, column in (("episodes", "id"), ("metrics", "rowid")):
            (ends[table],) = connection.execute(f"SELECT coalesce(max({column}), 0) FROM {table}").fetchone()
        if attempts != self._attempts or any(ends[table] < self._backlogs[table].end for table in ends):
            self.generation = secrets.token_hex(4)
            self._attempts, self._backlogs = attempts, {table: Backlog() for table in ends}
            self._series, self._names, self._pending, self._waiting = {}, {}, {}, 0
            self.pairs, self.matches = Pairs(), MatchCounts()
        if not self._superseded or not self.rows:
            self._superseded = superseded_steps(connection)
        for table, end in ends.items():
            self._backlogs[table].extend(end)
        for table, read in (("episodes", self._read_episodes), ("metrics", self._read_metrics)):
            if (rows := self._backlogs[table].pop()) is not None:
                read(connection, rows)
        if self._waiting > MAX_PENDING:
            self._add_pending()
        return any(backlog.rows() for backlog in self._backlogs.values())

    def _read_episodes(self, connection: sqlite3.Connection, rows: tuple[int, int]) -> None:
        self.matches.add(connection, rows)
        found = connection.execute(_EPISODES, rows).fetchall()
        if not found:
            return
        players, *columns = zip(*found, strict=True)
        table = np.array(columns, np.float64).T
        names, player, table = self._wait(list(players), [None], table, merge=True)
        if len(names) > 1:
            self.pairs.add(names, player, table[:, ID], table[:, AT], table[:, THIRD], table[:, VALUE])

    def _read_metrics(self, connection: sqlite3.Connection, rows: tuple[int, int]) -> None:
        found = connection.execute(_METRICS, rows).fetchall()
        if not found:
            return
        players, *columns, metrics = zip(*found, strict=True)
        self._wait(list(players), list(metrics), np.array(columns, np.float64).T)

    def _wait(
        self, players: list[str], metrics: Sequence[str | None], table: np.ndarray, *, merge: bool = False
    ) -> tuple[list[str], np.ndarray, np.ndarray]:
        """Keep rows for their curves; return the names of players, and the kept rows, each with its player's place.

        Args:
          players: the player of each row.
          metrics: the metric of each row, or one None for all.
          table: ``[M, columns]``.
          merge: whether rows of a player with the same number become one, their mean.
        """
        owners, player = _numbered(players)
        names, name = _numbered(metrics) if len(metrics) == len(players) else ([None], np.zeros(len(players), int))
        key = player * len(names) + name
        if self._superseded:
            pairs = zip(table[:, ATTEMPT].astype(int).tolist(), players, strict=True)
            kept = table[:, STEPS] <= np.array([self._superseded.get(pair, np.inf) for pair in pairs])
            key, table = key[kept], table[kept]
        order = np.lexsort((table[:, ID], key))
        key, table = key[order], table[order]
        if merge:
            key, table = _merged(key, table)
        starts = np.flatnonzero(np.diff(key, prepend=-1))
        for start, part in zip(starts, np.split(table, starts[1:]), strict=bool(len(starts))):
            owner, metric = divmod(int(key[start]), len(names))
            self._pending.setdefault((owners[owner], names[metric]), []).append(part)
        self._waiting += len(table)
        return owners, key // len(names), table

    # The curves ---------------------------------------------------------------------------------------------------

    def _add_pending(self, players: Sequence[str] | None = None) -> None:
        """Add what waits to its curves: that of some players, or all."""
        chosen = [key for key in self._pending if players is None or key[0] in players]
        self.stamp += bool(chosen)
        for player, metric in chosen:
            table = np.concatenate(self._pending.pop((player, metric)))
            self._waiting -= len(table)
            if metric is None:
                table[table[:, THIRD] < 0, THIRD] = np.nan
                for name, column in zip(OF_EPISODES, (VALUE, SECOND, THIRD), strict=True):
                    if np.isfinite(table[:, column]).any():
                        buckets = self._buckets(player, name)
                        buckets.add(table[:, STEPS], table[:, column], table[:, AT], keys=table[:, ID])
            else:
                self._buckets(player, metric).add(table[:, STEPS], table[:, VALUE], table[:, AT], table[:, SECOND])

    def _buckets(self, player: str, name: str) -> Buckets:
        if (player, name) not in self._series:
            limit = limit_for(sum(self._learns.values()) if self._learns.get(player) else len(self._learns))
            self._series[player, name] = Buckets(limit, quantiles=name in (RETURN, LENGTH))
            self._names.setdefault(player, []).append(name)
        buckets = self._series[player, name]
        buckets.stamp = self.stamp
        return buckets

    def of(self, player: str, name: str) -> Buckets | None:
        """Return a curve; None if it has no value."""
        self._add_pending([player])
        return self._series.get((player, name))

    def changes(self, players: Sequence[str], since: int = -1) -> Iterator[dict[str, Any]]:
        """Yield the buckets that have changed after a stamp, as JSON values with arrays ``[M]``.

        Args:
          players: names of players.
          since: ``stamp`` after the previous call in this generation; -1 for all buckets.

        Yields:
          ``player``, ``name``, ``width``, ``index``, ``steps`` (middle of the bucket), ``time`` (Unix time),
          ``updates`` (NaN where unknown), ``count``, ``mean``, and ``low`` and ``high`` where there are quantiles.
        """
        self._add_pending(players)
        for player, name in [(each, name) for each in players for name in self._names.get(each, ())]:
            buckets = self._series[player, name]
            chosen = np.flatnonzero(buckets.changed > since)
            if not len(chosen):
                continue
            steps, columns = buckets.steps()[chosen], buckets.columns[chosen]
            counts = columns[:, COUNT]
            entry = {
                "player": player,
                "name": name,
                "width": buckets.width,
                "index": buckets.index[chosen].astype(np.float64),
                "steps": steps,
                "time": columns[:, TIME] / counts,
                "updates": self._updates_at(player, steps) if name in OF_EPISODES else columns[:, UPDATES] / counts,
                "count": counts,
                "mean": (columns[:, TOTAL] / counts).astype(np.float32),
            }
            if name in (RETURN, LENGTH):
                entry["low"], entry["high"] = buckets.bands(chosen).astype(np.float32).T.copy()
            yield entry

    def _updates_at(self, player: str, steps: np.ndarray) -> np.ndarray:
        """Return a player's number of updates at some of its steps, from its metrics; NaN without any."""
        for name in self._names.get(player, ()):
            if name not in OF_EPISODES:
                buckets = self._series[player, name]
                return np.interp(steps, buckets.steps(), buckets.means(UPDATES), left=0.0)
        return np.full(len(steps), np.nan)


def _numbered(values: Sequence[Any]) -> tuple[list[Any], np.ndarray]:
    """Return the different values, and for each value its place among them."""
    places: dict[Any, int] = {}
    numbers = np.array([places.setdefault(value, len(places)) for value in values])
    return list(places), numbers


def _merged(key: np.ndarray, table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return rows, sorted by key and ID, with the mean of those that have both in common: entities of one player."""
    is_first = np.ones(len(key), bool)
    is_first[1:] = (np.diff(key) != 0) | (np.diff(table[:, ID]) != 0)
    starts = np.flatnonzero(is_first)
    if len(starts) == len(key):
        return key, table
    merged = table[starts]
    merged[:, STEPS] = np.maximum.reduceat(table[:, STEPS], starts)
    for column in range(VALUE, table.shape[1]):
        values = table[:, column]
        known = np.isfinite(values)
        total, count = (np.add.reduceat(part, starts) for part in (np.where(known, values, 0.0), known.astype(float)))
        with np.errstate(invalid="ignore", divide="ignore"):
            merged[:, column] = total / count
    return key[starts], merged
