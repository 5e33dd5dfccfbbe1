"""Small actor-critics in compiled loops, forward and backward: calls into torch would cost more than the arithmetic."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from arena.policies.compiled.layers import LINEAR, OBSERVATIONS, RELU, TANH, backward, forward
from arena.policies.compiled.vector_input import VectorInput
from arena.policies.encoders.leaves import Vector
from arena.policies.layers import Tanh
from arena.policies.networks import ActorCritic, Trunk

KNOWN = {Tanh: TANH, nn.ReLU: RELU}
"""Activations that are compiled."""


class Layer(NamedTuple):
    """A linear layer and its activation.

    Attributes:
      source: index of the layer that it reads, or OBSERVATIONS.
      weight, bias: offsets of its parameters in the vector of all parameters.
      inputs, outputs: its widths.
      activation: its number in layers.py.
    """

    source: int
    weight: int
    bias: int
    inputs: int
    outputs: int
    activation: int


class Plan:
    """Layers to compute in sequence, and buffers for their results for N samples, kept from call to call.

    Attributes:
      table: the layers in the form of layers.py.
      inputs: width of the input of the first layers.
      x: ``[N, inputs]``, that input.
      results: results of all layers, in the form of layers.py.
      gradients: gradients of the loss with respect to them.
      head_results: results of the heads, ``[N, outputs]`` each.
      head_gradients: gradients with respect to them.
    """

    def __init__(self, layers: Sequence[Layer], heads: Sequence[int], inputs: int) -> None:
        """Select the layers that some heads, given by their indices, depend on."""
        needed: set[int] = set()
        for head in heads:
            while head != OBSERVATIONS:
                needed.add(head)
                head = layers[head].source
        rows, table, self._width = {OBSERVATIONS: OBSERVATIONS}, [], 0
        self._heads: list[tuple[int, int]] = []
        for row, place in enumerate(sorted(needed)):
            layer = layers[place]
            rows[place] = row
            table.append((rows[layer.source], *layer[1:], self._width))
            if place in heads:
                self._heads.append((self._width, layer.outputs))
            self._width += layer.outputs
        self.table = np.array(table, np.int64)
        self.inputs, self.count = inputs, -1
        self._memory = np.empty((3, 0), np.float32)

    def make_room(self, count: int) -> None:
        """Allocate buffers for ``count`` samples."""
        self.count = count
        items = count * max(self.inputs, self._width)
        if self._memory.shape[1] < items:
            self._memory = np.empty((3, items), np.float32)
        self.x = self._memory[0, : count * self.inputs].reshape(count, self.inputs)
        self.results, self.gradients = self._memory[1:]
        self.head_results, self.head_gradients = (
            [_part(array, count, *head) for head in self._heads] for array in self._memory[1:]
        )


def _part(array: np.ndarray, count: int, place: int, outputs: int) -> np.ndarray:
    """Return the part of a layer in a buffer, ``[count, outputs]``."""
    return array[count * place : count * (place + outputs)].reshape(count, outputs)


class CompiledActorCritic:
    """An ``ActorCritic`` computed from the vector of its parameters, which later changes of the parameters affect.

    Only for networks that ``serves`` accepts: vector observations, feed-forward, on the CPU. Results lie in buffers
    that the next call overwrites, so that two threads must not share one object.
    """

    def __init__(self, networks: ActorCritic, parameters: np.ndarray, gradient: np.ndarray) -> None:
        """Create it on float32 vectors of all parameters and gradients, in the order of ``networks.parameters()``."""
        encoder = networks.encoder.leaves[0]
        assert isinstance(encoder, Vector)
        self._input = VectorInput(encoder)
        self._value_gradient = networks.value_gradient if networks.critic is None else 1.0
        self._parameters, self._gradient = parameters, gradient
        layers, policy, value = _layers(networks)
        self._policy, self._value, self._both = (
            Plan(layers, heads, encoder.width) for heads in ([policy], [value], [policy, value])
        )
        self._state_input: VectorInput | None = None
        self._central: Plan | None = None
        if networks.has_central_critic:
            assert networks.critic is not None and networks.critic.encoder is not None
            state = networks.critic.encoder.leaves[1]
            assert isinstance(state, Vector)
            self._state_input = VectorInput(state)
            self._central = Plan(layers, [value], encoder.width + state.width)

    @staticmethod
    def serves(networks: ActorCritic) -> bool:
        """Return whether the compiled path supports the networks."""
        encoder = networks.encoder
        known = {nn.Linear, *KNOWN}
        return (
            networks.actor.memory is None
            and encoder.paths == [()]
            and isinstance(encoder.leaves[0], Vector)
            and (not networks.has_central_critic or _reads_vectors(networks.critic))
            and all(type(layer) in known for layer in networks.actor.hidden)
            and networks.policy_head.weight.device.type == "cpu"
        )

    def act(self, observations: np.ndarray) -> np.ndarray:
        """Return the policy's outputs ``[N, outputs]`` for observations ``[N, ...]``."""
        return self._compute(self._policy, observations)[0]

    def values(self, observations: np.ndarray) -> np.ndarray:
        """Return the values ``[N]`` of observations ``[N, ...]``."""
        return self._compute(self._value, observations)[0][:, 0].copy()

    def forward(
        self, observations: np.ndarray, global_state: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return outputs ``[N, outputs]`` and values ``[N]``; a central critic reads ``global_state`` ``[N, ...]``."""
        if self._central is None:
            outputs, values = self._compute(self._both, observations)
        else:
            assert global_state is not None
            (outputs,) = self._compute(self._policy, observations)
            (values,) = self._compute_central(self._central, observations, global_state)
        return outputs, values[:, 0]

    def backward(self, by_outputs: np.ndarray, by_values: np.ndarray) -> None:
        """Write all gradients, given those of the loss with respect to the latest results of ``forward``."""
        if self._central is None:
            plans = [self._both]
            policy, value = self._both.head_gradients
        else:
            plans = [self._policy, self._central]
            (policy,), (value,) = self._policy.head_gradients, self._central.head_gradients
        policy[...] = by_outputs
        value[:, 0] = by_values
        for plan in plans:
            backward(
                self._parameters, self._gradient, plan.table, plan.x, plan.results, plan.gradients, self._value_gradient
            )

    def _compute_central(self, plan: Plan, observations: np.ndarray, global_state: np.ndarray) -> list[np.ndarray]:
        """Return the result of a central critic's head, ``[N, 1]``."""
        count, width = len(observations), self._policy.inputs
        if plan.count != count:
            plan.make_room(count)
        assert self._state_input is not None
        self._input.write(observations, plan.x[:, :width])
        self._state_input.write(global_state, plan.x[:, width:])
        forward(self._parameters, plan.table, plan.x, plan.results)
        return plan.head_results

    def _compute(self, plan: Plan, observations: np.ndarray) -> list[np.ndarray]:
        """Return the results of a plan's heads, each ``[N, outputs]``."""
        if plan.count != len(observations):
            plan.make_room(len(observations))
        self._input.write(observations, plan.x)
        forward(self._parameters, plan.table, plan.x, plan.results)
        return plan.head_results


def _reads_vectors(critic: Trunk | None) -> bool:
    """Return whether a central critic reads a vector and a global state that is a vector, too."""
    if critic is None or critic.encoder is None:
        return False
    return critic.encoder.paths == [(0,), (1,)] and all(isinstance(leaf, Vector) for leaf in critic.encoder.leaves)


def _layers(networks: ActorCritic) -> tuple[list[Layer], int, int]:
    """Return all layers, the value's head last, and the indices of the policy's and the value's head."""
    starts: dict[torch.Tensor, int] = {}
    start = 0
    for parameter in networks.parameters():
        starts[parameter] = start
        start += parameter.numel()
    layers: list[Layer] = []

    def add(module: nn.Module, source: int, activation: int) -> int:
        assert isinstance(module, nn.Linear)
        weight, bias = starts[module.weight], starts[module.bias]
        layers.append(Layer(source, weight, bias, module.in_features, module.out_features, activation))
        return len(layers) - 1

    def add_trunk(trunk: Trunk) -> int:
        last, modules = OBSERVATIONS, list(trunk.hidden)
        for module, activation in zip(modules[::2], modules[1::2], strict=True):
            last = add(module, last, KNOWN[type(activation)])
        return last

    actor = add_trunk(networks.actor)
    critic = actor if networks.critic is None else add_trunk(networks.critic)
    return layers, add(networks.policy_head, actor, LINEAR), add(networks.value_head, critic, LINEAR)
