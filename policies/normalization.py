"""Running normalisation of observations, as a part of the networks that read them.

Its statistics are buffers, so that they are in snapshots, checkpoints, exported files and published versions like any
weight. They change while a policy learns, and never while it only acts.
"""

import numpy as np
import torch
from torch import nn

from arena.tensors.moments import Moments
from arena.tensors.reducer import Reducer

TINY = 1e-8
"""Added to variances: the factor of a number that never changes is 10,000, and ``clip`` bounds the results."""


class Normalization(nn.Module):
    """Shift and scale of each number of a vector by the mean and deviation of all that was learned from.

    Attributes:
      count: ``[]`` float64, number of rows.
      mean: ``[size]`` float64.
      squares: ``[size]`` float64, sum of squared distances from the mean.
      shift: ``[size]`` float32, the mean; acting reads these two alone.
      factor: ``[size]`` float32, 1 / the standard deviation.
      clip: bound of the results.
    """

    count: torch.Tensor
    mean: torch.Tensor
    squares: torch.Tensor
    shift: torch.Tensor
    factor: torch.Tensor

    def __init__(self, size: int, clip: float) -> None:
        """Start without rows: vectors are only clipped."""
        super().__init__()
        self.clip = clip
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        for name in ("mean", "squares"):
            self.register_buffer(name, torch.zeros(size, dtype=torch.float64))
        self.register_buffer("shift", torch.zeros(size))
        self.register_buffer("factor", torch.ones(size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[N, size] -> [N, size]``."""
        return ((x - self.shift) * self.factor).clamp(-self.clip, self.clip)

    @property
    def is_empty(self) -> bool:
        """Whether there were no rows yet."""
        return self.count.item() == 0

    @torch.no_grad()
    def add(self, rows: np.ndarray, group: Reducer) -> None:
        """Include the rows ``[N, size]`` of all workers of a group; see ``Moments``."""
        moments = self.moments()
        moments.add(rows, group)
        if not moments.count:
            return
        self.count.fill_(moments.count)
        for buffer, values in (
            (self.mean, moments.mean),
            (self.squares, moments.squares),
            (self.shift, moments.mean),
            (self.factor, 1 / np.sqrt(moments.deviation**2 + TINY)),
        ):
            buffer.copy_(torch.from_numpy(values))

    def moments(self) -> Moments:
        """Return a copy of the statistics."""
        moments = Moments(len(self.mean), "observations")
        moments.count = self.count.item()
        moments.mean, moments.squares = (each.numpy(force=True).copy() for each in (self.mean, self.squares))
        return moments
