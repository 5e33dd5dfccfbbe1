"""The parts of SAC that depend on the actions, for a Box: actions are sampled and squashed."""

import math

import numpy as np
import torch
from torch.nn import functional

from arena.envs.interface import EntitySpaces
from arena.policies.compiled.actor_critics import CompiledSAC
from arena.policies.compiled.actor_critics import squash as squash_to
from arena.policies.compiled.perceptrons import serves
from arena.policies.encoders.composite import share_normalization
from arena.policies.off_policy.actions import BoxActions
from arena.policies.off_policy.networks import Critic, Critics, EncodedPerceptron, RowTensors, hidden_layers
from arena.policies.off_policy.sac_form import ActionForm
from arena.policies.off_policy.settings import SACSettings

LEAST, MOST = -20.0, 2.0  # log standard deviations, as in the paper's own code
LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)
USUAL = (256, 256)
"""Widths of the hidden layers by default."""


def squash(outputs: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return actions ``[N, d]`` in (-1, 1) and their log probabilities ``[N]``.

    With mean m and log standard deviation s, side by side in ``outputs`` ``[N, 2 d]``, and standard normal ``noise``
    ``[N, d]``: u = m + exp(s) * noise and a = tanh(u), so that (appendix C of the paper)::

        log p(a) = sum over d of log N(u; m, exp(s)) - log(1 - tanh(u)^2)

    The last term is computed as 2 (log 2 - u - softplus(-2 u)), which does not lose digits for large |u|.
    """
    mean, log_std = outputs.chunk(2, 1)
    log_std = log_std.clamp(LEAST, MOST)
    u = mean + log_std.exp() * noise
    inside = -0.5 * noise**2 - log_std - LOG_SQRT_2PI - 2 * (math.log(2) - u - functional.softplus(-2 * u))
    return torch.tanh(u), inside.sum(1)


class BoxForm(ActionForm):
    """Actor, critics and their losses for a Box; critics read the action.

    Attributes:
      actions: the action space.
      actor: maps observations to means and log standard deviations.
      critics: map observations and actions to values.
    """

    def __init__(self, spaces: EntitySpaces, settings: SACSettings, *, lanes: int, device: str) -> None:
        """Build the networks.

        Raises:
          ConfigError: the action space is not a Box of floats with finite bounds.
        """
        self.actions = box = BoxActions("sac", spaces, settings.noise, lanes=lanes)
        shape = hidden_layers(spaces.observation, settings.hidden, USUAL, settings), settings.activation, settings
        self.actor = EncodedPerceptron(spaces.observation, 2 * box.size, *shape).to(device)
        critics = [Critic(spaces.observation, box.size, *shape) for _ in range(2)]
        self.critics = Critics(critics).to(device)
        share_normalization(self.actor.encoder, *self.critics.encoders)
        self._device = torch.device(device)
        self._target_entropy = -float(box.size) if settings.target_entropy is None else settings.target_entropy

    def choose(
        self,
        outputs: np.ndarray,
        mask: np.ndarray | None,
        lanes: slice | None,
        random: np.random.Generator,
        *,
        deterministic: bool,
    ) -> np.ndarray:
        """See ``ActionForm``."""
        if deterministic:
            return np.tanh(outputs[:, : self.actions.size])
        noise = self.actions.draw(lanes, len(outputs), random)
        action = np.empty_like(noise)
        squash_to(outputs, noise, action, np.empty(len(noise), np.float32))
        return action

    def target_entropy(self, rows: np.ndarray) -> float:
        """See ``ActionForm``; ``-d`` by default."""
        return self._target_entropy

    def draw(self, count: int, random: np.random.Generator) -> np.ndarray:
        """See ``ActionForm``: standard normal ``[2, count, d]``."""
        return random.standard_normal((2, count, self.actions.size), np.float32)

    def compiled(
        self, actor: torch.Tensor, critics: torch.Tensor, target: Critics, follower: torch.Tensor
    ) -> CompiledSAC | None:
        """See ``ActionForm``."""
        if not serves(self.actor.encoder, self.actor.layers):
            return None
        acting, before, following = (self.actor.compiled(actor) for _ in range(3))
        return CompiledSAC(acting, before, following, self.critics.compiled(critics), target.compiled(follower))

    # The torch path

    def next_value(
        self, columns: RowTensors, rows: np.ndarray, noise: np.ndarray, target: Critics, alpha: torch.Tensor
    ) -> torch.Tensor:
        """See ``ActionForm``."""
        following = columns.following(rows)
        action, log_prob = squash(self.actor(following), torch.from_numpy(noise[0]).to(self._device))
        return target(following, action).amin(0) - alpha * log_prob

    def chosen_values(self, columns: RowTensors, rows: np.ndarray) -> torch.Tensor:
        """See ``ActionForm``."""
        return self.critics(columns.observations(rows), columns.column(rows, "choice"))

    def actor_loss(
        self, columns: RowTensors, rows: np.ndarray, noise: np.ndarray, alpha: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See ``ActionForm``."""
        observations = columns.observations(rows)
        action, log_prob = squash(self.actor(observations), torch.from_numpy(noise[1]).to(self._device))
        loss = (alpha * log_prob - self.critics(observations, action).amin(0)).mean()
        return loss, -log_prob.detach().mean()
