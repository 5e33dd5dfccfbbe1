"""Rows of what the ranks do, at intervals that grow with the run."""

from collections.abc import Iterable
from typing import NamedTuple

from arena.records.database import Database

INTERVAL = 10.0
"""Seconds between two measurements at first."""

MAX_SAMPLES = 500
"""Measurements of an attempt; when there are as many, every second one is removed, and the interval doubles."""


class RankRow(NamedTuple):
    """Activity of one rank in one interval.

    Attributes:
      rank, host, role, match, seat, player: its place in the plan of the round.
      environment, policy, learning, other, waiting: shares of its time; their sum is one.
      megabytes: resident memory of its process.
      steps_per_second: environment steps of its match; None for a rank without environment.
      waits_for: the event that it waits for at the end of the interval, if it has for longer than half a second.
    """

    rank: int
    host: str
    role: str
    match: int | None
    seat: int | None
    player: str | None
    environment: float
    policy: float
    learning: float
    other: float
    waiting: float
    megabytes: float
    steps_per_second: float | None
    waits_for: str | None


class RankRows:
    """Writer of the ranks' activity; only the root process has one.

    Attributes:
      interval: seconds between two measurements.
    """

    def __init__(self, database: Database, attempt: int) -> None:
        """Start an attempt."""
        self.interval = INTERVAL
        self._database, self._attempt, self._samples = database, attempt, 0

    def add(self, time: float, rows: Iterable[RankRow]) -> None:
        """Record a measurement of all ranks, made at this Unix time."""
        for row in rows:
            values = (self._attempt, self._samples, time, *row)
            self._database.add(f"INSERT INTO ranks VALUES ({', '.join('?' * len(values))})", values)
        self._samples += 1
        if self._samples == MAX_SAMPLES:
            self._database.add("DELETE FROM ranks WHERE attempt = ? AND sample % 2 = 0", (self._attempt,))
            self._database.add("UPDATE ranks SET sample = sample / 2 WHERE attempt = ?", (self._attempt,))
            self._samples //= 2
            self.interval *= 2
