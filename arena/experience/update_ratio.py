"""Update ratio: gradient steps of a group per new transition, equal on all of its workers."""

import math
from typing import NamedTuple

import numpy as np

from arena.common.trees import even_slices
from arena.tensors.reducer import Reducer

ROUNDING = 1e-6  # more than the error of a float64 product, so that 100 transitions at 0.29 yield 29 steps


class UpdateBudget(NamedTuple):
    """Gradient steps of a group after a rollout.

    Attributes:
      steps: number of gradient steps.
      rows: rows that this worker samples for each; 0 if others sample all.
      least_share: smallest probability with which any worker samples a row, infinite for uniform sampling.
    """

    steps: int
    rows: int
    least_share: float = math.inf


class UpdateRatio:
    """Keeps gradient steps in proportion to transitions, over all workers of a player.

    Transitions before the group holds ``warmup`` rows yield no steps. Each later one yields ``ratio`` steps, and
    fractions are kept for the next rollout: the total is exact.

    Attributes:
      collected: transitions of the group so far.
      free: number of transitions that yield no steps.
      steps: number of gradient steps so far.
      held: rows that the group held after the last rollout.
    """

    def __init__(self, *, ratio: float, batch_size: int, warmup: int) -> None:
        """Set the ratio.

        Args:
          ratio: gradient steps per transition.
          batch_size: rows of a gradient step, of the whole group.
          warmup: rows that the group holds before it learns.
        """
        self._ratio, self._batch_size, self._warmup = ratio, batch_size, warmup
        self.collected = self.free = self.steps = self.held = 0

    @property
    def warming_up(self) -> bool:
        """Whether no transition has yielded a step yet."""
        return self.free == self.collected

    def burst(self, group: Reducer, fresh: int, stored: int, least_share: float = math.inf) -> UpdateBudget:
        """Return the gradient steps that follow a rollout; all workers make this call.

        Args:
          group: all workers of the player.
          fresh: number of this worker's new transitions.
          stored: number of rows that it holds.
          least_share: smallest probability with which it samples a row.
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
        """Load a state returned by ``state``."""
        self.collected, self.free, self.steps = map(int, state)
