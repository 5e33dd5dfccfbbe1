"""Deep Q-networks (Mnih et al., 2015), double by default (van Hasselt et al., 2016), over all workers of a player."""

from typing import Any, ClassVar

import numpy as np
import torch
from torch.nn import functional

from arena.envs.interface import EntitySpaces
from arena.policies.compiled.perceptrons import serves
from arena.policies.compiled.q_learning import QLearning
from arena.policies.off_policy.actions import DiscreteActions
from arena.policies.off_policy.learner import EntityLearner, seeded
from arena.policies.off_policy.networks import DuelingValues, EncodedPerceptron, RowTensors, hidden_layers, target_of
from arena.policies.off_policy.settings import DQNSettings

NEVER = -1e9  # value of a masked action; finite, so that no product with it becomes NaN


class DQN(EntityLearner):
    """Learns the value Q(s, a) of every action; acts epsilon-greedily with a decaying epsilon.

    The loss is the Huber loss (1 where it becomes linear) of Q(s, a) against::

        y = r + discount * Q_target(s', argmax_a' Q(s', a'))    (double)
        y = r + discount * max_a' Q_target(s', a')              (as first published)

    over the actions allowed in s'; for rewards of several actions and ``discount`` see ``Transitions``.
    """

    Settings = DQNSettings
    LOSSES: ClassVar[tuple[str, ...]] = ("loss", "q")
    FORWARD: ClassVar[tuple[str, ...]] = ("eps",)

    def __init__(
        self, spaces: EntitySpaces, settings: DQNSettings, *, lanes: int, seed: int, device: str = "cpu"
    ) -> None:
        """See ``Policy``. ``seed`` also seeds the initial weights: a group must share one worker's."""
        actions = DiscreteActions("dqn", spaces)
        self._masked = spaces.mask_size > 0
        usual, configured = ((128, 128), None) if settings.hidden == "auto" else ((64, 64), settings.hidden)
        hidden = hidden_layers(spaces.observation, configured, usual, settings)
        with seeded(seed):
            kind = DuelingValues if settings.dueling else EncodedPerceptron
            network = kind(spaces.observation, actions.n, hidden, settings.activation, settings).to(device)
        self.network, self.target = network, target_of(network)
        super().__init__(
            spaces,
            settings,
            actions=actions,
            learned={"network": network},
            targets={"network": self.target},
            extras=settings.extras(spaces),
            lanes=lanes,
            seed=seed,
            device=device,
            priority=settings.priority,
        )
        self._tensors_of = RowTensors(spaces.observation, self.device)
        self._eps: float | None = None  # set by a league's job

    # Acting

    def _choose(
        self, outputs: np.ndarray, mask: np.ndarray | None, lanes: slice | None, *, learning: bool, deterministic: bool
    ) -> np.ndarray:
        choice = outputs.argmax(1) if mask is None else np.where(mask != 0, outputs, NEVER).argmax(1)
        if learning and not deterministic:
            exploring = self.random.random(len(choice)) < self.exploration
            if exploring.any():
                choice = np.where(exploring, self.actions.any(len(choice), mask, self.random), choice)
        return choice

    @property
    def exploration(self) -> float:
        """Probability of a random action."""
        return self.settings.exploration(self.progress) if self._eps is None else self._eps

    def values(self, observations: Any) -> np.ndarray:
        """Return the values ``[N, actions]`` of observations ``[N, ...]``."""
        return self._outputs(observations)

    def probabilities(self, observations: Any, action_mask: np.ndarray | None = None) -> np.ndarray:
        """Return the probability of every action ``[N, actions]``: 1 for the greedy one."""
        values = self.values(observations)
        best = self._choose(values, action_mask, None, learning=False, deterministic=True)
        return np.eye(values.shape[1])[best]

    def configure(self, forward: dict[str, Any], data: dict[str, Any]) -> None:
        """See ``Policy``."""
        super().configure(forward, data)
        self._eps = forward.get("eps")

    # Learning

    def _prepare(self) -> None:
        self._fast: QLearning | None = None
        if isinstance(self.network, EncodedPerceptron) and serves(self.network.encoder, self.network.layers):
            assert isinstance(self.target, EncodedPerceptron)
            parameters, target = self.optimizers["network"].parameters, self._followers["network"]
            acting, network = (self.network.compiled(parameters) for _ in range(2))
            self._fast = QLearning(acting, network, self.target.compiled(target))

    def _differentiate(self, rows: np.ndarray, weights: np.ndarray | None) -> None:
        if self._fast is not None:
            errors = self._fast.gradient(rows, weights, self.settings.double, self._gradients["network"], self._losses)
            if weights is not None:
                self.feed.set_errors(errors)
            return
        tensors = self._tensors_of
        with torch.no_grad():
            following = tensors.following(rows)
            next_values = self.target(following)
            judged = self.network(following) if self.settings.double else next_values
            if self._masked:
                judged = judged.masked_fill(tensors.column(rows, "next_mask") == 0, NEVER)
            best = next_values.gather(1, judged.argmax(1, keepdim=True)).squeeze(1)
            goal = tensors.column(rows, "reward") + tensors.column(rows, "discount") * best
        self.gradient.zero()
        values = self.network(tensors.observations(rows)).gather(1, tensors.column(rows, "choice")[:, None]).squeeze(1)
        losses = functional.smooth_l1_loss(values, goal, reduction="none")
        if weights is not None:
            losses = losses * torch.from_numpy(weights).to(self.device)
            self.feed.set_errors((values - goal).numpy(force=True))
        loss = losses.mean()
        loss.backward()
        self.gradient.extras.copy_(torch.stack((loss.detach(), values.detach().mean())))

    def learn(self, rollout: Any, group: Any) -> dict[str, float]:
        """See ``Policy``."""
        first = self.settings.priority_weight
        self.feed.weight_exponent = first + self.progress * (1 - first)
        return {**super().learn(rollout, group), "exploration": self.exploration}
