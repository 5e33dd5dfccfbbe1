"""The entities of a team by kind: their places in joint rows, and in the actions that critics read."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces as gym_spaces
from torch import nn
from torch.nn import functional

from arena.common.trees import nest
from arena.envs.interface import EntitySpaces, Team
from arena.experience.joint_layout import NEXT_STATE, STATE, prefix_of
from arena.experience.row_layout import FOLLOWING, OBSERVATION
from arena.policies.distributions.discrete import NEVER
from arena.policies.multi_agent.networks import entities_outputs
from arena.policies.off_policy.actions import BoxActions, CategoricalActions


class TeamKind:
    """The entities of a team with equal spaces.

    Attributes:
      number: index of the kind.
      spaces: their spaces.
      entities: k, their number.
      places: their places among the K entities of a joint row.
      actions: their action space.
      sizes: number of values of each discrete choice; empty for a Box.
      width: numbers of one action in a critic's input: those of a Box, or a one-hot vector of each choice.
    """

    def __init__(
        self, number: int, team: Team, first: int, use: str, noise: str, *, lanes: int, device: torch.device
    ) -> None:
        """Read the spaces.

        Args:
          number: index of the kind.
          team: the team, with the positions of this kind.
          first: place of its first entity.
          use: name of the policy, for messages.
          noise: kind of the noise on the actions of a Box.
          lanes: number of lanes of this kind.
          device: device of the networks.

        Raises:
          ConfigError: the actions are neither a bounded Box nor Discrete nor MultiDiscrete.
        """
        self.number, self.entities = number, len(team.positions)
        self.spaces: EntitySpaces = team.entities[team.positions[0]]._replace(team=team)
        self.places = slice(first, first + self.entities)
        self.sizes: list[int] = []
        action = self.spaces.action
        if isinstance(action, (gym_spaces.Discrete, gym_spaces.MultiDiscrete)):
            self.actions: BoxActions | CategoricalActions = CategoricalActions(action)
            self.sizes = self.actions.sizes
            self.width = sum(self.sizes)
        else:
            self.actions = BoxActions(use, self.spaces, noise, lanes=lanes)
            self.width = self.actions.size
        # [k, k * width], 1 for an entity's own action
        self._own = torch.eye(self.entities, device=device).repeat_interleave(self.width, 1)
        self._starts = torch.tensor(np.cumsum([0, *self.sizes[:-1]]), device=device)

    def encode(self, choice: torch.Tensor) -> torch.Tensor:
        """Return choices ``[B, k, ...]`` as critics read them, ``[B, k, width]`` float32."""
        if not self.sizes:
            return choice
        one_hot = choice.new_zeros((*choice.shape[:2], self.width), dtype=torch.float32)
        return one_hot.scatter_(2, choice + self._starts, 1.0)

    def beside_own(self, all_actions: torch.Tensor) -> torch.Tensor:
        """Return the actions of the kind for each entity, its own as zeros.

        Args:
          all_actions: ``[B, k * width]``.

        Returns:
          ``[B, k, k * width]``.
        """
        return all_actions[:, None] * (1 - self._own)

    def with_own(self, all_actions: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
        """Return the actions of the kind for each entity, its own replaced, so that only that one has a gradient.

        Args:
          all_actions: ``[B, k * width]``, without a gradient.
          own: ``[B, k, width]``, the new actions.

        Returns:
          ``[B, k, k * width]``.
        """
        return self.beside_own(all_actions) + own.flatten(1)[:, None] * self._own

    def log_probs(self, logits: torch.Tensor) -> list[torch.Tensor]:
        """Return the log probabilities of each discrete choice's values, ``[B, k, size]`` each."""
        return [part.log_softmax(2) for part in logits.split(self.sizes, 2)]

    def hard_sample(self, logits: torch.Tensor, gumbel: torch.Tensor) -> torch.Tensor:
        """Return one-hot samples ``[B, k, width]`` of each choice by the Gumbel-max trick.

        Args:
          logits: ``[B, k, width]``.
          gumbel: standard Gumbel noise of the same shape.
        """
        parts = (logits + gumbel).split(self.sizes, 2)
        hard = [functional.one_hot(part.argmax(2), size) for part, size in zip(parts, self.sizes, strict=True)]
        return torch.cat(hard, 2).float()

    def straight_through(self, logits: torch.Tensor, gumbel: torch.Tensor) -> torch.Tensor:
        """Return one-hot samples with the gradient of the Gumbel softmax at temperature 1 (Jang et al., 2017)."""
        soft = torch.cat([part.softmax(2) for part in (logits + gumbel).split(self.sizes, 2)], 2)
        return self.hard_sample(logits, gumbel) + soft - soft.detach()

    def draw(self, count: int, random: np.random.Generator) -> np.ndarray:
        """Return noise ``[count, k, width]`` float32: standard normal for a Box, else standard Gumbel."""
        shape = count, self.entities, self.width
        if self.sizes:
            return random.gumbel(size=shape).astype(np.float32)
        return random.standard_normal(shape, np.float32)


