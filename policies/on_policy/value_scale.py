"""Running mean and standard deviation of the targets of a value network, which then learns numbers near 1.

PopArt (van Hasselt et al., Learning values across many orders of magnitude, 2016): when the moments change, the last
layer changes too, so that the values which the network stands for stay the same.
"""

import math
from typing import Any

import torch
from torch import nn

SLOWEST = 0.02
"""Smallest weight of a new update's targets in the moments: they follow returns that grow within some 50 updates."""

NARROWEST = 1e-4
"""Smallest standard deviation that targets are divided by."""


class ValueScale(nn.Module):
    """Conversion between values and the outputs of the value network: value = mean + deviation * output."""

    moments: torch.Tensor

    def __init__(self) -> None:
        """Start with mean 0 and standard deviation 1."""
        super().__init__()
        # mean, mean of squares, number of updates
        self.register_buffer("moments", torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64))

    def numbers(self) -> tuple[float, float]:
        """Return mean and standard deviation."""
        mean, square, _ = self.moments.tolist()
        return mean, max(math.sqrt(max(square - mean * mean, 0.0)), NARROWEST)

    def values(self, outputs: Any) -> Any:
        """Return the values that outputs of the network stand for, float32."""
        mean, deviation = self.numbers()
        return outputs * deviation + mean

    def outputs(self, values: Any) -> Any:
        """Return the outputs that stand for values, float32."""
        mean, deviation = self.numbers()
        return (values - mean) / deviation

    @torch.no_grad()
    def update(self, mean: float, square: float, head: nn.Linear) -> None:
        """Include the targets of an update in the moments, and adapt the network's last layer.

        Args:
          mean: mean of the targets, over the whole group.
          square: mean of their squares.
          head: last layer of the value network; the values that it yields do not change.
        """
        old_mean, old_deviation = self.numbers()
        number = float(self.moments[2]) + 1
        share = max(1 / number, SLOWEST)
        fresh = torch.tensor([mean, square, number], dtype=torch.float64)
        self.moments[:2].lerp_(fresh[:2].to(self.moments.device), share)
        self.moments[2] = number
        new_mean, new_deviation = self.numbers()
        head.weight.mul_(old_deviation / new_deviation)
        head.bias.mul_(old_deviation).add_(old_mean - new_mean).div_(new_deviation)
