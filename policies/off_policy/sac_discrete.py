"""The parts of SAC that depend on the actions, for Discrete and MultiDiscrete: expectations instead of samples.

Christodoulou, Soft actor-critic for discrete action settings, 2019. Several choices (MultiDiscrete) are independent
given the observation, and the value of an action is the sum of the values of its choices, so that expectations over all
actions are sums over the values of each choice. Of the two critics, the lower value of each action counts where there
is one choice, and with several the critic with the lower expectation.
"""

import math

import numpy as np
import torch
from gymnasium import spaces as gym_spaces

from arena.envs.interface import EntitySpaces
from arena.policies.compiled.discrete_sac import CompiledDiscreteSAC
from arena.policies.compiled.perceptrons import serves
from arena.policies.encoders.composite import share_normalization
from arena.policies.off_policy.actions import CategoricalActions
from arena.policies.off_policy.networks import Critics, EncodedPerceptron, RowTensors, hidden_layers
from arena.policies.off_policy.sac_form import ActionForm
from arena.policies.off_policy.settings import SACSettings

NEVER = -1e9  # logit of a masked action; finite, so that no product with it becomes NaN
USUAL = (128, 128)
"""Widths of the hidden layers by default, as for ``dqn``."""


class DiscreteForm(ActionForm):
    """Actor, critics and their losses for Discrete and MultiDiscrete.

    Attributes:
      actions: the action space.
      sizes: number of values of each choice.
      actor: maps observations to logits, those of one choice behind those of another.
      critics: map observations to values ``[2, N, outputs]`` in the same order.
    """

    def __init__(self, spaces: EntitySpaces, settings: SACSettings, *, lanes: int, device: str) -> None:
        """Build the networks.

        Raises:
          ConfigError: the action space is neither Discrete nor MultiDiscrete.
        """
        settings.check_spaces("sac", spaces)
        assert isinstance(spaces.action, (gym_spaces.Discrete, gym_spaces.MultiDiscrete))
        self.actions = CategoricalActions(spaces.action)
        self.sizes, self._masked = self.actions.sizes, spaces.mask_size > 0
        outputs = sum(self.sizes)
        shape = hidden_layers(spaces.observation, settings.hidden, USUAL, settings), settings.activation, settings
        self.actor = EncodedPerceptron(spaces.observation, outputs, *shape).to(device)
        critics = [EncodedPerceptron(spaces.observation, outputs, *shape) for _ in range(2)]
        self.critics = Critics(critics).to(device)
        share_normalization(self.actor.encoder, *self.critics.encoders)
        self._share, self._fixed = settings.target_entropy_share, settings.target_entropy
        self._starts = np.cumsum([0, *self.sizes[:-1]])

    def choose(
        self,
        outputs: np.ndarray,
        mask: np.ndarray | None,
        lanes: slice | None,
        random: np.random.Generator,
        *,
        deterministic: bool,
    ) -> np.ndarray:
        """See ``ActionForm``; ``lanes`` have no noise of their own."""
        return self.actions.sample(outputs, mask, random, deterministic=deterministic)

    def probabilities(self, outputs: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
        """Return the probability of each value of a single choice, ``[N, n]``."""
        return self.actions.probabilities(outputs, mask)

    def target_entropy(self, rows: np.ndarray) -> float:
        """See ``ActionForm``; a share of the entropy of even choices."""
        if self._fixed is not None:
            return self._fixed
        if not self._masked:
            return self._share * sum(math.log(size) for size in self.sizes)
        allowed = np.add.reduceat(rows["mask"] != 0, self._starts, 1, np.float64)
        return self._share * float(np.log(np.maximum(allowed, 1)).sum(1).mean())

    def draw(self, count: int, random: np.random.Generator) -> None:
        """Return None: nothing is sampled."""

    def compiled(
        self, actor: torch.Tensor, critics: torch.Tensor, target: Critics, follower: torch.Tensor
    ) -> CompiledDiscreteSAC | None:
        """See ``ActionForm``."""
        if not serves(self.actor.encoder, self.actor.layers):
            return None
        acting, learning = (self.actor.compiled(actor) for _ in range(2))
        return CompiledDiscreteSAC(
            acting, learning, self.critics.compiled(critics), target.compiled(follower), self.sizes
        )

    # The torch path

    def next_value(
        self, columns: RowTensors, rows: np.ndarray, noise: None, target: Critics, alpha: torch.Tensor
    ) -> torch.Tensor:
        """See ``ActionForm``."""
        following = columns.following(rows)
        log_probs = self._log_probs(columns, rows, following, "next_mask")
        entropy, value = self._expectations(log_probs, target(following))
        return value + alpha * entropy

    def chosen_values(self, columns: RowTensors, rows: np.ndarray) -> torch.Tensor:
        """See ``ActionForm``."""
        values = self.critics(columns.observations(rows))
        index = columns.column(rows, "choice") + torch.from_numpy(self._starts).to(values.device)
        return values.gather(2, index.expand(2, *index.shape)).sum(2)

    def actor_loss(
        self, columns: RowTensors, rows: np.ndarray, noise: None, alpha: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See ``ActionForm``."""
        observations = columns.observations(rows)
        log_probs = self._log_probs(columns, rows, observations, "mask")
        with torch.no_grad():
            values = self.critics(observations)
        entropy, value = self._expectations(log_probs, values)
        return -(value + alpha * entropy).mean(), entropy.detach().mean()

    def _log_probs(self, columns: RowTensors, rows: np.ndarray, observations: object, mask: str) -> list[torch.Tensor]:
        """Return the log probabilities of each choice's values, ``[B, size]`` each."""
        logits = self.actor(observations)
        if self._masked:
            logits = logits.masked_fill(columns.column(rows, mask) == 0, NEVER)
        return [part.log_softmax(1) for part in logits.split(self.sizes, 1)]

    def _expectations(self, log_probs: list[torch.Tensor], values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return entropy and expected value of both critics' ``values`` ``[2, B, outputs]``, ``[B]`` each."""
        entropy = -sum(((part.exp() * part).sum(1) for part in log_probs), torch.zeros((), device=values.device))
        if len(log_probs) == 1:
            return entropy, (log_probs[0].exp() * values.amin(0)).sum(1)
        parts = zip(log_probs, values.split(self.sizes, 2), strict=True)
        totals = torch.stack([(part.exp() * value).sum(2) for part, value in parts]).sum(0)
        return entropy, totals.amin(0)
