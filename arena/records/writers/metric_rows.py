"""Metrics of updates and of environments: a row for each value, and event files if there are any."""

import time
from collections.abc import Mapping

from arena.protocol.messages import Progress
from arena.records.database import Database
from arena.records.player_statistics import PlayerStatistics
from arena.records.writers.tensorboard import EventFiles

ALL_UPDATES = 2000
"""Updates of a player with metrics that are all kept.

Later ones are kept once a second: weeks of training stay small.
"""

LATER_UPDATES = 10
"""Interval of later updates that a deterministic run keeps, since it does not depend on time."""

EPISODE = "episode/"
"""Prefix of the names of an environment's metrics, among the metrics of a player."""


class MetricRows:
    """Writer of metrics; only the root process has one."""

    def __init__(self, database: Database, events: EventFiles | None, attempt: int, *, deterministic: bool) -> None:
        """Prepare to write into an open database, and into event files if there are any."""
        self._database, self._events, self._attempt = database, events, attempt
        self._deterministic = deterministic
        self._kept: dict[str, tuple[int, float]] = {}  # player -> number of kept updates, time of the last one
        self._measured: dict[str, dict[str, list[float]]] = {}  # player -> name -> a value for each episode

    def update(self, message: Progress, metrics: Mapping[str, float], statistics: PlayerStatistics) -> None:
        """Record the metrics of an update, unless it is thinned out."""
        now = time.monotonic()
        if not self._keeps(message, now):
            return
        at = time.time()
        self.add(message.player, metrics, statistics, at)
        if self._events is not None:
            speed = {"steps_per_second": statistics.steps_per_second(now)}
            self._events.scalars(message.player, speed, statistics.steps, at)

    def _keeps(self, message: Progress, now: float) -> bool:
        """Return whether an update's metrics are recorded."""
        if self._deterministic:
            return message.updates <= ALL_UPDATES or message.updates % LATER_UPDATES == 0
        rate, last = self._kept.get(message.player, (0, 0.0))
        if rate >= ALL_UPDATES and now - last < 1.0:
            return False
        self._kept[message.player] = (rate + 1, now)
        return True

    def measure(self, player: str, measured: Mapping[str, float]) -> None:
        """Record the environment's metrics of an episode of a player."""
        for name, value in measured.items():
            self._measured.setdefault(player, {}).setdefault(name, []).append(value)

    def write_measured(self, players: Mapping[str, PlayerStatistics]) -> None:
        """Write the means of the environment's metrics since the last call: a row for each player and name."""
        measured, self._measured = self._measured, {}
        for player, named in measured.items():
            means = {EPISODE + name: sum(values) / len(values) for name, values in named.items()}
            self.add(player, means, players[player], time.time())

    def add(self, player: str, metrics: Mapping[str, float], statistics: PlayerStatistics, at: float) -> None:
        """Write a row for each of a player's metrics; ``at`` is the Unix time."""
        columns = "attempt, player, steps, updates, time, name, value"
        for name, value in metrics.items():
            row = (self._attempt, player, statistics.steps, statistics.updates, at, name, value)
            self._database.add(f"INSERT INTO metrics ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        if self._events is not None:
            self._events.scalars(player, metrics, statistics.steps, at)
