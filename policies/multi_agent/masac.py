"""Multi-agent soft actor-critic (Iqbal and Sha, 2019, without attention): centralised critics, and entropies."""

import math
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from arena.envs.interface import EntitySpaces
from arena.experience.joint_layout import prefix_of
from arena.policies.multi_agent.kinds import TeamKind, log_entropy_of
from arena.policies.multi_agent.learner import JointBatch, TeamLearner
from arena.policies.multi_agent.settings import MASACSettings, team_of
from arena.policies.off_policy.actions import BoxActions
from arena.policies.off_policy.networks import trainable
from arena.policies.off_policy.sac_box import LEAST, MOST, squash


class Temperatures(nn.Module):
    """The entropy coefficients of K entities, parametrised by their logarithms."""

    def __init__(self, entities: int, initial: float) -> None:
        """Create them with an ``initial`` value."""
        super().__init__()
        self.logarithms = nn.Parameter(torch.full((entities,), math.log(initial)))


class MASAC(TeamLearner):
    """Learns critics of all entities' actions, and for each entity an actor that maximises value and entropy.

    With pi_i the actor of entity i, alpha_i its temperature and Q_i the lower value of two critics, the gradients are
    those of the following, as means over rows and entities::

        critics      sum over both of (Q_i(s, a) - y_i)^2,  y_i = r_i + discount_i * V_target_i(s')
        actor i      alpha_i * log pi_i(a_i | o_i) - Q_i(s, a_i, a_-i)
        temperature  log alpha_i * (entropy_i - target entropy_i)

    where V_i(s) = Q_i(s, a) - alpha_i * log pi_i(a_i | o_i), and a_-i are the actions of the others: stored ones in the
    losses, drawn from their current actors in V. An entity's own action is drawn for a Box. For Discrete and
    MultiDiscrete the critics have a value for each of its actions, and expectations are computed (Christodoulou, Soft
    actor-critic for discrete action settings, 2019); the value of several choices is the sum of theirs.
    """

    Settings: ClassVar[type] = MASACSettings
    LOSSES: ClassVar[tuple[str, ...]] = ("critic_loss", "actor_loss", "q", "entropy", "entropy_coefficient")

    def __init__(
        self, spaces: EntitySpaces, settings: MASACSettings, *, lanes: int, seed: int, device: str = "cpu"
    ) -> None:
        """See ``Policy``. ``seed`` also seeds the initial weights: a group must share one worker's."""
        entities = len(team_of(spaces).entities)
        self.temperatures = Temperatures(entities, settings.entropy_coefficient or settings.entropy_initial).to(device)
        others = {"temperature": self.temperatures}
        super().__init__(
            spaces, settings, lanes=lanes, seed=seed, device=device, twin=True, target_actors=False, others=others
        )

    def _actor_outputs(self, kind: TeamKind) -> int:
        return kind.width if kind.sizes else 2 * kind.width

    def _critic_outputs(self, kind: TeamKind) -> int:
        return kind.width if kind.sizes else 1

    # Acting

    def _choose_numbers(
        self, kind: TeamKind, outputs: np.ndarray, lanes: slice | None, *, learning: bool, deterministic: bool
    ) -> np.ndarray:
        mean, log_std = outputs[:, : kind.width], outputs[:, kind.width :]
        if deterministic:
            return np.tanh(mean)
        assert isinstance(kind.actions, BoxActions)
        noise = kind.actions.draw(lanes if learning else None, len(outputs), self.random)
        return np.tanh(mean + np.exp(np.clip(log_std, LEAST, MOST)) * noise)

    # Learning

    def _moving(self) -> int:
        if self.gradient_steps % self.settings.policy_delay:
            return 1
        return 3 if self.settings.entropy_coefficient is None else 2

    def _differentiate(self, rows: np.ndarray, weights: np.ndarray | None) -> None:
        batch = self._batch(rows)
        columns, present = batch.columns, batch.present
        alpha = self.temperatures.logarithms.detach().exp()
        with torch.no_grad():
            goal = columns.column("reward") + columns.column("discount") * self._next_value(batch, alpha)
        self.gradient.zero()
        values = torch.cat([self._chosen_values(batch, kind) for kind in self.kinds], 2)
        critic_loss = self._critic_loss(values, goal, present, weights)
        critic_loss.backward()
        logged = torch.zeros(2, device=self.device)
        if self._moving() > 1:
            actor_loss, entropy = self._actor_loss(batch, alpha)
            actor_loss.backward(inputs=trainable(self.learned["network"]))
            by_logarithms = self.temperatures.logarithms.grad
            assert by_logarithms is not None  # a view of the flat gradient
            by_logarithms.copy_(((entropy - self._target_entropy(rows)) * present).mean(0))
            logged = torch.stack((actor_loss.detach(), (entropy * present).mean()))
        q = (values.detach() * present).mean()
        self.gradient.extras.copy_(torch.stack((critic_loss.detach(), logged[0], q, logged[1], alpha.mean())))

    def _target_entropy(self, rows: np.ndarray) -> torch.Tensor:
        """Return the target of each entity's entropy, ``[B, K]``, in nats."""
        targets = torch.empty((len(rows), len(self._team.entities)), device=self.device)
        settings = self.settings
        for kind in self.kinds:
            target: np.ndarray | float = -float(kind.width)
            if settings.target_entropy is not None:
                target = settings.target_entropy
            elif kind.sizes:
                mask = rows[f"{prefix_of(kind.number)}mask"] if kind.spaces.mask_size else None
                target = settings.target_entropy_share * log_entropy_of(kind, mask)
            targets[:, kind.places] = torch.as_tensor(target, dtype=torch.float32, device=self.device)
        return targets

    def _next_value(self, batch: JointBatch, alpha: torch.Tensor) -> torch.Tensor:
        """Return the values ``[B, K]`` after the step, entropy included; 0 for absent entities."""
        columns = batch.columns
        state, present = columns.next_state(), columns.column("next_present").float()
        actions, policies = [], []
        for kind in self.kinds:
            outputs, noise = self.actors(kind, columns.following(kind)), batch.noise[kind.number][0]
            if kind.sizes:
                outputs = columns.masked(outputs, kind, "next_mask")
                action = kind.hard_sample(outputs, noise)
                policies.append(kind.log_probs(outputs))
            else:
                action, log_prob = _squashed(outputs, noise)
                policies.append([log_prob])
            actions.append((action * present[:, kind.places, None]).flatten(1))
        values = []
        for kind, log_probs in zip(self.kinds, policies, strict=True):
            if kind.sizes:
                both = self._values_of_own(self.target_critics, kind, state, present, actions)
                entropy, value = _expectation(kind, both, log_probs)
            else:
                both = self._values(self.target_critics, kind, state, present, actions)[..., 0]
                entropy, value = -log_probs[0], both.amin(0)
            values.append(value + alpha[kind.places] * entropy)
        return torch.cat(values, 1) * present

    def _values(
        self, critics: nn.ModuleList, kind: TeamKind, state: Any, present: torch.Tensor, actions: list[torch.Tensor]
    ) -> torch.Tensor:
        """Return both critics' values of a kind, ``[2, B, k, outputs]``; arguments as in ``_joint``."""
        joint = self._joint(actions)
        return torch.stack([critic(kind, state, present, joint) for critic in critics])

    def _values_of_own(
        self, critics: nn.ModuleList, kind: TeamKind, state: Any, present: torch.Tensor, actions: list[torch.Tensor]
    ) -> torch.Tensor:
        """Return both critics' values of each own discrete action, ``[2, B, k, width]``, beside the others' actions."""
        others = list(actions)
        others[kind.number] = kind.beside_own(actions[kind.number])
        return self._values(critics, kind, state, present, others)

    def _chosen_values(self, batch: JointBatch, kind: TeamKind) -> torch.Tensor:
        """Return both critics' values of the stored actions, ``[2, B, k]``."""
        if not kind.sizes:
            return self._values(self.critics, kind, batch.state, batch.present, batch.actions)[..., 0]
        values = self._values_of_own(self.critics, kind, batch.state, batch.present, batch.actions)
        return (values * kind.encode(batch.columns.of_kind(kind, "choice"))).sum(3)

    def _actor_loss(self, batch: JointBatch, alpha: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the loss of all actors, and the entropies ``[B, K]`` of their policies."""
        gains, entropies = [], []
        for kind in self.kinds:
            outputs = self.actors(kind, batch.columns.observations(kind))
            if kind.sizes:
                log_probs = kind.log_probs(batch.columns.masked(outputs, kind, "mask"))
                with torch.no_grad():
                    values = self._values_of_own(self.critics, kind, batch.state, batch.present, batch.actions)
                entropy, value = _expectation(kind, values, log_probs)
            else:
                action, log_prob = _squashed(outputs, batch.noise[kind.number][1])
                parts = list(batch.actions)
                here = batch.present[:, kind.places, None]
                parts[kind.number] = kind.with_own(parts[kind.number], action * here)
                value = self._values(self.critics, kind, batch.state, batch.present, parts)[..., 0].amin(0)
                entropy = -log_prob
            gains.append(value + alpha[kind.places] * entropy)
            entropies.append(entropy.detach())
        return -(torch.cat(gains, 1) * batch.present).mean(), torch.cat(entropies, 1)


def _expectation(
    kind: TeamKind, values: torch.Tensor, log_probs: list[torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return entropy and expected value over a kind's own discrete actions, ``[B, k]`` each.

    Of both critics, the lower value of each action counts where there is one choice, and with several the critic with
    the lower expectation.

    Args:
      kind: the kind.
      values: both critics' values of each action, ``[2, B, k, width]``.
      log_probs: for each choice ``[B, k, size]``.
    """
    entropy = -torch.stack([(part.exp() * part).sum(2) for part in log_probs]).sum(0)
    if len(log_probs) == 1:
        return entropy, (log_probs[0].exp() * values.amin(0)).sum(2)
    split = zip(log_probs, values.split(kind.sizes, 3), strict=True)
    totals = torch.stack([(part.exp() * value).sum(3) for part, value in split]).sum(0)
    return entropy, totals.amin(0)


def _squashed(outputs: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return actions ``[B, k, d]`` and their log probabilities ``[B, k]``; see ``squash``."""
    action, log_prob = squash(outputs.flatten(0, 1), noise.flatten(0, 1))
    return action.view(noise.shape), log_prob.view(noise.shape[:2])
