"""The bound on what a policy's own loop may do beyond its budget."""

from collections.abc import Callable

import numpy as np

from arena.common.errors import BudgetSpentError
from arena.worker.seat import Seat

EXCESS = 0.1
"""Part of its budget by which a loop may exceed it, if its last episodes and its last update take less."""

LONGEST_EPISODE = 10_000
"""Steps of a copy that are waited for at most, for the end of its episode or for an update."""


class Overdue:
    """Ends the match for a loop that ignores its budget: as soon as it has exceeded it by a tenth.

    Loops look at their budget between two episodes or updates. So each copy may end an episode, and the loop an update.
    """

    def __init__(self, seat: Seat, share: int, updates: Callable[[], int], will_update: Callable[[], bool]) -> None:
        """Watch a seat.

        Args:
          seat: the seat; its steps count from the start of the loop.
          share: transition steps of the loop.
          updates: returns the number of updates of the loop so far.
          will_update: returns whether a loop without any update has a model to update.
        """
        self._seat, self._share, self._updates, self._will_update = seat, share, updates, will_update
        self._seen = self._seen_at = self._longest = 0  # updates, at which step, and the most steps between two
        self._updates_at_budget: int | None = None
        self._ended = [np.zeros(part.stop - part.start, bool) for part in seat.slices]  # episodes since the budget
        seat.budget, seat.overdue = share, self._check

    def note_updates(self) -> None:
        """Note how many steps pass between two updates; called now and then."""
        updates, steps = self._updates(), self._seat.steps
        if updates != self._seen:
            self._longest = max(self._longest, steps - self._seen_at)
            self._seen, self._seen_at = updates, steps

    def _check(self) -> None:
        """Raise an error if the loop has continued for too long.

        Raises:
          BudgetSpentError: it has.
        """
        if self._updates_at_budget is None:
            self._updates_at_budget = self._updates()
        for ended, record in zip(self._ended, self._seat.records, strict=True):
            ended |= record.over
        excess = self._seat.steps - self._share
        if excess < EXCESS * self._share:
            return
        most = LONGEST_EPISODE * self._seat.offer.copies
        if excess < most and (not all(ended.all() for ended in self._ended) or self._is_update_due()):
            return
        self._seat.end(BudgetSpentError)

    def _is_update_due(self) -> bool:
        """Return whether an update is about to come that began to be collected within the budget."""
        updates = self._updates()
        if updates != self._updates_at_budget:
            return False
        if not updates:
            return self._will_update()
        return self._seat.steps - self._seen_at <= self._longest + self._seat.offer.copies
