"""Twin delayed deep deterministic policy gradient (Fujimoto et al., 2018), and DDPG (Lillicrap et al., 2016)."""

from typing import ClassVar

import numpy as np
import torch

from arena.envs.interface import EntitySpaces
from arena.policies.compiled.actor_critics import CompiledTD3
from arena.policies.compiled.perceptrons import serves
from arena.policies.encoders.composite import share_normalization
from arena.policies.off_policy.actions import BoxActions
from arena.policies.off_policy.learner import EntityLearner, seeded
from arena.policies.off_policy.networks import (
    Critic,
    Critics,
    EncodedPerceptron,
    RowTensors,
    hidden_layers,
    target_of,
    trainable,
)
from arena.policies.off_policy.settings import DDPGSettings, TD3Settings


class TD3(EntityLearner):
    """Learns critics, and an actor that maximises the first one.

    With mu the actor and e clipped noise, the gradients are those of::

        critics   sum over them of (Q(s, a) - y)^2,  y = r + discount * min Q_target(s', clip(mu_target(s') + e))
        actor     -Q_1(s, mu(s)), every ``policy_delay`` gradient steps; its target moves in each
    """

    Settings: ClassVar[type] = TD3Settings
    LOSSES: ClassVar[tuple[str, ...]] = ("critic_loss", "actor_loss", "q")

    def __init__(
        self, spaces: EntitySpaces, settings: TD3Settings, *, lanes: int, seed: int, device: str = "cpu"
    ) -> None:
        """See ``Policy``. ``seed`` also seeds the initial weights: a group must share one worker's."""
        self._box = box = BoxActions(type(self).__name__.lower(), spaces, settings.noise, lanes=lanes)
        shape = hidden_layers(spaces.observation, settings.hidden, (256, 256), settings), settings.activation, settings
        with seeded(seed):
            self.actor = EncodedPerceptron(spaces.observation, box.size, *shape).to(device)
            critics = [Critic(spaces.observation, box.size, *shape) for _ in range(1 + settings.twin)]
            self.critics = Critics(critics).to(device)
            share_normalization(self.actor.encoder, *self.critics.encoders)
        self.target, self.target_actor = target_of(self.critics), target_of(self.actor)
        super().__init__(
            spaces,
            settings,
            actions=box,
            learned={"critics": self.critics, "network": self.actor},
            targets={"critics": self.target, "network": self.target_actor},
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
        choice = np.tanh(outputs)
        if deterministic or not learning:
            return choice
        noise = self._box.draw(lanes, len(choice), self.random)
        return np.clip(choice + np.float32(self.settings.exploration_noise) * noise, -1, 1)

    # Learning

    def _prepare(self) -> None:
        self._fast: CompiledTD3 | None = None
        if serves(self.actor.encoder, self.actor.layers):
            actor, critics = self.optimizers["network"].parameters, self.optimizers["critics"].parameters
            self._fast = CompiledTD3(
                self.actor.compiled(actor),
                self.actor.compiled(actor),
                self.target_actor.compiled(self._followers["network"]),
                self.critics.compiled(critics),
                self.target.compiled(self._followers["critics"]),
            )

    def _moving(self) -> int:
        return 1 if self.gradient_steps % self.settings.policy_delay else 2

    def _differentiate(self, rows: np.ndarray, weights: np.ndarray | None) -> None:
        columns, settings = self._columns, self.settings
        noise = self._draws.standard_normal((len(rows), self._box.size), np.float32) * np.float32(settings.target_noise)
        noise = np.clip(noise, -settings.target_noise_clip, settings.target_noise_clip)
        if self._fast is not None:
            by_actor = self._gradients["network"] if self._moving() > 1 else None
            self._fast.gradient(rows, noise, self._gradients["critics"], by_actor, self._losses)
            return
        observations, following = columns.observations(rows), columns.following(rows)
        with torch.no_grad():
            action = torch.tanh(self.target_actor(following)) + torch.from_numpy(noise).to(self.device)
            value = self.target(following, action.clamp(-1, 1)).amin(0)
            goal = columns.column(rows, "reward") + columns.column(rows, "discount") * value
        self.gradient.zero()
        values = self.critics(observations, columns.column(rows, "choice"))
        critic_loss = ((values - goal) ** 2).mean(1).sum()
        critic_loss.backward()
        actor_loss = torch.zeros((), device=self.device)
        if self._moving() > 1:
            actor_loss = -self.critics.each[0](observations, torch.tanh(self.actor(observations))).mean()
            actor_loss.backward(inputs=trainable(self.actor))
        self.gradient.extras.copy_(torch.stack((critic_loss.detach(), actor_loss.detach(), values.detach().mean())))


class DDPG(TD3):
    """TD3 with other defaults: one critic, no delay, no noise in the target."""

    Settings = DDPGSettings
