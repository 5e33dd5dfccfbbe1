"""Running mean and standard deviation over the workers of a group."""

import numpy as np

from arena.tensors.reducer import Reducer


class Moments:
    """Count, mean and squared distances of all rows ``[N, size]`` so far, equal on all workers of a group.

    Attributes:
      count: number of rows.
      mean: ``[size]`` float64.
      squares: ``[size]`` float64, sum of the squared distances from the mean.
    """

    def __init__(self, size: int, rows: str = "rows") -> None:
        """Start without rows; ``rows`` names them in messages."""
        self._rows = rows
        self.count = 0.0
        self.mean, self.squares = np.zeros(size), np.zeros(size)

    def add(self, rows: np.ndarray, group: Reducer) -> None:
        """Include the rows of all workers (Chan et al., Updating formulae, 1979); all of them make this call.

        Args:
          rows: ``[N, size]``, those of this worker, with any N.
          group: all workers.

        Raises:
          FloatingPointError: a number is not finite; raised by all workers together.
        """
        rows = rows.astype(np.float64)
        center = self.mean
        if not self.count:  # squared distances from any center that is far from the mean lose digits
            total, center = self._sums(rows, group)
            center = center / max(total, 1.0)
        rows -= center
        total, sums, squares = self._sums(rows, group, rows**2)
        if not total:
            return
        if not np.isfinite(squares).all():
            raise FloatingPointError(f"expected finite {self._rows} for their running mean, found nan or inf")
        distance = sums / total  # of the rows' mean from the center
        count = self.count + total
        if not self.count:
            self.mean = center.copy()
        self.squares = self.squares + squares - total * distance**2 + distance**2 * self.count * total / count
        self.mean = self.mean + distance * total / count
        self.count = count

    @property
    def deviation(self) -> np.ndarray:
        """Standard deviation ``[size]``; zeros without rows."""
        return np.sqrt(np.maximum(self.squares, 0) / max(self.count, 1))

    @staticmethod
    def _sums(rows: np.ndarray, group: Reducer, *others: np.ndarray) -> tuple:
        """Return the number of rows of all workers, and the sums of ``rows`` and of others."""
        sums = np.concatenate(([float(len(rows))], *(array.sum(0) for array in (rows, *others))))
        group.sum_in_place(sums)
        return float(sums[0]), *np.split(sums[1:], 1 + len(others))
