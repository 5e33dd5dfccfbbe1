"""Interface between SAC and the parts of it that depend on the action space."""

from typing import Any, Protocol

import numpy as np
import torch

from arena.policies.compiled.actor_critics import CompiledSAC
from arena.policies.compiled.discrete_sac import CompiledDiscreteSAC
from arena.policies.off_policy.actions import BoxActions, CategoricalActions
from arena.policies.off_policy.networks import Critics, EncodedPerceptron, RowTensors


class ActionForm(Protocol):
    """Actor, critics and their losses for one kind of action space.

    Attributes:
      actions: the action space.
      actor: maps observations to the parameters of a distribution of actions.
      critics: two critics.
    """

    actions: BoxActions | CategoricalActions
    actor: EncodedPerceptron
    critics: Critics

    def choose(
        self,
        outputs: np.ndarray,
        mask: np.ndarray | None,
        lanes: slice | None,
        random: np.random.Generator,
        *,
        deterministic: bool,
    ) -> np.ndarray:
        """Return choices ``[N, ...]`` for the actor's outputs ``[N, outputs]``.

        Args:
          outputs: results of the actor.
          mask: ``[N, values]``, nonzero is allowed; None if the space has no mask.
          lanes: draw from the own noise of these lanes; None draws from ``random``.
          random: source of samples.
          deterministic: whether the most likely action is taken.
        """

    def target_entropy(self, rows: np.ndarray) -> float:
        """Return the target of the mean entropy over some rows, in nats."""

    def draw(self, count: int, random: np.random.Generator) -> Any:
        """Return the noise of a gradient step over ``count`` rows; None if nothing is sampled."""

    def compiled(
        self, actor: torch.Tensor, critics: torch.Tensor, target: Critics, follower: torch.Tensor
    ) -> CompiledSAC | CompiledDiscreteSAC | None:
        """Return the compiled path; None if it does not support the networks.

        Args:
          actor: vector of the actor's parameters.
          critics: vector of the critics' parameters.
          target: critics of the targets.
          follower: vector of their parameters.
        """

    # The torch path

    def next_value(
        self, columns: RowTensors, rows: np.ndarray, noise: Any, target: Critics, alpha: torch.Tensor
    ) -> torch.Tensor:
        """Return the values ``[B]`` of the next observations of rows, entropy included.

        Args:
          columns: reads columns of the rows as tensors.
          rows: ``[B]``, see ``Transitions``.
          noise: as returned by ``draw``.
          target: critics of the targets.
          alpha: entropy coefficient.
        """

    def chosen_values(self, columns: RowTensors, rows: np.ndarray) -> torch.Tensor:
        """Return both critics' values of the actions in rows, ``[2, B]``."""

    def actor_loss(
        self, columns: RowTensors, rows: np.ndarray, noise: Any, alpha: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the loss of the actor, and the policy's entropy; arguments as in ``next_value``."""
