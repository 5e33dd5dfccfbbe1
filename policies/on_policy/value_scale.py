"""Running mean and standard deviation of values: the value network learns numbers near 0, of a size near 1.

The mean is the constant value that agrees with its own bootstrapped targets, not the mean of the targets. Where
episodes end by a time limit, values must reach the mean reward divided by 1 - discount. A network that learns this step
by step assigns the least negative values to states late in an episode, so that whatever was reached there looks better
than it is. Reward centering (Naik et al., 2024) removes that, too, for tasks without an end.
"""

import math

import numpy as np
import torch
from torch import nn

SLOWEST = 0.1
"""Smallest weight of a new update in mean and variance."""

NARROWEST = 1e-4
"""Smallest standard deviation that values are divided by."""

ENDLESS = 1e-3
"""Smallest mean weight of the rewards in a target at which a constant value follows from them."""


def constant_value(targets: float, weights: float) -> float | None:
    """Return the constant value that agrees with its targets; None if rewards hardly enter the targets.

    Args:
      targets: mean of the lambda returns if all values are 0.
      weights: mean weight of the values in the lambda returns, between 0 and 1.
    """
    return targets / (1 - weights) if 1 - weights > ENDLESS else None


class ValueScale(nn.Module):
    """Conversion between values and the outputs of the value network: value = mean + deviation * output."""

    moments: torch.Tensor

    def __init__(self) -> None:
        """Start with mean 0 and standard deviation 1."""
        super().__init__()
        # mean, variance, number of updates
        self.register_buffer("moments", torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64))

    def numbers(self) -> tuple[float, float]:
        """Return mean and standard deviation."""
        mean, variance, _ = self.moments.tolist()
        return mean, max(math.sqrt(variance), NARROWEST)

    def values(self, outputs: np.ndarray) -> np.ndarray:
        """Return the values that outputs of the network stand for, float32."""
        mean, deviation = self.numbers()
        return outputs * deviation + mean

    def outputs(self, values: np.ndarray) -> np.ndarray:
        """Return the outputs that stand for values, float32."""
        mean, deviation = self.numbers()
        return (values - mean) / deviation

    def recenter(self, mean: float) -> float:
        """Include the constant value of an update in the mean; return the change of all values."""
        change = self._share() * (mean - self.moments[0].item())
        self.moments[0] += change
        return change

    @torch.no_grad()
    def rescale(self, variance: float, head: nn.Linear) -> None:
        """Include the variance of an update's targets.

        Args:
          variance: variance of the targets, over the whole group.
          head: last layer of the value network; it is adapted, so that no value changes (PopArt, van Hasselt et al.,
            Learning values across many orders of magnitude, 2016).
        """
        _, before = self.numbers()
        self.moments[1] += self._share() * (variance - self.moments[1].item())
        self.moments[2] += 1
        _, after = self.numbers()
        head.weight.mul_(before / after)
        head.bias.mul_(before / after)

    def _share(self) -> float:
        return max(1 / (self.moments[2].item() + 1), SLOWEST)
