"""The forward pass of small perceptrons in NumPy, where a call into torch costs more than the arithmetic."""

from collections.abc import Callable

import numpy as np
from torch import nn

from arena.policies.networks import ActorCritic, Tanh, Trunk, Vector

Layer = tuple[np.ndarray, np.ndarray, Callable | None]


class Perceptrons:
    """Policy and value of an ``ActorCritic``, read from views of its weights: whatever changes those changes this.

    Only for what ``serves`` approves: a plain vector observed, no memory, on the CPU.
    """

    def __init__(self, networks: ActorCritic) -> None:
        """Take views of all weights."""
        encoder = networks.actor.encoder.leaves[0]
        assert isinstance(encoder, Vector)
        self._scale = encoder.scale
        actor = _layers(networks.actor)
        head = _layer(networks.policy_head)
        self._shared = [] if networks.critic is not None else actor
        self._actor = [head] if networks.critic is None else [*actor, head]
        critic = [] if networks.critic is None else _layers(networks.critic)
        self._critic = [*critic, _layer(networks.value_head)]

    @staticmethod
    def serves(networks: ActorCritic) -> bool:
        """Whether this forward pass computes what the networks do."""
        leaves = networks.actor.encoder.leaves
        known = {nn.Linear, nn.ReLU, Tanh}
        return (
            networks.memory is None
            and networks.actor.encoder.paths == [()]
            and isinstance(leaves[0], Vector)
            and all(type(layer) in known for layer in networks.actor.hidden)
            and networks.policy_head.weight.device.type == "cpu"
        )

    def __call__(self, observations: np.ndarray, value: bool) -> tuple[np.ndarray, np.ndarray | None]:
        """Return outputs ``[N, outputs]``, and values ``[N]`` if asked for."""
        x = observations.reshape(len(observations), -1).astype(np.float32, copy=False)
        if self._scale is not None:
            x = x * np.float32(self._scale)
        x = _apply(self._shared, x)
        return _apply(self._actor, x), _apply(self._critic, x)[:, 0] if value else None


def _apply(layers: list[Layer], x: np.ndarray) -> np.ndarray:
    for weight, bias, activation in layers:
        x = np.dot(x, weight)
        x += bias
        if activation is not None:
            activation(x)
    return x


def _layers(trunk: Trunk) -> list[Layer]:
    modules = list(trunk.hidden)
    return [_layer(modules[i], modules[i + 1]) for i in range(0, len(modules), 2)]


def _layer(module: nn.Module, activation: nn.Module | None = None) -> Layer:
    assert isinstance(module, nn.Linear)
    in_place = {nn.ReLU: _relu, Tanh: _tanh}.get(type(activation))
    return module.weight.detach().numpy().T, module.bias.detach().numpy(), in_place


def _tanh(x: np.ndarray) -> None:
    np.tanh(x, out=x)


def _relu(x: np.ndarray) -> None:
    np.maximum(x, 0, out=x)
