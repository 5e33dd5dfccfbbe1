"""A replay: the newest rows that a worker has collected, in a ring."""

from collections.abc import Mapping

import numpy as np

from arena.common.errors import ConfigError
from arena.experience.sum_tree import SumTree

LEAST_ERROR = 1e-6
"""What is added to every error, so that no row is lost for good."""


class Replay:
    """A ring of rows of one dtype; the oldest make room for new ones.

    Its memory is taken at the first ``append``: a policy that only acts holds none.

    With priorities, a row is drawn in proportion to (its error)^alpha (Schaul et al., Prioritized experience replay,
    2016); new ones are given the greatest priority so far.

    Attributes:
      capacity: the most rows that it holds.
      appended: rows that were ever appended.
      priorities: of each place; None where rows are drawn evenly.
    """

    def __init__(self, dtype: np.dtype, capacity: int, alpha: float | None = None) -> None:
        """Hold at most ``capacity`` rows, at least 1; ``alpha`` is that of priorities, None for none."""
        self._dtype = dtype
        self._rows = np.zeros(0, dtype)
        self._alpha, self._greatest = alpha, 1.0
        self.priorities = None if alpha is None else SumTree(capacity)
        self.capacity = capacity
        self.appended = 0

    def __len__(self) -> int:
        """Return the rows that are held."""
        return min(self.appended, self.capacity)

    def append(self, rows: np.ndarray) -> None:
        """Take rows ``[N]``; of more than the capacity the last ones are kept."""
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
        """Return places of rows ``[steps, count]`` int64, each drawn evenly; there is at least one row."""
        return random.integers(0, len(self), (steps, count))

    def draw_by_priority(self, count: int, random: np.random.Generator) -> np.ndarray:
        """Return places of rows ``[count]``, one out of each of so many equal parts of the sum of priorities."""
        assert self.priorities is not None
        total = self.priorities.total
        return self.priorities.find((np.arange(count) + random.random(count)) * (total / count))

    def shares(self, places: np.ndarray) -> np.ndarray:
        """Return the probabilities ``[N]`` by which ``draw_by_priority`` draws rows."""
        assert self.priorities is not None
        return self.priorities.get(places) / self.priorities.total

    @property
    def least_share(self) -> float:
        """The least of these probabilities; infinite where there is no row."""
        if self.priorities is None or not len(self):
            return float("inf")
        return self.priorities.least / self.priorities.total

    def set_errors(self, places: np.ndarray, errors: np.ndarray) -> None:
        """Take the errors ``[N]`` that were found for rows, of either sign."""
        assert self.priorities is not None and self._alpha is not None
        found = (np.abs(errors).astype(np.float64) + LEAST_ERROR) ** self._alpha
        self._greatest = max(self._greatest, float(found.max(initial=0.0)))
        self.priorities.set(places, found)

    def take(self, places: np.ndarray, out: np.ndarray) -> None:
        """Copy the rows at ``places`` ``[N]`` into ``out`` ``[N]``."""
        self._rows.take(places, out=out, mode="clip")

    def state(self) -> dict[str, np.ndarray]:
        """Return the rows as bytes ``[N, size of a row]``, views of the ring, and how many were ever appended."""
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
        """Load what ``state`` returned; of a replay of another capacity, the newest rows that there is room for.

        Priorities are kept where each row comes to lie where it was; else all rows are new.

        Raises:
          ConfigError: it holds rows of another kind.
        """
        rows, appended = np.ascontiguousarray(state["rows"]), int(state["appended"])
        if rows.shape[1] != self._dtype.itemsize:
            raise ConfigError(
                f"the stored replay does not fit: expected rows of {self._dtype.itemsize} bytes, found "
                f"{rows.shape[1]}; use the spaces and settings that it was filled with"
            )
        held = rows.view(self._dtype)[:, 0]
        self._rows, self.appended = np.zeros(0, self._dtype), 0
        if len(held) == min(appended, self.capacity):  # each row comes to lie where it was
            self.append(held)
            self.appended = appended
            if self.priorities is not None and "priorities" in state:
                self._greatest = float(state["greatest"])
                self.priorities.set(np.arange(len(held)), np.array(state["priorities"]))
        else:
            self.append(np.roll(held, -(appended % len(held))) if appended > len(held) else held)
