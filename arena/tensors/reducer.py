"""What an update uses of the group that learns with it: sums and means over all of its workers."""

from typing import Protocol

import numpy as np


class Reducer(Protocol):
    """The part of a group that ``learn`` uses: sums and means over all workers of the player, in place."""

    rank: int
    size: int

    def sum_in_place(self, array: np.ndarray) -> None:
        """Replace ``array`` (contiguous, float32 or float64) by its sum over the group; all get the same bits."""

    def zeros(self, items: int) -> np.ndarray:
        """Return float32 zeros for ``average_in_place``; all workers call this at the same time."""

    def average_in_place(self, array: np.ndarray, weight: float) -> float:
        """Replace what ``zeros`` returned by its mean over the group; all get the same bits.

        Each worker's is counted ``weight`` times. Returns the sum of the weights; where that is zero, so is the array.
        """
