"""Interface of a group for ``learn``: sums and means over all of its workers."""

from typing import Protocol

import numpy as np


class Reducer(Protocol):
    """Sums and means over all workers of a player, in place: the part of a group that ``learn`` uses."""

    rank: int
    size: int

    def sum_in_place(self, array: np.ndarray) -> None:
        """Replace ``array`` (contiguous, float32 or float64) by its sum over the group; all get the same bits."""

    def zeros(self, items: int) -> np.ndarray:
        """Return float32 zeros for ``average_in_place``; all workers make this call."""

    def average_in_place(self, array: np.ndarray, weight: float) -> float:
        """Replace an array from ``zeros`` by its weighted mean over the group; all workers get the same bits.

        Each worker counts ``weight`` times. Returns the sum of the weights; if that is zero, so is the array.
        """
