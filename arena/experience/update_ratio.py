"""How many gradient steps a group's new transitions pay for, the same on all of its workers."""

import math
from typing import NamedTuple

import numpy as np

from arena.common.trees import even_slices
from arena.tensors.reducer import Reducer

ROUNDING = 1e-6  # of a step: more than a product of float64 is off, so that 100 transitions at 0.29 pay for 29


class UpdateBudget(NamedTuple):
    """The gradient steps of a group after a rollout.

    Attributes:
      steps: how many.
      rows: rows that this worker draws for each; 0 where others draw all.
      least_share: the least probability by which any worker draws a row, infinite where rows are drawn evenly.
    """

    steps: int
    rows: int
    least_share: float = math.inf


class UpdateRatio:
    """Keeps gradient steps in proportion to transitions, over all workers of a player.

    What is collected before the group holds ``warmup`` rows pays for nothing. All that follows pays for ``ratio`` steps
    per transition, and what remains of a step is kept for the next rollout: the total is exact.

    Attributes:
      collected: transitions of the group so far.
      free: how many of them paid for nothing.
      steps: gradient steps so far.
      held: rows that the group held after the last rollout.
    """

    def __init__(self, *, ratio: float, batch_size: int, warmup: int) -> None:
        """Set the pace.

        Args:
          ratio: gradient steps per transition.
          batch_size: rows of a gradient step, of the whole group.
          warmup: rows that the group holds before it learns.
        """
        self._ratio, self._batch_size, self._warmup = ratio, batch_size, warmup
        self.collected = self.free = self.steps = self.held = 0

    @property
    def warming_up(self) -> bool:
        """Whether no transition has paid for anything yet."""
        return self.free == self.collected

    def burst(self, group: Reducer, fresh: int, stored: int, least_share: float = math.inf) -> UpdateBudget:
        """Return the gradient steps that follow a rollout; all workers call it together.

        Args:
          group: all workers of the player.
          fresh: transitions that this worker has just collected.
          stored: rows that it holds.
          least_share: the least probability by which it draws any of them.
        """
        table = np.zeros((group.size, 3))
        table[group.rank] = fresh, stored, 0.0 if math.isinf(least_share) else least_share
        group.sum_in_place(table)
        new, self.held = int(table[:, 0].sum()), int(table[:, 1].sum())
        self.collected += new
        if self.held < self._warmup or not self.held:
            self.free += new
            return UpdateBudget(0, 0)
        steps = int(self._ratio * (self.collected - self.free) + ROUNDING) - self.steps
        self.steps += max(0, steps)
        count = 0
        if stored:
            holders = np.flatnonzero(table[:, 1])
            part = even_slices(self._batch_size, len(holders))[int(np.searchsorted(holders, group.rank))]
            count = part.stop - part.start
        shares = table[:, 2][table[:, 2] > 0]
        return UpdateBudget(max(0, steps), count, float(shares.min()) if len(shares) else math.inf)

    def state(self) -> np.ndarray:
        """Return the counters, int64 ``[3]``."""
        return np.array([self.collected, self.free, self.steps])

    def load_state(self, state: np.ndarray) -> None:
        """Load what ``state`` returned."""
        self.collected, self.free, self.steps = map(int, state)
