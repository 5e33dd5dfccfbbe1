"""The magnet of ``ppo``: a slow average of the policy, which the loss holds it near."""

import copy
from typing import Any

import numpy as np
import torch

from arena.common.errors import ConfigError
from arena.common.trees import map_tree
from arena.experience.rollout import Rollout
from arena.policies.networks import PolicyAndValue
from arena.policies.on_policy.paths import flat

PREFIX = "magnet."
"""Prefix of its tensors in a state dict."""


class Magnet:
    """A copy of the networks, with parameters that follow theirs slowly.

    In games of hidden information each answer to the current opponents is beaten by another one, so that naive
    self-play goes round. A policy that is held near its own slow average settles: magnetic mirror descent with a moving
    magnet (Sokota et al., "A unified approach to reinforcement learning, quantal response equilibria, and two-player
    zero-sum games", 2023).
    """

    def __init__(self, networks: PolicyAndValue, rate: float) -> None:
        """Begin at the networks' parameters.

        Args:
          networks: the networks that it follows, before anything holds views of their parameters.
          rate: share of their parameters that enters its own after each update.

        Raises:
          ConfigError: they are recurrent.
        """
        if networks.is_recurrent:
            raise ConfigError(
                "magnet_coefficient: expected a network without a memory beside it, found a recurrent one"
            )
        self._source, self._rate = networks, rate
        self._networks = copy.deepcopy(networks).requires_grad_(False)

    def outputs(self, rollout: Rollout) -> np.ndarray:
        """Return its outputs for the observations of all transitions, ``[T * L, outputs]``."""
        device = self._source.free.device

        def rows(array: np.ndarray) -> torch.Tensor:
            return torch.from_numpy(flat(array[: rollout.horizon])).to(device)

        with torch.inference_mode():
            outputs, _ = self._networks.policy(map_tree(rows, rollout.observations), None, None)
        return outputs.numpy(force=True)

    @torch.no_grad()
    def follow(self) -> None:
        """Move its parameters towards those of the networks; running normalisations are the networks' own."""
        for own, source in zip(self._networks.parameters(), self._source.parameters(), strict=True):
            own.lerp_(source, self._rate)
        for buffer, current in zip(self._networks.buffers(), self._source.buffers(), strict=True):
            buffer.copy_(current)

    def state_dict(self) -> dict[str, Any]:
        """Return its tensors, with ``PREFIX``; they share its memory."""
        return {PREFIX + name: tensor for name, tensor in self._networks.state_dict().items()}
