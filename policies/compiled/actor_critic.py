"""Perceptrons in compiled loops, forward and backward: in small ones calls into torch cost more than the arithmetic."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from arena.policies.compiled.layers import LINEAR, OBSERVATIONS, RELU, TANH, backward, forward
from arena.policies.networks import ActorCritic, Tanh, Trunk, Vector

KNOWN = {Tanh: TANH, nn.ReLU: RELU}
"""Activations that are compiled."""


class Layer(NamedTuple):
    """A linear layer and what follows it.

    Attributes:
      source: its place among all layers of the one that it reads, or OBSERVATIONS.
      weight, bias: where its parameters start in the vector of all.
      inputs, outputs: its widths.
      activation: as layers.py numbers them.
    """

    source: int
    weight: int
    bias: int
    inputs: int
    outputs: int
    activation: int


class Plan:
    """Layers to compute one after the other, and memory for what they say about N samples, kept from call to call.

    Attributes:
      table: as layers.py reads it.
      x: ``[N, inputs]``, what the first layers read.
      results: what all layers say, as layers.py lays it out.
      slopes: the loss's derivatives by it.
      said: the heads' results, ``[N, outputs]`` each.
      wanted: the heads' slopes.
    """

    def __init__(self, layers: Sequence[Layer], heads: Sequence[int], inputs: int) -> None:
        """Take what some heads, given by their places among all layers, read."""
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
        self._inputs, self.count = inputs, -1
        self._memory = np.empty((3, 0), np.float32)

    def make_room(self, count: int) -> None:
        """Have room for as many samples."""
        self.count = count
        items = count * max(self._inputs, self._width)
        if self._memory.shape[1] < items:
            self._memory = np.empty((3, items), np.float32)
        self.x = self._memory[0, : count * self._inputs].reshape(count, self._inputs)
        self.results, self.slopes = self._memory[1:]
        self.said, self.wanted = ([_part(array, count, *head) for head in self._heads] for array in self._memory[1:])


def _part(array: np.ndarray, count: int, place: int, outputs: int) -> np.ndarray:
    """Return what lies in the place of a layer, ``[count, outputs]``."""
    return array[count * place : count * (place + outputs)].reshape(count, outputs)


class CompiledActorCritic:
    """An ``ActorCritic`` computed from the vector of its parameters: whatever changes those changes this.

    Only for what ``serves`` approves: a plain vector observed, no memory, on the CPU. What is returned lies in memory
    that the next call uses again, so that two threads must not share one.
    """

    def __init__(self, networks: ActorCritic, parameters: np.ndarray, gradient: np.ndarray) -> None:
        """Take float32 vectors of all parameters and of their gradients, in the order of ``networks.parameters()``."""
        encoder = networks.encoder.leaves[0]
        assert isinstance(encoder, Vector)
        self._scale = encoder.scale
        self._value_gradient = networks.value_gradient if networks.critic is None else 1.0
        self._parameters, self._gradient = parameters, gradient
        layers, policy, value = _layers(networks)
        self._policy, self._value, self._both = (
            Plan(layers, heads, encoder.width) for heads in ([policy], [value], [policy, value])
        )

    @staticmethod
    def serves(networks: ActorCritic) -> bool:
        """Whether this computes what the networks do."""
        encoder = networks.encoder
        known = {nn.Linear, *KNOWN}
        return (
            networks.actor.memory is None
            and encoder.paths == [()]
            and isinstance(encoder.leaves[0], Vector)
            and all(type(layer) in known for layer in networks.actor.hidden)
            and networks.policy_head.weight.device.type == "cpu"
        )

    def act(self, observations: np.ndarray) -> np.ndarray:
        """Return the policy's outputs ``[N, outputs]`` for observations ``[N, ...]``."""
        return self._compute(self._policy, observations)[0]

    def values(self, observations: np.ndarray) -> np.ndarray:
        """Return the values ``[N]`` of observations ``[N, ...]``."""
        return self._compute(self._value, observations)[0][:, 0].copy()

    def forward(self, observations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return outputs ``[N, outputs]`` and values ``[N]``."""
        outputs, values = self._compute(self._both, observations)
        return outputs, values[:, 0]

    def backward(self, by_outputs: np.ndarray, by_values: np.ndarray) -> None:
        """Write all gradients, given the loss's by what ``forward`` returned a moment ago."""
        plan = self._both
        policy, value = plan.wanted
        policy[...] = by_outputs
        value[:, 0] = by_values
        backward(self._parameters, self._gradient, plan.table, plan.x, plan.results, plan.slopes, self._value_gradient)

    def _compute(self, plan: Plan, observations: np.ndarray) -> list[np.ndarray]:
        """Return what the heads of a plan say, each ``[N, outputs]``."""
        if plan.count != len(observations):
            plan.make_room(len(observations))
        x = plan.x
        x[...] = observations.reshape(x.shape)
        if self._scale is not None:
            x *= self._scale
        forward(self._parameters, plan.table, x, plan.results)
        return plan.said


def _layers(networks: ActorCritic) -> tuple[list[Layer], int, int]:
    """Return all layers, the value's head last, and the places of the policy's and of the value's head among them."""
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
