"""A replay: the newest rows that a worker has collected, in a ring."""

from collections.abc import Mapping

import numpy as np

from arena.common.errors import ConfigError


class Replay:
    """A ring of rows of one dtype; the oldest make room for new ones.

    Its memory is taken at the first ``append``: a policy that only acts holds none.

    Attributes:
      capacity: the most rows that it holds.
      appended: rows that were ever appended.
    """

    def __init__(self, dtype: np.dtype, capacity: int) -> None:
        """Hold at most ``capacity`` rows, at least 1."""
        self._dtype = dtype
        self._rows = np.zeros(0, dtype)
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
        self.appended += len(rows)

    def draw(self, steps: int, count: int, random: np.random.Generator) -> np.ndarray:
        """Return places of rows ``[steps, count]`` int64, each drawn evenly; there is at least one row."""
        return random.integers(0, len(self), (steps, count))

    def take(self, places: np.ndarray, out: np.ndarray) -> None:
        """Copy the rows at ``places`` ``[N]`` into ``out`` ``[N]``."""
        self._rows.take(places, out=out, mode="clip")

    def state(self) -> dict[str, np.ndarray]:
        """Return the rows as bytes ``[N, size of a row]``, views of the ring, and how many were ever appended."""
        held = self._rows[: len(self)]
        return {
            "rows": held.view(np.uint8).reshape(len(held), self._dtype.itemsize),
            "appended": np.array(self.appended),
        }

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Load what ``state`` returned; of a replay of another capacity, the newest rows that there is room for.

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
        else:
            self.append(np.roll(held, -(appended % len(held))) if appended > len(held) else held)
