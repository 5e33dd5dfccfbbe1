"""Soft actor-critic (Haarnoja et al., Soft actor-critic algorithms and applications, 2018), over all workers."""

import math
from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces as gym_spaces
from torch import nn

from arena.common.errors import ConfigError
from arena.envs.interface import EntitySpaces
from arena.policies.off_policy.learner import EntityLearner, seeded
from arena.policies.off_policy.networks import RowTensors, target_of, trainable
from arena.policies.off_policy.sac_box import BoxForm
from arena.policies.off_policy.sac_discrete import DiscreteForm
from arena.policies.off_policy.sac_form import ActionForm
from arena.policies.off_policy.settings import SACSettings


class Temperature(nn.Module):
    """The entropy coefficient, parametrised by its logarithm."""

    def __init__(self, initial: float) -> None:
        """Create it with an ``initial`` value."""
        super().__init__()
        self.logarithm = nn.Parameter(torch.tensor(math.log(initial)))


class SAC(EntityLearner):
    """Learns two critics and an actor that maximises value and entropy.

    All parts are updated together, each by the gradient of::

        critics      sum over both of (Q(s, a) - y)^2 / 2,  y = r + discount * V_target(s')
        actor        alpha * log p(a | s) - Q(s, a)
        temperature  log alpha * (entropy - target entropy)

    where V(s) = Q(s, a) - alpha * log p(a | s), and Q is the lower value of the two critics. For a Box, a is sampled
    from the current policy (``BoxForm``); for Discrete and MultiDiscrete, the expectation over all actions is computed
    (``DiscreteForm``).
    """

    Settings = SACSettings
    LOSSES: ClassVar[tuple[str, ...]] = ("critic_loss", "actor_loss", "q", "entropy", "entropy_coefficient")

    def __init__(
        self, spaces: EntitySpaces, settings: SACSettings, *, lanes: int, seed: int, device: str = "cpu"
    ) -> None:
        """See ``Policy``. ``seed`` also seeds the initial weights: a group must share one worker's."""
        settings = settings.resolved(spaces)
        form_class = BoxForm if isinstance(spaces.action, gym_spaces.Box) else DiscreteForm
        with seeded(seed):
            self._form: ActionForm = form_class(spaces, settings, lanes=lanes, device=device)
        self.actor, self.critics = self._form.actor, self._form.critics
        self.target = target_of(self.critics)
        self.temperature = Temperature(settings.entropy_coefficient or settings.entropy_initial).to(device)
        super().__init__(
            spaces,
            settings,
            actions=self._form.actions,
            learned={"critics": self.critics, "network": self.actor, "temperature": self.temperature},
            targets={"critics": self.target},
            extras=settings.extras(spaces),
            lanes=lanes,
            seed=seed,
            device=device,
        )
        self._columns = RowTensors(spaces.observation, self.device)

    # Acting

    def _choose(
        self, outputs: np.ndarray, mask: np.ndarray | None, lanes: slice | None, *, learning: bool, deterministic: bool
    ) -> np.ndarray:
        return self._form.choose(outputs, mask, lanes if learning else None, self.random, deterministic=deterministic)

    def _extras(self, choice: np.ndarray, mask: np.ndarray | None) -> dict[str, np.ndarray]:
        extras = super()._extras(choice, mask)
        if "mask" in self.extras:
            extras["mask"] = np.ones((len(choice), self._spaces.mask_size), np.int8) if mask is None else mask
        return extras

    def probabilities(self, observations: Any, action_mask: np.ndarray | None = None) -> np.ndarray:
        """Return the probability of every action ``[N, actions]``.

        Raises:
          ConfigError: the action space is not Discrete.
        """
        if not isinstance(self._form, DiscreteForm) or len(self._form.sizes) > 1:
            raise ConfigError("expected a Discrete action space, so that probabilities can be listed")
        return self._form.probabilities(self._outputs(observations), action_mask)

    # Learning

    def _prepare(self) -> None:
        actor, critics = self.optimizers["network"].parameters, self.optimizers["critics"].parameters
        self._fast = self._form.compiled(actor, critics, self.target, self._followers["critics"])

    def _moving(self) -> int:
        if self.gradient_steps % self.settings.policy_delay:
            return 1
        return 3 if self.settings.entropy_coefficient is None else 2

    def _differentiate(self, rows: np.ndarray, weights: np.ndarray | None) -> None:
        noise, moving = self._form.draw(len(rows), self._draws), self._moving() > 1
        if self._fast is not None:
            gradients = self._gradients
            coefficient = math.exp(self.temperature.logarithm.item())
            by_actor = gradients["network"] if moving else None
            self._fast.gradient(rows, noise, coefficient, gradients["critics"], by_actor, self._losses)
            if moving:
                gradients["temperature"][0] = self._losses[3] - self._form.target_entropy(rows)
            return
        alpha = self.temperature.logarithm.detach().exp()
        columns, form = self._columns, self._form
        with torch.no_grad():
            value = form.next_value(columns, rows, noise, self.target, alpha)
            goal = columns.column(rows, "reward") + columns.column(rows, "discount") * value
        self.gradient.zero()
        values = form.chosen_values(columns, rows)
        critic_loss = 0.5 * ((values - goal) ** 2).mean(1).sum()
        critic_loss.backward()
        q, logged = values.detach().mean(), torch.zeros(2, device=self.device)
        if moving:
            actor_loss, entropy = form.actor_loss(columns, rows, noise, alpha)
            actor_loss.backward(inputs=trainable(self.actor))
            by_logarithm = self.temperature.logarithm.grad
            assert by_logarithm is not None  # a view of the flat gradient
            by_logarithm.fill_(entropy - form.target_entropy(rows))
            logged = torch.stack((actor_loss.detach(), entropy))
        self.gradient.extras.copy_(torch.stack((critic_loss.detach(), logged[0], q, logged[1], alpha)))
