"""Adam on one flat tensor that all parameters of a network are views of."""

import torch
from torch import nn


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

    @torch.no_grad()
    def step(self, gradient: torch.Tensor, learning_rate: float) -> None:
        """Take one step along ``gradient`` ``[P]``."""
        self.steps += 1
        self.first.lerp_(gradient, 1 - self.BETA_1)
        self.second.mul_(self.BETA_2).addcmul_(gradient, gradient, value=1 - self.BETA_2)
        rate = learning_rate / (1 - self.BETA_1**self.steps)
        scale = self.second.div(1 - self.BETA_2**self.steps).sqrt_().add_(self._epsilon)
        self.parameters.addcdiv_(self.first, scale, value=-rate)
