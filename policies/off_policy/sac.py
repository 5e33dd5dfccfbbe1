"""Soft actor-critic (Haarnoja et al., Soft actor-critic algorithms and applications, 2018), over all workers."""

import math
from typing import ClassVar

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from arena.envs.interface import EntitySpaces
from arena.policies.compiled.actor_critics import CompiledSAC
from arena.policies.compiled.actor_critics import squash as squash_to
from arena.policies.compiled.perceptrons import CompiledPerceptrons, serves
from arena.policies.off_policy.actions import BoxActions
from arena.policies.off_policy.learner import OffPolicy, seeded, target_of
from arena.policies.off_policy.networks import Critic, Critics, EncodedPerceptron, RowTensors, hidden_layers
from arena.policies.off_policy.settings import SACSettings

LEAST, MOST = -20.0, 2.0  # log standard deviations, as in the paper's own code
LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)


class Temperature(nn.Module):
    """The entropy coefficient, parametrised by its logarithm."""

    def __init__(self, initial: float) -> None:
        """Create it with an ``initial`` value."""
        super().__init__()
        self.logarithm = nn.Parameter(torch.tensor(math.log(initial)))


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


class SAC(OffPolicy):
    """Learns two critics and an actor that maximises value and entropy.

    With a' and log p' sampled from the current policy, all parts are updated together, each by the gradient of::

        critics      sum over both of (Q(s, a) - y)^2 / 2,  y = r + discount * (min Q_target(s', a') - alpha * log p')
        actor        alpha * log p(a | s) - min Q(s, a),    a sampled from the current policy
        temperature  -log alpha * (log p + target entropy)
    """

    Settings = SACSettings
    LOSSES: ClassVar[tuple[str, ...]] = ("critic_loss", "actor_loss", "q", "entropy", "entropy_coefficient")

    def __init__(
        self, spaces: EntitySpaces, settings: SACSettings, *, lanes: int, seed: int, device: str = "cpu"
    ) -> None:
        """See ``Policy``. ``seed`` also seeds the initial weights: a group must share one worker's."""
        self._box = box = BoxActions("sac", spaces, settings.noise, lanes=lanes)
        shape = hidden_layers(spaces.observation, settings.hidden, (256, 256), settings), settings.activation, settings
        with seeded(seed):
            self.actor = EncodedPerceptron(spaces.observation, 2 * box.size, *shape).to(device)
            critics = [Critic(spaces.observation, box.size, *shape) for _ in range(2)]
            self.critics = Critics(critics).to(device)
        self.target = target_of(self.critics)
        self.temperature = Temperature(settings.entropy_coefficient or settings.entropy_initial).to(device)
        super().__init__(
            spaces,
            settings,
            actions=box,
            learned={"critics": self.critics, "network": self.actor, "temperature": self.temperature},
            targets={"critics": self.target},
            extras=settings.extras(spaces),
            lanes=lanes,
            seed=seed,
            device=device,
        )
        self._columns = RowTensors(spaces.observation, self.device)
        self._target_entropy = -float(box.size) if settings.target_entropy is None else settings.target_entropy

    # Acting

    def _choose(
        self, outputs: np.ndarray, mask: np.ndarray | None, lanes: slice | None, *, learning: bool, deterministic: bool
    ) -> np.ndarray:
        if deterministic:
            return np.tanh(outputs[:, : self._box.size])
        noise = self._box.draw(lanes if learning else None, len(outputs), self.random)
        action = np.empty_like(noise)
        squash_to(outputs, noise, action, np.empty(len(noise), np.float32))
        return action

    # Learning

    def _prepare(self) -> None:
        self._fast: CompiledSAC | None = None
        if serves(self.actor.encoder, self.actor.layers):
            actor, critics = self.optimizers["network"].parameters, self.optimizers["critics"].parameters
            acting, before, following = (CompiledPerceptrons(self.actor, [self.actor.layers], actor) for _ in range(3))
            self._fast = CompiledSAC(
                acting,
                before,
                following,
                CompiledPerceptrons(self.critics, self.critics.perceptrons, critics),
                CompiledPerceptrons(self.target, self.target.perceptrons, self._followers["critics"]),
            )

    def _moving(self) -> int:
        if self.gradient_steps % self.settings.policy_delay:
            return 1
        return 3 if self.settings.entropy_coefficient is None else 2

    def _differentiate(self, rows: np.ndarray, weights: np.ndarray | None) -> None:
        columns, noise = self._columns, self._draws.standard_normal((2, len(rows), self._box.size), np.float32)
        if self._fast is not None:
            gradients, moving = self._gradients, self._moving() > 1
            coefficient = math.exp(self.temperature.logarithm.item())
            by_actor = gradients["network"] if moving else None
            self._fast.gradient(rows, noise, coefficient, gradients["critics"], by_actor, self._losses)
            if moving:
                gradients["temperature"][0] = self._losses[3] - self._target_entropy
            return
        noises = torch.from_numpy(noise).to(self.device)
        observations, following = columns.observations(rows), columns.following(rows)
        alpha = self.temperature.logarithm.detach().exp()
        with torch.no_grad():
            action, log_prob = squash(self.actor(following), noises[0])
            value = self.target(following, action).amin(0) - alpha * log_prob
            goal = columns.column(rows, "reward") + columns.column(rows, "discount") * value
        self.gradient.zero()
        values = self.critics(observations, columns.column(rows, "choice"))
        critic_loss = 0.5 * ((values - goal) ** 2).mean(1).sum()
        critic_loss.backward()
        q, logged = values.detach().mean(), torch.zeros(2, device=self.device)
        if self._moving() > 1:
            action, log_prob = squash(self.actor(observations), noises[1])
            actor_loss = (alpha * log_prob - self.critics(observations, action).amin(0)).mean()
            actor_loss.backward(inputs=list(self.actor.parameters()))
            entropy = -log_prob.detach().mean()
            by_logarithm = self.temperature.logarithm.grad
            assert by_logarithm is not None  # a view of the flat gradient
            by_logarithm.fill_(entropy - self._target_entropy)
            logged = torch.stack((actor_loss.detach(), entropy))
        self.gradient.extras.copy_(torch.stack((critic_loss.detach(), logged[0], q, logged[1], alpha)))
