"""Perceptrons with a common input, side by side: their outputs, and gradients with respect to weights or inputs."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from arena.policies.compiled.actor_critic import KNOWN, Layer, Plan
from arena.policies.compiled.layers import LINEAR, OBSERVATIONS, backward, backward_to_inputs, forward
from arena.policies.compiled.vector_input import VectorInput
from arena.policies.encoders.composite import Encoder
from arena.policies.encoders.leaves import Vector


class CompiledPerceptrons:
    """Perceptrons computed from the vector of their parameters, which later changes of the parameters affect.

    Results lie in buffers that the next call overwrites.
    """

    def __init__(
        self, module: nn.Module, encoder: Encoder, perceptrons: Sequence[nn.Module], parameters: torch.Tensor
    ) -> None:
        """Create them.

        Args:
          module: holds the perceptrons.
          encoder: encoder in front of them; see ``serves``.
          perceptrons: of equal inputs; further inputs may follow what the encoder reads.
          parameters: ``[P]``, all parameters of the module.
        """
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
        leaf = encoder.leaves[0]
        assert isinstance(leaf, Vector)
        self._input = VectorInput(leaf)

    def room(self, count: int) -> np.ndarray:
        """Return the input buffer of ``forward``, ``[count, inputs]`` float32."""
        if self._plan.count != count:
            self._plan.make_room(count)
            self._by_inputs = np.zeros((count, self.inputs), np.float32)
        return self._plan.x

    def read(self, observations: np.ndarray) -> np.ndarray:
        """Write observations ``[N, ...]`` into the first columns of the input buffer, and return it.

        They are encoded: ``room`` takes inputs as they are.
        """
        room = self.room(len(observations))
        self._input.write(observations, room[:, : self._input.width])
        return room

    def forward(self) -> list[np.ndarray]:
        """Return the outputs for the input buffer, each ``[N, outputs]``."""
        plan = self._plan
        forward(self._parameters, plan.table, plan.x, plan.results)
        return plan.head_results

    @property
    def output_gradients(self) -> list[np.ndarray]:
        """Buffers of the gradients by the outputs, each ``[N, outputs]``, to be filled before ``backward``."""
        return self._plan.head_gradients

    def backward(self, gradient: np.ndarray) -> None:
        """Write the gradients with respect to all parameters of these perceptrons into ``gradient`` ``[P]``."""
        plan = self._plan
        backward(self._parameters, gradient, plan.table, plan.x, plan.results, plan.gradients, 1.0)

    def input_gradients(self) -> np.ndarray:
        """Return the gradients with respect to the inputs, ``[N, inputs]``."""
        plan = self._plan
        backward_to_inputs(self._parameters, plan.table, plan.results, plan.gradients, self._heads, self._by_inputs)
        return self._by_inputs


def serves(encoder: Encoder, perceptron: nn.Sequential) -> bool:
    """Return whether the compiled path supports a perceptron behind an encoder: a vector, on the CPU."""
    known = {nn.Linear, *KNOWN}
    return (
        encoder.paths == [()]
        and isinstance(encoder.leaves[0], Vector)
        and all(type(layer) in known for layer in perceptron)
        and next(perceptron.parameters()).device.type == "cpu"
    )
