"""Adam on one flat tensor that all parameters of a network are views of."""

import math

import numpy as np
import torch
from torch import nn

SMALL = 32_768
"""Parameters on the CPU up to which a step takes less time in NumPy: most of it goes into calls."""


class FlatAdam:
    """The optimizer of Kingma and Ba (2015, algorithm 1), a handful of operations whatever the number of parameters.

    Attributes:
      parameters: ``[P]``, the network's parameters, which are views of it from now on.
      first: ``[P]``, running mean of the gradient.
      second: ``[P]``, running mean of its square.
      steps: how many steps were taken.
    """

    BETA_1 = 0.9
    BETA_2 = 0.999

    def __init__(self, network: nn.Module, epsilon: float) -> None:
        """Move the network's parameters into one tensor."""
        parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
        self.parameters = torch.cat([parameter.detach().flatten() for parameter in parameters])
        start = 0
        for parameter in parameters:
            parameter.data = self.parameters[start : start + parameter.numel()].view_as(parameter)
            start += parameter.numel()
        self.first = torch.zeros_like(self.parameters)
        self.second = torch.zeros_like(self.parameters)
        self.steps = 0
        self._epsilon = epsilon
        self._small = self.parameters.device.type == "cpu" and len(self.parameters) <= SMALL
        self._scratch = np.empty(len(self.parameters) if self._small else 0, np.float32)

    @torch.no_grad()
    def step(self, gradient: torch.Tensor, learning_rate: float) -> None:
        """Take one step along ``gradient`` ``[P]``."""
        self.steps += 1
        if self._small:
            self._step_small(gradient.numpy(), learning_rate)
            return
        self.first.lerp_(gradient, 1 - self.BETA_1)
        self.second.mul_(self.BETA_2).addcmul_(gradient, gradient, value=1 - self.BETA_2)
        rate = learning_rate / (1 - self.BETA_1**self.steps)
        scale = self.second.div(1 - self.BETA_2**self.steps).sqrt_().add_(self._epsilon)
        self.parameters.addcdiv_(self.first, scale, value=-rate)

    def _step_small(self, gradient: np.ndarray, learning_rate: float) -> None:
        """Do the same, with the correction of the second moment drawn into the rate and into epsilon."""
        parameters, first, second = self.parameters.numpy(), self.first.numpy(), self.second.numpy()
        correction = math.sqrt(1 - self.BETA_2**self.steps)
        change = self._scratch
        np.subtract(gradient, first, out=change)
        change *= 1 - self.BETA_1
        first += change
        np.multiply(gradient, gradient, out=change)
        change *= 1 - self.BETA_2
        second *= self.BETA_2
        second += change
        np.sqrt(second, out=change)
        change += self._epsilon * correction
        np.divide(first, change, out=change)
        change *= learning_rate * correction / (1 - self.BETA_1**self.steps)
        parameters -= change
