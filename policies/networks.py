"""Actor-critic networks: an encoder, a trunk with an optional recurrent layer, and two heads."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import torch
from gymnasium import spaces as gym_spaces
from torch import nn

from arena.policies.encoders.composite import Encoder, check_normalization, share_normalization
from arena.policies.encoders.leaves import Measured
from arena.policies.encoders.parts import Part, parts_of, with_state
from arena.policies.layers import ACTIVATIONS, SQRT_2, linear
from arena.policies.on_policy.value_scale import ValueScale
from arena.policies.recurrent import GRU, LSTM, Recurrent
from arena.policies.settings.networks import NetworkSettings

VALUE_GRADIENT = 0.1
"""Share of the value's gradient in a common trunk, on vectors.

The whole is many times the policy's where returns exceed one: CartPole then ends at 200 to 260 of 500, with a tenth or
a hundredth at 490 to 500 (benchmarks/NOTES.md).
"""


class NetworkOutput(NamedTuple):
    """Outputs of one forward pass for N observations.

    Attributes:
      outputs: ``[N, outputs]``, parameters of the distribution.
      values: ``[N]``.
      state: ``[N, rows, width]``, the next recurrent state; None for feed-forward networks.
    """

    outputs: Any
    values: Any
    state: Any


class PolicyAndValue(nn.Module):
    """Base of the networks of ``ppo``: a policy and a value.

    Attributes:
      has_central_critic: whether the value reads the global state, too.
      value_scale: conversion of the value head's outputs to values; None if they are the values.
      value_head: the layer that it rescales.
      policy_rows: vectors of the policy's recurrent state, the first ones of ``state_shape``.
      state_shape: vectors of the recurrent state of a lane, and their width; no vectors for feed-forward networks.
      free: the distribution's learned parameters that do not depend on the observation.
    """

    has_central_critic: bool
    value_scale: ValueScale | None
    value_head: nn.Linear
    policy_rows: int
    state_shape: tuple[int, int]
    free: torch.Tensor

    def _add_scales(self, free: Sequence[float], settings: NetworkSettings) -> None:
        """Create what does not depend on the layers; ``free`` are the first values of the attribute of that name."""
        self.value_scale = ValueScale() if settings.normalizes_values else None
        if free:
            self.free = nn.Parameter(torch.tensor(free, dtype=torch.float32))
        else:
            self.register_buffer("free", torch.empty(0), persistent=False)

    def forward(
        self,
        observations: Any,
        starts: torch.Tensor | None = None,
        state: torch.Tensor | None = None,
        global_state: Any = None,
    ) -> NetworkOutput:
        """Return the outputs for N observations ``[N, ...]``.

        Recurrent networks take T time steps of N / T lanes, time first; ``starts`` is ``[T, N / T]`` and ``state`` ``[N
        / T, rows, width]`` before the first step. A central critic takes a ``global_state`` ``[N, ...]``.
        """
        raise NotImplementedError

    def policy(
        self, observations: Any, starts: torch.Tensor | None, state: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the policy's outputs ``[N, outputs]``, and its next recurrent state.

        Arguments as in ``forward``; of ``state`` the policy's part.
        """
        raise NotImplementedError

    def policy_step(
        self, observations: Any, starts: torch.Tensor | None = None, state: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the policy's outputs ``[N, outputs]`` for one time step of N lanes, and its next recurrent state.

        Args:
          observations: as in ``forward``.
          starts: ``[N]`` bool, episode starts; for recurrent networks, like ``state``.
          state: ``[N, policy_rows, width]``, the policy's part of the recurrent state.
        """
        raise NotImplementedError

    def central_values(
        self, observations: Any, global_state: Any, starts: torch.Tensor | None, state: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return a central critic's outputs ``[N]``, and its next recurrent state.

        Arguments as in ``forward``; of ``state`` the critic's part.
        """
        raise NotImplementedError

    def arranged(self, observations: Any) -> Any:
        """Return observations ``[N, ...]`` in the order in memory in which they are read fastest."""
        return observations

    @property
    def measuring_encoder(self) -> Measured:
        """The module with all running normalisations."""
        raise NotImplementedError

    @property
    def is_recurrent(self) -> bool:
        """Whether there is a recurrent state."""
        return self.state_shape[0] > 0

    @property
    def is_normalizing(self) -> bool:
        """Whether there is a running normalisation."""
        return any(self.measuring_encoder.normalizations)

    @property
    def is_unmeasured(self) -> bool:
        """Whether a running normalisation has no statistics yet."""
        return any(each is not None and each.is_empty for each in self.measuring_encoder.normalizations)


class ActorCritic(PolicyAndValue):
    """Policy and value networks: one common trunk, or two with a common encoder or none.

    A central critic reads the observation and the global state. Where there is no such state, the networks only act,
    and have no central critic.

    Attributes:
      value_gradient: share of the value's gradient that enters layers common to policy and value.
    """

    def __init__(
        self,
        space: gym_spaces.Space,
        outputs: int,
        free: Sequence[float],
        settings: NetworkSettings,
        state_space: gym_spaces.Space | None = None,
    ) -> None:
        """Build the layers for an observation space.

        Args:
          space: observation space.
          outputs: numbers per sample for the distribution.
          free: initial values of its other learned parameters.
          settings: widths and options.
          state_space: space of the global state that a central critic reads; None if there is none.

        Raises:
          ConfigError: a leaf of the space has no encoder.
        """
        super().__init__()
        parts = parts_of(space, settings)
        hidden = _hidden(parts, settings)
        self.has_central_critic = settings.reads_global_state and state_space is not None
        shared = True if settings.reads_global_state else settings.shared  # a central critic is built below
        if shared is None:
            shared = _shared(parts, settings)
        self.actor = Trunk(Encoder(space, settings, parts), hidden, settings)
        check_normalization(self.encoder, space, settings)
        self.critic = None
        if self.has_central_critic:
            assert state_space is not None
            shared = False
            inputs, all_parts = gym_spaces.Tuple((space, state_space)), with_state(parts, state_space, settings)
            self.critic = Trunk(Encoder(inputs, settings, all_parts), _hidden(all_parts, settings), settings)
        elif shared == "encoder":
            self.critic = Trunk(self.encoder.width, hidden, settings)
        elif shared is not True:
            self.critic = Trunk(Encoder(space, settings, parts), hidden, settings)
        if self.critic is not None and self.critic.encoder is not None:
            share_normalization(self.encoder, self.critic.encoder)
        if settings.value_gradient is not None:
            self.value_gradient = settings.value_gradient
        elif shared is True and settings.is_recurrent:
            self.value_gradient = 0.0
        else:
            self.value_gradient = 1.0 if not shared or any(part.has_image for part in parts) else VALUE_GRADIENT
        memories = [trunk.memory for trunk in (self.actor, self.critic) if trunk is not None]
        rows = [0 if memory is None else memory.rows for memory in memories]
        self.policy_rows = rows[0]
        self.state_shape = sum(rows), settings.memory_width
        # Small policy weights yield nearly uniform initial probabilities.
        self.policy_head = linear(self.actor.width, outputs, 0.01)
        width = self.actor.width if self.critic is None else self.critic.width
        self.value_head = linear(width, 1, 1.0)
        self._add_scales(free, settings)

    @property
    def encoder(self) -> Encoder:
        """Encoder of the policy's observations."""
        assert self.actor.encoder is not None
        return self.actor.encoder

    def forward(
        self,
        observations: Any,
        starts: torch.Tensor | None = None,
        state: torch.Tensor | None = None,
        global_state: Any = None,
    ) -> NetworkOutput:
        """See ``PolicyAndValue``."""
        policy_state, value_state = None, None
        if state is not None:
            policy_state, value_state = state[:, : self.policy_rows], state[:, self.policy_rows :]
        encoded = self.encoder(observations)
        features, after = self.actor(encoded, starts, policy_state)
        if self.critic is None:
            value_features = _scale_gradient(features, self.value_gradient)
        else:
            if self.critic.encoder is None:
                encoded = _scale_gradient(encoded, self.value_gradient)
            else:
                seen = (observations, global_state) if self.has_central_critic else observations
                encoded = self.critic.encoder(seen)
            value_features, value_after = self.critic(encoded, starts, value_state)
            if after is not None:
                after = torch.cat((after, value_after), 1)
        return NetworkOutput(self.policy_head(features), self.value_head(value_features).squeeze(-1), after)

    def policy(
        self, observations: Any, starts: torch.Tensor | None, state: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """See ``PolicyAndValue``."""
        features, after = self.actor(self.encoder(observations), starts, state)
        return self.policy_head(features), after

    def central_values(
        self, observations: Any, global_state: Any, starts: torch.Tensor | None, state: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """See ``PolicyAndValue``."""
        assert self.critic is not None and self.critic.encoder is not None
        features, after = self.critic(self.critic.encoder((observations, global_state)), starts, state)
        return self.value_head(features).squeeze(-1), after

    @property
    def measuring_encoder(self) -> Encoder:
        """The encoder with all running normalisations: a central critic's shares those of the policy's."""
        if not self.has_central_critic:
            return self.encoder
        assert self.critic is not None and self.critic.encoder is not None
        return self.critic.encoder

    def arranged(self, observations: Any) -> Any:
        """See ``PolicyAndValue``: images."""
        return self.encoder.arranged(observations)

    def policy_step(
        self, observations: Any, starts: torch.Tensor | None = None, state: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """See ``PolicyAndValue``."""
        features, after = self.actor.step(self.encoder(observations), starts, state)
        return self.policy_head(features), after


def _hidden(parts: Sequence[Part], settings: NetworkSettings) -> Sequence[int]:
    """Return the widths of the hidden layers behind the encoders of an observation's parts."""
    if settings.hidden is not None:
        return settings.hidden
    return () if all(part.is_convolved for part in parts) else (64, 64)


def _shared(parts: Sequence[Part], settings: NetworkSettings) -> bool | Literal["encoder"]:
    """Return what policy and value share by default; see ``NetworkSettings.shared``."""
    if any(part.is_own for part in parts) or (settings.is_recurrent and any(part.is_convolved for part in parts)):
        return "encoder"
    return any(part.is_convolved for part in parts)


ACTING_PARTS = ("actor.", "policy_head.", "free")
"""Beginnings of the names of an ``ActorCritic``'s tensors that acting needs."""


def acting_tensors(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Return the named tensors of an ``ActorCritic`` that acting needs."""
    return {name: tensor for name, tensor in tensors.items() if name.startswith(ACTING_PARTS)}


def _scale_gradient(x: torch.Tensor, share: float) -> torch.Tensor:
    """Return ``x``, with a backward pass that scales the gradient by ``share``."""
    if share == 1:
        return x
    return x.detach() if share == 0 else torch.lerp(x.detach(), x, share)


class Trunk(nn.Module):
    """Layers before a head: an encoder, or another trunk's; an optional recurrent layer; hidden layers.

    The hidden layers read the recurrent layer's output and its input, so that the current observation need not pass
    through it (Ni et al., Recurrent model-free RL can be a strong baseline for many POMDPs, 2022).

    Attributes:
      width: width of the features ``[N, width]``.
    """

    encoder: Encoder | None
    memory: Recurrent | None

    def __init__(self, encoder: Encoder | int, hidden: Sequence[int], settings: NetworkSettings) -> None:
        """Build the layers on an encoder, or on another trunk's encoder of this width."""
        super().__init__()
        self.encoder, self.width = (None, encoder) if isinstance(encoder, int) else (encoder, encoder.width)
        self.memory = None
        if settings.is_recurrent:
            self.memory = (GRU if settings.gru else LSTM)(self.width, settings.memory_width)
            self.width += self.memory.width
        layers: list[nn.Module] = []
        for width in hidden:
            layers += [linear(self.width, width, SQRT_2), ACTIVATIONS[settings.activation]()]
            self.width = width
        self.hidden = nn.Sequential(*layers)

    def forward(
        self, encoded: torch.Tensor, starts: torch.Tensor | None, state: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the features for an encoder's output, and the next recurrent state.

        Args:
          encoded: ``[N, encoder's width]``.
          starts: see ``ActorCritic.forward``.
          state: likewise, this trunk's part.
        """
        after = None
        if self.memory is not None:
            assert starts is not None and state is not None
            remembered, after = self.memory(encoded.view(*starts.shape, -1), starts, state)
            encoded = torch.cat((encoded, remembered.flatten(0, 1)), 1)
        return self.hidden(encoded), after

    def step(
        self, encoded: torch.Tensor, starts: torch.Tensor | None, state: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the same for one time step in plain torch, which exporters can trace; ``starts`` is ``[N]``."""
        after = None
        if self.memory is not None:
            assert starts is not None and state is not None
            after = self.memory.step(encoded, starts, state)
            encoded = torch.cat((encoded, after[:, 0]), 1)
        return self.hidden(encoded), after
