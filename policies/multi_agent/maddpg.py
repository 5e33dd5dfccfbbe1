"""Multi-agent deep deterministic policy gradient (Lowe et al., 2017), and MATD3 (Ackermann et al., 2019)."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from arena.envs.interface import EntitySpaces
from arena.policies.compiled.perceptrons import CompiledPerceptrons, serves
from arena.policies.compiled.team import CompiledActor, CompiledMADDPG, TeamShape
from arena.policies.multi_agent.kinds import TeamKind
from arena.policies.multi_agent.learner import JointBatch, TeamLearner
from arena.policies.multi_agent.settings import MADDPGSettings
from arena.policies.off_policy.actions import BoxActions
from arena.policies.off_policy.networks import trainable


class MADDPG(TeamLearner):
    """Learns critics of all entities' actions, and for each entity an actor that maximises its critic.

    With mu_i the actor of entity i and a_-i the stored actions of the others, the gradients are those of::

        critics   sum over them of (Q_i(s, a) - y_i)^2,  y_i = r_i + discount_i * min Q_target_i(s', mu_target(o'))
        actor i   -Q_i(s, mu_i(o_i), a_-i), every ``policy_delay`` gradient steps

    as means over rows and entities. The actions of target actors have clipped noise for a Box. Discrete choices are
    drawn by the Gumbel-max trick, and the actor's loss has the gradient of the Gumbel softmax (straight-through).
    """

    Settings: ClassVar[type] = MADDPGSettings
    LOSSES: ClassVar[tuple[str, ...]] = ("critic_loss", "actor_loss", "q")

    def __init__(
        self, spaces: EntitySpaces, settings: MADDPGSettings, *, lanes: int, seed: int, device: str = "cpu"
    ) -> None:
        """See ``Policy``. ``seed`` also seeds the initial weights: a group must share one worker's."""
        super().__init__(
            spaces, settings, lanes=lanes, seed=seed, device=device, twin=settings.twin, target_actors=True
        )

    def _actor_outputs(self, kind: TeamKind) -> int:
        return kind.width

    def _critic_outputs(self, kind: TeamKind) -> int:
        return 1

    # Acting

    def _choose_numbers(
        self, kind: TeamKind, outputs: np.ndarray, lanes: slice | None, *, learning: bool, deterministic: bool
    ) -> np.ndarray:
        choice = np.tanh(outputs)
        if deterministic or not learning:
            return choice
        assert isinstance(kind.actions, BoxActions)
        noise = kind.actions.draw(lanes, len(choice), self.random)
        return np.clip(choice + np.float32(self.settings.exploration_noise) * noise, -1, 1)

    # Learning

    def _moving(self) -> int:
        return 1 if self.gradient_steps % self.settings.policy_delay else 2

    def _prepare(self) -> None:
        """Take compiled paths for entities of one kind that share small networks of vectors."""
        self._fast: CompiledActor | None = None
        self._compiled: CompiledMADDPG | None = None
        actor: Any = self.learned["network"]
        if len(self.kinds) > 1 or not self._is_shared or not serves(actor.encoder, actor.layers):
            return
        acting, learning = (actor.compiled(self.optimizers["network"].parameters) for _ in range(2))
        self._fast = CompiledActor(acting)
        if self._spaces.global_state is None:
            return
        all_critics: list[Any] = [self.critics, self.target_critics]
        critics, targets = ([critic.kinds[0].each[0] for critic in each] for each in all_critics)
        encoder = all_critics[0][0].kinds[0].encoders[0]
        if not serves(encoder, critics[0]):
            return
        kind = self._own
        target_actor: Any = self.targets["network"]
        by_critics = self.optimizers["critics"].parameters
        self._compiled = CompiledMADDPG(
            TeamShape(kind.entities, kind.width, kind.sizes, kind.spaces.mask_size > 0),
            learning,
            target_actor.compiled(self._followers["network"]),
            CompiledPerceptrons(self.critics, encoder, critics, by_critics),
            CompiledPerceptrons(self.target_critics, encoder, targets, self._followers["critics"]),
            CompiledPerceptrons(self.critics, encoder, critics[:1], by_critics),
        )

    def _differentiate(self, rows: np.ndarray, weights: np.ndarray | None) -> None:
        if self._compiled is not None:
            settings, own = self.settings, self._own
            draws = bool(own.sizes or settings.target_noise)
            empty = np.zeros((1, own.entities, own.width), np.float32)
            errors = self._compiled.gradient(
                rows,
                weights,
                [own.draw(len(rows), self._draws) if draws else empty for _ in range(2)],
                self._gradients["critics"],
                self._gradients["network"] if self._moving() > 1 else None,
                self._losses,
                target_noise=settings.target_noise,
                target_noise_clip=settings.target_noise_clip,
                logit_penalty=settings.logit_penalty,
            )
            if weights is not None:
                self.feed.set_errors(np.abs(errors).mean(0).max(1))
            return
        batch = self._batch(rows)
        columns = batch.columns
        with torch.no_grad():
            next_present = columns.column("next_present").float()
            following = [
                (self._next_action(batch, kind) * next_present[:, kind.places, None]).flatten(1) for kind in self.kinds
            ]
            value = self._values(self.target_critics, columns.next_state(), next_present, following).amin(0)
            goal = columns.column("reward") + columns.column("discount") * next_present * value
        self.gradient.zero()
        values = self._values(self.critics, batch.state, batch.present, batch.actions)
        critic_loss = self._critic_loss(values, goal, batch.present, weights)
        critic_loss.backward()
        actor_loss = torch.zeros((), device=self.device)
        if self._moving() > 1:
            actor_loss = self._actor_loss(batch)
            actor_loss.backward(inputs=trainable(self.learned["network"]))
        q = (values.detach() * batch.present).mean()
        self.gradient.extras.copy_(torch.stack((critic_loss.detach(), actor_loss.detach(), q)))

    def _next_action(self, batch: JointBatch, kind: TeamKind) -> torch.Tensor:
        """Return the actions of a kind's target actors after the step, ``[B, k, width]``."""
        outputs, noise = self.target_actors(kind, batch.columns.following(kind)), batch.noise[kind.number][0]
        if kind.sizes:
            return kind.hard_sample(batch.columns.masked(outputs, kind, "next_mask"), noise)
        bound = self.settings.target_noise_clip
        return (outputs.tanh() + (self.settings.target_noise * noise).clamp(-bound, bound)).clamp(-1, 1)

    def _values(
        self, critics: nn.ModuleList, state: Any, present: torch.Tensor, actions: Sequence[torch.Tensor]
    ) -> torch.Tensor:
        """Return the values ``[critics, B, K]`` of actions ``[B, k * width]`` of each kind."""
        joint = self._joint(actions)
        return torch.stack(
            [torch.cat([critic(kind, state, present, joint)[:, :, 0] for kind in self.kinds], 1) for critic in critics]
        )

    def _actor_loss(self, batch: JointBatch) -> torch.Tensor:
        """Return the loss of all actors; a critic's gradient reaches the action of its own entity only."""
        losses = []
        for kind in self.kinds:
            here = batch.present[:, kind.places]
            outputs = self.actors(kind, batch.columns.observations(kind))
            penalty = torch.zeros((), device=self.device)
            if kind.sizes:
                penalty = self.settings.logit_penalty * (outputs**2).mean(2)
                logits = batch.columns.masked(outputs, kind, "mask")
                action = kind.straight_through(logits, batch.noise[kind.number][1])
            else:
                action = outputs.tanh()
            parts = list(batch.actions)
            parts[kind.number] = kind.with_own(parts[kind.number], action * here[:, :, None])
            value = self.critics[0](kind, batch.state, batch.present, self._joint(parts))[:, :, 0]
            losses.append((penalty - value) * here)
        return torch.cat(losses, 1).mean()
