"""Small perceptrons in NumPy, forward and backward, where calls into torch cost more than the arithmetic."""

from typing import NamedTuple

import numpy as np
from torch import nn

from arena.policies.networks import ActorCritic, Tanh, Trunk, Vector


class Layer(NamedTuple):
    """A linear layer: views of its parameters and of their gradients, and what follows it.

    Attributes:
      weight: ``[outputs, inputs]``.
      bias: ``[outputs]``.
      weight_gradient: like ``weight``; None where nobody learns.
      bias_gradient: like ``bias``.
      activation: class of the module behind it, None for a head.
    """

    weight: np.ndarray
    bias: np.ndarray
    weight_gradient: np.ndarray | None
    bias_gradient: np.ndarray | None
    activation: type | None


class Perceptrons:
    """An ``ActorCritic`` computed on views of its weights: whatever changes those changes this.

    Only for what ``serves`` approves: a plain vector observed, no memory, on the CPU. ``backward`` writes the gradients
    of all linear layers in place.
    """

    def __init__(self, networks: ActorCritic) -> None:
        """Take views of all weights, and of all gradients that are there already."""
        encoder = networks.actor.encoder.leaves[0]
        assert isinstance(encoder, Vector)
        self._scale = encoder.scale
        self._policy_head = _layer(networks.policy_head, None)
        self._value_head = _layer(networks.value_head, None)
        self._actor = _layers(networks.actor)
        self._critic = None if networks.critic is None else _layers(networks.critic)

    @staticmethod
    def serves(networks: ActorCritic) -> bool:
        """Whether this computes what the networks do."""
        encoder = networks.actor.encoder
        known = {nn.Linear, nn.ReLU, Tanh}
        return (
            networks.memory is None
            and encoder.paths == [()]
            and isinstance(encoder.leaves[0], Vector)
            and all(type(layer) in known for layer in networks.actor.hidden)
            and networks.policy_head.weight.device.type == "cpu"
        )

    def act(self, observations: np.ndarray) -> np.ndarray:
        """Return the policy's outputs ``[N, outputs]`` for observations ``[N, ...]``."""
        return _linear(self._policy_head, _forward(self._actor, self._read(observations))[-1])

    def values(self, observations: np.ndarray) -> np.ndarray:
        """Return the values ``[N]`` of observations ``[N, ...]``."""
        layers = self._actor if self._critic is None else self._critic
        return _linear(self._value_head, _forward(layers, self._read(observations))[-1])[:, 0]

    def forward(self, observations: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray] | None]:
        """Return what ``backward`` needs: inputs and hidden layers of the actor and, where it is apart, the critic."""
        x = self._read(observations)
        return _forward(self._actor, x), None if self._critic is None else _forward(self._critic, x)

    def heads(self, actor: list[np.ndarray], critic: list[np.ndarray] | None) -> tuple[np.ndarray, np.ndarray]:
        """Return outputs ``[N, outputs]`` and values ``[N]``."""
        features = actor[-1] if critic is None else critic[-1]
        return _linear(self._policy_head, actor[-1]), _linear(self._value_head, features)[:, 0]

    def backward(
        self, actor: list[np.ndarray], critic: list[np.ndarray] | None, outputs: np.ndarray, values: np.ndarray
    ) -> None:
        """Write all gradients, given the loss's by outputs ``[N, outputs]`` and values ``[N]``.

        The hidden layers are overwritten: there is one backward pass for each forward pass.
        """
        values = values.reshape(-1, 1)
        if critic is None or self._critic is None:
            by_features = _head_backward(self._policy_head, actor[-1], outputs)
            by_features += _head_backward(self._value_head, actor[-1], values)
            _backward(self._actor, actor, by_features)
        else:
            _backward(self._actor, actor, _head_backward(self._policy_head, actor[-1], outputs))
            _backward(self._critic, critic, _head_backward(self._value_head, critic[-1], values))

    def _read(self, observations: np.ndarray) -> np.ndarray:
        x = observations.reshape(len(observations), -1).astype(np.float32, copy=False)
        return x if self._scale is None else x * np.float32(self._scale)


def _linear(layer: Layer, x: np.ndarray) -> np.ndarray:
    y = np.dot(x, layer.weight.T)
    y += layer.bias
    return y


def _forward(layers: list[Layer], x: np.ndarray) -> list[np.ndarray]:
    """Return the input ``[N, inputs]`` and every hidden layer ``[N, width]``."""
    found = [x]
    for layer in layers:
        x = _linear(layer, x)
        if layer.activation is Tanh:
            np.tanh(x, out=x)
        else:
            np.maximum(x, 0, out=x)
        found.append(x)
    return found


def _head_backward(layer: Layer, x: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """Write a linear layer's gradients, given the loss's by its output; return the loss's by its input."""
    _write_gradients(layer, x, gradient)
    return np.dot(gradient, layer.weight)


def _write_gradients(layer: Layer, x: np.ndarray, gradient: np.ndarray) -> None:
    np.dot(gradient.T, x, out=layer.weight_gradient)
    np.dot(np.ones(len(gradient), np.float32), gradient, out=layer.bias_gradient)  # a sum, several times faster


def _backward(layers: list[Layer], hidden: list[np.ndarray], gradient: np.ndarray) -> None:
    """Write all layers' gradients, given the loss's by the last hidden layer."""
    for index in reversed(range(len(layers))):
        layer, x, y = layers[index], hidden[index], hidden[index + 1]
        if layer.activation is Tanh:
            y *= y
            np.subtract(1, y, out=y)
            gradient *= y
        else:
            gradient *= y > 0
        _write_gradients(layer, x, gradient)
        if index > 0:
            gradient = np.dot(gradient, layer.weight)


def _layers(trunk: Trunk) -> list[Layer]:
    modules = list(trunk.hidden)
    return [_layer(modules[i], type(modules[i + 1])) for i in range(0, len(modules), 2)]


def _layer(module: nn.Module, activation: type | None) -> Layer:
    assert isinstance(module, nn.Linear)
    weight, bias = module.weight, module.bias
    return Layer(
        weight.detach().numpy(),
        bias.detach().numpy(),
        None if weight.grad is None else weight.grad.numpy(),
        None if bias.grad is None else bias.grad.numpy(),
        activation,
    )