def kinds_of(team: Team, use: str, noise: str, *, copies: int, device: torch.device) -> list[TeamKind]:
    """Return the kinds of a team in ``copies`` copies; for the other arguments and errors see ``TeamKind``."""
    kinds: list[TeamKind] = []
    first = 0
    for number, part in enumerate(team.kinds()):
        entities = len(part.positions)
        kinds.append(TeamKind(number, part, first, use, noise, lanes=copies * entities, device=device))
        first += entities
    return kinds


class Actors:
    """The actors of a team by kind.

    Attributes:
      module: the only actor, or all of them in a list.
    """

    def __init__(self, module: nn.Module, kinds: Sequence[TeamKind], *, shared: bool) -> None:
        """Assign actors to kinds: one to each, or ``shared`` False, one to each entity."""
        self.module = module
        everyone = list(module) if isinstance(module, nn.ModuleList) else [module]
        self.of_kind: list[list[nn.Module]] = []
        for kind in kinds:
            count = 1 if shared else kind.entities
            self.of_kind.append(everyone[:count])
            everyone = everyone[count:]

    def __call__(self, kind: TeamKind, observations: Any) -> torch.Tensor:
        """Return the outputs ``[B, k, outputs]`` for observations ``[B, k, ...]``, a tensor or a nest of them."""
        return entities_outputs(self.of_kind[kind.number], observations)


class JointRowTensors:
    """Columns of joint rows as tensors on a device; see ``JointTransitions``."""

    def __init__(self, rows: np.ndarray, state: gym_spaces.Space, device: torch.device) -> None:
        """Store the rows ``[B]``."""
        self._rows, self._state, self._device = rows, state, device

    def column(self, name: str) -> torch.Tensor:
        """Return a column ``[B, ...]``."""
        return torch.from_numpy(np.ascontiguousarray(self._rows[name])).to(self._device)

    def of_kind(self, kind: TeamKind, name: str) -> torch.Tensor:
        """Return a column of a kind, ``[B, k, ...]``."""
        return self.column(prefix_of(kind.number) + name)

    def observations(self, kind: TeamKind) -> Any:
        """Return the observations of a kind before the actions, nested like the space."""
        return self._nest(kind.spaces.observation, prefix_of(kind.number) + OBSERVATION)

    def following(self, kind: TeamKind) -> Any:
        """Return the observations of a kind after them, nested like the space."""
        return self._nest(kind.spaces.observation, prefix_of(kind.number) + FOLLOWING)

    def state(self) -> Any:
        """Return the global state before the actions, nested like its space."""
        return self._nest(self._state, STATE)

    def next_state(self) -> Any:
        """Return the global state after them, nested like its space."""
        return self._nest(self._state, NEXT_STATE)

    def _nest(self, space: gym_spaces.Space, prefix: str) -> Any:
        names = (f"{prefix}{leaf}" for leaf in range(len(self._rows.dtype.names or ())))
        return nest(space, (self.column(name) for name in names))

    def masked(self, logits: torch.Tensor, kind: TeamKind, name: str) -> torch.Tensor:
        """Return logits ``[B, k, width]`` with those of actions that a mask's column forbids set to ``NEVER``.

        An entity that is not present may have an empty mask: its logits stay.
        """
        if not kind.sizes or not kind.spaces.mask_size:
            return logits
        mask = self.of_kind(kind, name) != 0
        return logits.masked_fill(~mask & mask.any(2, keepdim=True), NEVER)


def log_entropy_of(kind: TeamKind, mask: np.ndarray | None) -> np.ndarray | float:
    """Return the entropy of even choices among the allowed actions of a kind, in nats.

    Args:
      kind: the kind, with discrete choices.
      mask: ``[B, k, width]``, nonzero is allowed; None if there is none.

    Returns:
      ``[B, k]``, or a number without a mask.
    """
    if mask is None:
        return sum(math.log(size) for size in kind.sizes)
    starts = np.cumsum([0, *kind.sizes[:-1]])
    return np.log(np.maximum(np.add.reduceat(mask != 0, starts, 2, np.float64), 1)).sum(2)
