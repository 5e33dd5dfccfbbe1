"""The bound on what a policy's own loop may do beyond its budget."""

from collections.abc import Callable

import numpy as np

from arena.common.errors import BudgetSpentError
from arena.worker.seat import Seat

EXCESS = 0.1
"""Part of its budget by which a loop may exceed it, if its last episodes and its last update take less."""

LONGEST_EPISODE = 10_000
"""Steps of a copy that are waited for at most, for the end of its episode or of the first update."""


class Overdue:
    """Ends the match for a loop that ignores its budget: as soon as it has exceeded it by a tenth.

    Loops look at their budget between two episodes or updates. So each copy may end an episode, and the loop an update.
    """

    def __init__(self, seat: Seat, share: int, updates: Callable[[], int], updates_are_due: Callable[[], bool]) -> None:
        """Watch a seat.

        Args:
          seat: the seat; its steps count from the start of the loop.
          share: transition steps of the loop.
          updates: returns the number of updates of the loop so far.
          updates_are_due: returns whether the loop will update, though it has not yet.
        """
        self._seat, self._share, self._updates, self._updates_are_due = seat, share, updates, updates_are_due
        self._ended = [np.zeros(part.stop - part.start, bool) for part in seat.slices]  # episodes since the budget
        seat.budget, seat.overdue = share, self._check

    def _check(self) -> None:
        """Raise an error if the loop has gone on for too long.

        Raises:
          BudgetSpentError: it has.
        """
        for ended, record in zip(self._ended, self._seat.records, strict=True):
            ended |= record.over
        steps, updates = self._seat.steps, self._updates()
        if steps < self._share + max(EXCESS * self._share, self._share / updates if updates else 0):
            return
        is_waiting = not all(ended.all() for ended in self._ended) or (not updates and self._updates_are_due())
        if not is_waiting or steps - self._share >= LONGEST_EPISODE * self._seat.offer.copies:
            self._seat.raise_match_over(BudgetSpentError)
