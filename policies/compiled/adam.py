"""Adam on one flat tensor of which all parameters of a network are views."""

import math

import torch
from torch import nn

from arena.policies.compiled.kernels import BETA_1, BETA_2, adam_step, squared_length


def l2_norm(gradient: torch.Tensor) -> float:
    """Return the L2 norm of a gradient ``[P]``, contiguous.

    It is not finite if an element is not, or if squares exceed float32: Adam's running means would keep them.
    """
    return math.sqrt(squared_length(gradient.numpy())) if gradient.is_cpu else gradient.norm().item()


def flattened(network: nn.Module) -> torch.Tensor:
    """Return one tensor ``[P]`` of all trainable parameters, which become views of it."""
    parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
    flat = torch.cat([parameter.detach().flatten() for parameter in parameters])
    start = 0
    for parameter in parameters:
        parameter.data = flat[start : start + parameter.numel()].view_as(parameter)
        start += parameter.numel()
    return flat


class FlatAdam:
    """The optimizer of Kingma and Ba (2015, algorithm 1): one pass over memory on the CPU, few operations elsewhere.

    Attributes:
      parameters: ``[P]``, the network's parameters, which are views of it.
      first: ``[P]``, running mean of the gradient.
      second: ``[P]``, running mean of its square.
      steps: number of steps taken.
    """

    def __init__(self, network: nn.Module, epsilon: float) -> None:
        """Move the network's parameters into one tensor."""
        self.parameters = flattened(network)
        self.first = torch.zeros_like(self.parameters)
        self.second = torch.zeros_like(self.parameters)
        self.steps = 0
        self._epsilon = epsilon
        self._views = [tensor.numpy() for tensor in (self.parameters, self.first, self.second) if tensor.is_cpu]

    @torch.no_grad()
    def step(self, gradient: torch.Tensor, learning_rate: float, scale: float = 1.0) -> None:
        """Take one step along ``scale`` times ``gradient`` ``[P]``."""
        self.steps += 1
        rate = learning_rate / (1 - BETA_1**self.steps)
        correction = 1 / math.sqrt(1 - BETA_2**self.steps)
        if self.parameters.device.type == "cpu":  # in one pass over the memory
            parameters, first, second = self._views
            adam_step(parameters, gradient.numpy(), first, second, scale, rate, correction, self._epsilon)
            return
        if scale != 1:
            gradient = gradient * scale
        self.first.lerp_(gradient, 1 - BETA_1)
        self.second.mul_(BETA_2).addcmul_(gradient, gradient, value=1 - BETA_2)
        self.parameters.addcdiv_(self.first, self.second.sqrt().mul_(correction).add_(self._epsilon), value=-rate)
