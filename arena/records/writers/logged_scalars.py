"""Scalars logged by custom-loop policies: a row for each call, the mean over the workers that made it."""

import time
from collections.abc import Callable, Iterable

from arena.protocol.messages import LoggedScalar
from arena.records.database import Database
from arena.records.writers.tensorboard import EventFiles

ALL_CALLS = 10_000
"""Number of calls with one name that are all kept."""

# The row of a call is inserted with the first worker's report; each later one is averaged into it.
ROW = """
INSERT INTO metrics (attempt, player, steps, updates, time, name, value, call) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (attempt, player, name, call) WHERE call IS NOT NULL DO UPDATE SET
    value = (value * workers + excluded.value) / (workers + 1),
    steps = (steps * workers + excluded.steps) / (workers + 1),
    updates = max(updates, excluded.updates),
    workers = workers + 1
"""


class LoggedScalars:
    """Writer of logged scalars; only the root process has one."""

    def __init__(self, database: Database, events: EventFiles | None, attempt: int) -> None:
        """Prepare to write into an open database, and into event files if there are any."""
        self._database, self._events, self._attempt = database, events, attempt
        self._calls: dict[str, int] = {}  # player -> calls so far, of the name with the most
        self._before: dict[str, int] = {}  # in previous rounds
        self._unshown: dict[str, dict[str, list[float]]] = {}
        self._steps: dict[str, int] = {}

    def begin_round(self) -> None:
        """Reset the workers' call counts."""
        self._before = dict(self._calls)

    def add(self, player: str, logged: Iterable[LoggedScalar]) -> None:
        """Record the scalars that a worker of a player has logged."""
        before = self._before.get(player, 0)
        for name, call, value, steps, updates, at in logged:
            if self._events is not None:
                self._unshown.setdefault(player, {}).setdefault(name, []).append(value)
                self._steps[player] = max(steps, self._steps.get(player, 0))
            if is_kept(call):
                row = (self._attempt, player, steps, updates, at, name, value, before + call)
                self._database.add(ROW, row)
                self._calls[player] = max(self._calls.get(player, 0), before + call)

    def show(self, speed_of: Callable[[str], float]) -> None:
        """Write one point per name for the scalars since the last call, and the player's steps per second."""
        for player, named in self._unshown.items():
            assert self._events is not None
            means = {name: sum(values) / len(values) for name, values in named.items()}
            speed = {"steps_per_second": speed_of(player)}
            self._events.scalars(player, {**means, **speed}, self._steps[player], time.time())
        self._unshown.clear()


def is_kept(call: int) -> bool:
    """Return whether a call is recorded: the first ten thousand, then every tenth, hundredth, and so on.

    So every worker keeps the same ones, and weeks of training stay small.
    """
    stride = 1
    while call > ALL_CALLS * stride:
        stride *= 10
    return call % stride == 0
