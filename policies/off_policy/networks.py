"""Networks of the algorithms that learn from a replay buffer: action values, and actors."""

import copy
import itertools
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from gymnasium import spaces as gym_spaces
from torch import nn

from arena.common.trees import nest
from arena.experience.row_layout import FOLLOWING, OBSERVATION
from arena.policies.compiled.perceptrons import CompiledPerceptrons
from arena.policies.encoders.composite import Encoder, check_normalization
from arena.policies.encoders.leaves import NormalizedLeaf
from arena.policies.encoders.parts import parts_of
from arena.policies.layers import ACTIVATIONS
from arena.policies.settings.networks import EncoderSettings


def perceptron(inputs: int, hidden: Sequence[int], outputs: int, activation: str) -> nn.Sequential:
    """Return hidden layers with their activation, and a linear layer.

    Initial weights are torch's defaults: the published settings of these algorithms assume them.
    """
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [nn.Linear(inputs, width), ACTIVATIONS[activation]()]
        inputs = width
    return nn.Sequential(*layers, nn.Linear(inputs, outputs))


def hidden_layers(
    space: gym_spaces.Space, configured: Sequence[int] | None, usual: Sequence[int], settings: EncoderSettings
) -> Sequence[int]:
    """Return the widths of the hidden layers: as configured, else the default, and none behind images alone."""
    if configured is not None:
        return configured
    return () if all(part.is_convolved for part in parts_of(space, settings)) else usual


class EncodedPerceptron(nn.Module):
    """An encoder followed by a perceptron: action values, or an actor."""

    layers: nn.Sequential

    def __init__(
        self, space: gym_spaces.Space, outputs: int, hidden: Sequence[int], activation: str, settings: EncoderSettings
    ) -> None:
        """Build an encoder for the observation space, and layers on it."""
        super().__init__()
        self.encoder = Encoder(space, settings)
        check_normalization(self.encoder, space, settings)
        self.layers = perceptron(self.encoder.width, hidden, outputs, activation)

    def forward(self, observations: Any) -> torch.Tensor:
        """Map a tensor ``[N, ...]``, or a nested dict or tuple of them ``-> [N, outputs]``."""
        return self.layers(self.encoder(observations))

    def compiled(self, parameters: torch.Tensor) -> CompiledPerceptrons:
        """Return the compiled path; ``parameters`` ``[P]`` are all parameters."""
        return CompiledPerceptrons(self, self.encoder, [self.layers], parameters)


class DuelingValues(nn.Module):
    """The value of each of n actions ``[N, n]``, as the sum of a state's value and each action's advantage.

    Q(s, a) = V(s) + A(s, a) - mean of A(s, .) (Wang et al., Dueling network architectures, 2016, equation 9); the last
    hidden layer is not shared by V and A.
    """

    def __init__(
        self, space: gym_spaces.Space, actions: int, hidden: Sequence[int], activation: str, settings: EncoderSettings
    ) -> None:
        """Build an encoder for the observation space, and layers on it."""
        super().__init__()
        self.encoder = Encoder(space, settings)
        check_normalization(self.encoder, space, settings)
        self.shared = perceptron(self.encoder.width, hidden[:-2], hidden[-2], activation) if len(hidden) > 1 else None
        self.activation = ACTIVATIONS[activation]()
        width, own = (hidden[-2] if len(hidden) > 1 else self.encoder.width), hidden[-1:]
        self.value = perceptron(width, own, 1, activation)
        self.advantage = perceptron(width, own, actions, activation)

    def forward(self, observations: Any) -> torch.Tensor:
        """Map a tensor ``[N, ...]``, or a nested dict or tuple of them ``-> [N, actions]``."""
        features = self.encoder(observations)
        if self.shared is not None:
            features = self.activation(self.shared(features))
        advantage = self.advantage(features)
        return self.value(features) + advantage - advantage.mean(1, keepdim=True)


def trainable(network: nn.Module) -> list[nn.Parameter]:
    """Return the parameters of a network that learn."""
    return [parameter for parameter in network.parameters() if parameter.requires_grad]


Network = TypeVar("Network", bound=nn.Module)


def target_of(network: Network) -> Network:
    """Return a copy of a network that has no gradients and follows it.

    They share running normalisations, and what is frozen.
    """
    encoders = [module for module in network.modules() if isinstance(module, Encoder)]
    shared: dict[int, Any] = {
        id(each): each for encoder in encoders for each in encoder.normalizations if each is not None
    }
    shared |= {id(each): each for each in network.parameters() if not each.requires_grad}
    target = copy.deepcopy(network, shared)
    for module in target.modules():
        if isinstance(module, NormalizedLeaf):
            module.share(module.applied)
    return target


class RowTensors:
    """Columns of rows as tensors on a device."""

    def __init__(self, space: gym_spaces.Space, device: torch.device) -> None:
        """Prepare the nesting of an observation's leaves."""
        self._space, self._device = space, device

    def column(self, rows: np.ndarray, name: str) -> torch.Tensor:
        """Return a column ``[N, ...]``."""
        return torch.from_numpy(np.ascontiguousarray(rows[name])).to(self._device)

    def observations(self, rows: np.ndarray) -> Any:
        """Return the observations before the action, nested like the space."""
        return self._nest(rows, OBSERVATION)

    def following(self, rows: np.ndarray) -> Any:
        """Return the observations after it, nested like the space."""
        return self._nest(rows, FOLLOWING)

    def _nest(self, rows: np.ndarray, prefix: str) -> Any:
        return nest(self._space, (self.column(rows, f"{prefix}{number}") for number in itertools.count()))


class Critic(nn.Module):
    """The value of an action: ``[N]``."""

    layers: nn.Sequential

    def __init__(
        self, space: gym_spaces.Space, actions: int, hidden: Sequence[int], activation: str, settings: EncoderSettings
    ) -> None:
        """Build an encoder for the observation space, and layers that read it and the action."""
        super().__init__()
        self.encoder = Encoder(space, settings)
        self.layers = perceptron(self.encoder.width + actions, hidden, 1, activation)

    def forward(self, observations: Any, actions: torch.Tensor) -> torch.Tensor:
        """Map observations ``[N, ...]`` and actions ``[N, actions]`` ``-> [N]``."""
        return self.layers(torch.cat((self.encoder(observations), actions), 1)).squeeze(1)


class Critics(nn.Module):
    """One critic or two with separate parameters; their results are stacked along a new first axis."""

    def __init__(self, critics: Sequence[Critic | EncodedPerceptron]) -> None:
        """Combine the critics."""
        super().__init__()
        self.each = nn.ModuleList(critics)

    @property
    def encoders(self) -> list[Encoder]:
        """The encoder of each critic."""
        return [critic.encoder for critic in self.each if isinstance(critic, Critic | EncodedPerceptron)]

    def compiled(self, parameters: torch.Tensor) -> CompiledPerceptrons:
        """Return the compiled path; ``parameters`` ``[P]`` are those of all critics."""
        perceptrons = [critic.layers for critic in self.each if isinstance(critic, Critic | EncodedPerceptron)]
        return CompiledPerceptrons(self, self.encoders[0], perceptrons, parameters)

    def forward(self, *inputs: Any) -> torch.Tensor:
        """Map the inputs of a critic, observations ``[N, ...]`` first, ``-> [critics, N, ...]``."""
        return torch.stack([critic(*inputs) for critic in self.each])
