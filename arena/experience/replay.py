"""Replay buffer of a worker: the newest rows that it has collected, in a ring."""

from collections.abc import Mapping

import numpy as np

from arena.common.errors import ConfigError
from arena.experience.sum_tree import SumTree

LEAST_ERROR = 1e-6
"""Summand of every error, so that no row has priority zero."""


class Replay:
    """A ring of rows of one dtype; new rows overwrite the oldest.

    Its memory is allocated at the first ``append``: a policy that only acts holds none.

    With priorities, a row is sampled in proportion to (its error)^alpha (Schaul et al., Prioritized experience replay,
    2016); new rows get the greatest priority so far.

    Attributes:
      capacity: largest number of rows.
      appended: number of rows ever appended.
      priorities: priority of each place; None for uniform sampling.
    """

    def __init__(self, dtype: np.dtype, capacity: int, alpha: float | None = None) -> None:
        """Create a buffer of ``capacity`` rows, at least 1; ``alpha`` is the exponent of priorities, None for none."""
        self._dtype = dtype
        self._rows = np.zeros(0, dtype)
        self._alpha, self._greatest = alpha, 1.0
        self.priorities = None if alpha is None else SumTree(capacity)
        self.capacity = capacity
        self.appended = 0

    def __len__(self) -> int:
        """Return the number of rows held."""
        return min(self.appended, self.capacity)

    def append(self, rows: np.ndarray) -> None:
        """Append rows ``[N]``; of more than the capacity the last ones are kept."""
        if not len(rows):
            return
        if not len(self._rows):
            self._rows = np.zeros(self.capacity, self._dtype)
        self.appended += max(0, len(rows) - self.capacity)
        rows = rows[-self.capacity :]
        start = self.appended % self.capacity
        first = min(len(rows), self.capacity - start)
        self._rows[start : start + first] = rows[:first]
        self._rows[: len(rows) - first] = rows[first:]
        if self.priorities is not None:
            places = (start + np.arange(len(rows))) % self.capacity
            self.priorities.set(places, np.full(len(rows), self._greatest))
        self.appended += len(rows)

    def draw(self, steps: int, count: int, random: np.random.Generator) -> np.ndarray:
        """Sample places of rows uniformly, ``[steps, count]`` int64; there is at least one row."""
        return random.integers(0, len(self), (steps, count))

    def draw_by_priority(self, count: int, random: np.random.Generator) -> np.ndarray:
        """Sample places of rows ``[count]``, one from each of ``count`` equal parts of the sum of priorities."""
        assert self.priorities is not None
        total = self.priorities.total
        return self.priorities.find((np.arange(count) + random.random(count)) * (total / count))

    def shares(self, places: np.ndarray) -> np.ndarray:
        """Return the probabilities ``[N]`` with which ``draw_by_priority`` samples rows."""
        assert self.priorities is not None
        return self.priorities.get(places) / self.priorities.total

    @property
    def least_share(self) -> float:
        """The smallest of these probabilities; infinite for an empty buffer."""
        if self.priorities is None or not len(self):
            return float("inf")
        return self.priorities.least / self.priorities.total

    def set_errors(self, places: np.ndarray, errors: np.ndarray) -> None:
        """Set the errors ``[N]`` of rows, of either sign."""
        assert self.priorities is not None and self._alpha is not None
        priorities = (np.abs(errors).astype(np.float64) + LEAST_ERROR) ** self._alpha
        self._greatest = max(self._greatest, float(priorities.max(initial=0.0)))
        self.priorities.set(places, priorities)

    def take(self, places: np.ndarray, out: np.ndarray) -> None:
        """Copy the rows at ``places`` ``[N]`` into ``out`` ``[N]``."""
        self._rows.take(places, out=out, mode="clip")

    def state(self) -> dict[str, np.ndarray]:
        """Return the rows as bytes ``[N, size of a row]``, views of the ring, and the number of rows ever appended."""
        held = self._rows[: len(self)]
        state = {
            "rows": held.view(np.uint8).reshape(len(held), self._dtype.itemsize),
            "appended": np.array(self.appended),
        }
        if self.priorities is not None:
            state["priorities"] = self.priorities.get(np.arange(len(self)))
            state["greatest"] = np.array(self._greatest)
        return state

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Load a state returned by ``state``; if it exceeds the capacity, its newest rows.

        Priorities are kept if every row keeps its place; otherwise all rows count as new.

        Raises:
          ConfigError: its rows have another dtype.
        """
        rows, appended = np.ascontiguousarray(state["rows"]), int(state["appended"])
        if rows.shape[1] != self._dtype.itemsize:
            raise ConfigError(
                f"the stored replay does not fit: expected rows of {self._dtype.itemsize} bytes, found "
                f"{rows.shape[1]}; use the spaces and settings that it was filled with"
            )
        held = rows.view(self._dtype)[:, 0]
        self._rows, self.appended = np.zeros(0, self._dtype), 0
        if len(held) == min(appended, self.capacity):  # every row keeps its place
            self.append(held)
            self.appended = appended
            if self.priorities is not None and "priorities" in state:
                self._greatest = float(state["greatest"])
                self.priorities.set(np.arange(len(held)), np.array(state["priorities"]))
        else:
            self.append(np.roll(held, -(appended % len(held))) if appended > len(held) else held)
