"""Perceptrons that read the same numbers, side by side: their outputs, and derivatives by weights or by inputs."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from arena.policies.compiled.actor_critic import KNOWN, Layer, Plan
from arena.policies.compiled.layers import LINEAR, OBSERVATIONS, backward, backward_to_inputs, forward
from arena.policies.networks import Encoder, Vector


class CompiledPerceptrons:
    """Perceptrons computed from the vector of their parameters: whatever changes those changes these.

    What is returned lies in memory that the next call uses again.
    """

    def __init__(self, module: nn.Module, perceptrons: Sequence[nn.Module], parameters: torch.Tensor) -> None:
        """Take perceptrons whose parameters are among those of ``module``, which lie in ``parameters`` ``[P]``."""
        starts: dict[torch.Tensor, int] = {}
        start = 0
        for parameter in module.parameters():
            starts[parameter] = start
            start += parameter.numel()
        layers: list[Layer] = []
        heads = []
        for perceptron in perceptrons:
            source, modules = OBSERVATIONS, list(perceptron.children())
            for place, linear in enumerate(modules):
                if not isinstance(linear, nn.Linear):
                    continue
                behind = modules[place + 1 : place + 2]
                activation = KNOWN[type(behind[0])] if behind else LINEAR
                bias = starts[linear.bias]
                layers.append(
                    Layer(source, starts[linear.weight], bias, linear.in_features, linear.out_features, activation)
                )
                source = len(layers) - 1
            heads.append(source)
        self.inputs = layers[0].inputs
        self._parameters = parameters.numpy()
        self._heads = np.array(heads)
        self._plan = Plan(layers, heads, self.inputs)
        self._by_inputs = np.zeros((0, self.inputs), np.float32)

    def room(self, count: int) -> np.ndarray:
        """Return where the inputs of ``forward`` go, ``[count, inputs]`` float32."""
        if self._plan.count != count:
            self._plan.make_room(count)
            self._by_inputs = np.zeros((count, self.inputs), np.float32)
        return self._plan.x

    def forward(self) -> list[np.ndarray]:
        """Return what the perceptrons say of what is in ``room``, each ``[N, outputs]``."""
        plan = self._plan
        forward(self._parameters, plan.table, plan.x, plan.results)
        return plan.said

    @property
    def slopes(self) -> list[np.ndarray]:
        """Where the derivatives by the outputs go before ``backward`` or ``input_gradients``, each ``[N, outputs]``."""
        return self._plan.wanted

    def backward(self, gradient: np.ndarray) -> None:
        """Write the derivatives by all parameters of these perceptrons into ``gradient`` ``[P]``."""
        plan = self._plan
        backward(self._parameters, gradient, plan.table, plan.x, plan.results, plan.slopes, 1.0)

    def input_gradients(self) -> np.ndarray:
        """Return the derivatives by the inputs, ``[N, inputs]``."""
        plan = self._plan
        backward_to_inputs(self._parameters, plan.table, plan.results, plan.slopes, self._heads, self._by_inputs)
        return self._by_inputs


def serves(encoder: Encoder, perceptron: nn.Sequential) -> bool:
    """Whether a perceptron behind an encoder can be computed here: it reads a vector of floats, on the CPU."""
    known = {nn.Linear, *KNOWN}
    return (
        encoder.paths == [()]
        and isinstance(encoder.leaves[0], Vector)
        and encoder.leaves[0].scale is None
        and all(type(layer) in known for layer in perceptron)
        and next(perceptron.parameters()).device.type == "cpu"
    )
