"""Sum and minimum trees over priorities: sampling in proportion to them takes O(log N) steps."""

import numpy as np

from arena.tensors.numba_jit import compiled


class SumTree:
    """Priorities of N places, their sum and their minimum.

    Both trees are arrays of ``2 * size``, with ``size`` the power of two that holds N: the root is item 1, the children
    of item i are 2 i and 2 i + 1, the leaves begin at ``size``. A place without a priority has sum 0 and an infinite
    minimum. All in float64: a sum over millions of float32 would drift.
    """

    def __init__(self, places: int) -> None:
        """Create the trees without priorities."""
        self._size = 1 << max(0, places - 1).bit_length()
        self._sums = np.zeros(2 * self._size)
        self._least = np.full(2 * self._size, np.inf)

    @property
    def total(self) -> float:
        """Sum of all priorities."""
        return float(self._sums[1])

    @property
    def least(self) -> float:
        """Smallest priority that was set, infinite if none was."""
        return float(self._least[1])

    def set(self, places: np.ndarray, priorities: np.ndarray) -> None:
        """Set the priorities ``[N]`` float64, above 0, of places ``[N]`` int64; the last of duplicates counts."""
        _set(self._sums, self._least, self._size, places, priorities)

    def get(self, places: np.ndarray) -> np.ndarray:
        """Return the priorities of places."""
        return self._sums[self._size + places]

    def find(self, targets: np.ndarray) -> np.ndarray:
        """Return for each target ``[N]``, in [0, ``total``), the place where the cumulative sum exceeds it."""
        places = np.empty(len(targets), np.int64)
        _find(self._sums, self._size, targets, places)
        return places


@compiled("void(float64[::1], float64[::1], int64, int64[::1], float64[::1])")
def _set(sums: np.ndarray, least: np.ndarray, size: int, places: np.ndarray, priorities: np.ndarray) -> None:
    for i in range(len(places)):
        item = size + places[i]
        sums[item] = least[item] = priorities[i]
        item //= 2
        while item:
            # Recomputed, never corrected by a difference: the root stays the sum of its leaves.
            sums[item] = sums[2 * item] + sums[2 * item + 1]
            least[item] = min(least[2 * item], least[2 * item + 1])
            item //= 2


@compiled("void(float64[::1], int64, float64[::1], int64[::1])")
def _find(sums: np.ndarray, size: int, targets: np.ndarray, places: np.ndarray) -> None:
    for i in range(len(targets)):
        item, left = 1, targets[i]
        while item < size:
            item *= 2
            # Rounding may leave a target at the very end: go right only if the subtree is not empty.
            if left >= sums[item] and sums[item + 1] > 0:
                left -= sums[item]
                item += 1
        places[i] = item - size
