"""Layers of every network: activations, and linear layers with orthogonal weights."""

import math
from typing import Any

import torch
from torch import nn

SQRT_2 = math.sqrt(2)


class _Tanh(torch.autograd.Function):
    """tanh(x) = 2 sigmoid(2x) - 1, which torch computes several times faster on a CPU than its own tanh."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        y = torch.sigmoid(x + x).mul_(2).sub_(1)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        (y,) = ctx.saved_tensors
        return torch.addcmul(gradient, gradient, y * y, value=-1)


class Tanh(nn.Module):
    """The hyperbolic tangent."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return tanh of ``x``, elementwise."""
        return _Tanh.apply(x)


ACTIVATIONS: dict[str, type[nn.Module]] = {
    "tanh": Tanh,
    "relu": nn.ReLU,
    "elu": nn.ELU,
    "silu": nn.SiLU,
    "gelu": nn.GELU,
}


def linear(inputs: int, outputs: int, gain: float) -> nn.Linear:
    """Return a linear layer with orthogonal weights (Saxe et al., 2014) and zero biases."""
    return orthogonal(nn.Linear(inputs, outputs), gain)


def orthogonal(layer: Any, gain: float) -> Any:
    """Initialise a layer's weight to an orthogonal matrix times ``gain`` and its bias to zeros; return the layer."""
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer
