"""Base class of the algorithms for teams: actors for each kind of entities, and critics of state and all actions."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces as gym_spaces
from torch import nn

from arena.common.errors import ConfigError
from arena.common.trees import map_tree, tree_leaves
from arena.envs.interface import EntitySpaces
from arena.experience.feed import RowMaker
from arena.experience.joint_layout import STATE, prefix_of
from arena.experience.joint_rows import JointTransitions
from arena.experience.row_layout import OBSERVATION
from arena.policies.encoders.composite import Encoder, share_normalization
from arena.policies.inference import Inference, inference_of
from arena.policies.interface import Decision, Reducer
from arena.policies.multi_agent.kinds import Actors, JointRowTensors, TeamKind, kinds_of
from arena.policies.multi_agent.networks import KindCritic, actor, entities_outputs
from arena.policies.multi_agent.settings import TeamSettings, team_of
from arena.policies.off_policy.actions import CategoricalActions
from arena.policies.off_policy.learner import OffPolicy, seeded
from arena.policies.off_policy.networks import target_of


class Partner:
    """Acts for another kind of entities, with the networks of the policy that learns.

    Attributes:
      extras: see ``Policy``.
    """

    def __init__(self, learner: "TeamLearner", kind: TeamKind) -> None:
        """Store the policy that learns, and the kind."""
        self._learner, self._kind = learner, kind
        self.extras = learner.settings.extras(kind.spaces)

    def act(
        self,
        observations: Any,
        *,
        action_mask: np.ndarray | None = None,
        starts: np.ndarray | None = None,
        lanes: slice | None = None,
        deterministic: bool = False,
        learning: bool = False,
    ) -> Decision:
        """See ``Policy``."""
        return self._learner.act_for(
            self._kind, observations, action_mask, lanes, deterministic=deterministic, learning=learning
        )


class JointBatch(NamedTuple):
    """The tensors of B joint rows.

    Attributes:
      columns: the rows.
      state: the global state before the actions, ``[B, ...]`` or a nest.
      present: ``[B, K]`` float32, 1 for entities that act.
      actions: for each kind the stored actions ``[B, k * width]``; zeros for absent entities.
      noise: for each kind the noise of the next actions and of new ones, see ``TeamKind.draw``.
    """

    columns: JointRowTensors
    state: Any
    present: torch.Tensor
    actions: list[torch.Tensor]
    noise: list[list[torch.Tensor]]


class TeamCritic(nn.Module):
    """The critics of all kinds of entities."""

    def __init__(self, critics: Sequence[KindCritic]) -> None:
        """Combine the critics, one for each kind."""
        super().__init__()
        self.kinds = nn.ModuleList(critics)

    def forward(self, kind: TeamKind, state: Any, present: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        """Return the values ``[B, k, outputs]`` of a kind; see ``KindCritic``."""
        return self.kinds[kind.number](state, present, actions)


class TeamLearner(OffPolicy):
    """An algorithm that learns decentralised actors by centralised critics.

    An actor reads its entity's observation. A critic reads the global state, which entities are present, and the
    actions of all entities, where those of absent ones count as zeros.

    A policy that is built without a global state, such as for evaluation, acts and has no critics.

    Attributes:
      kinds: the entities of the seat by kind.
      partners: see ``Policy``.
    """

    _fast: Any = None

    def __init__(
        self,
        spaces: EntitySpaces,
        settings: Any,
        *,
        lanes: int,
        seed: int,
        device: str,
        twin: bool,
        target_actors: bool,
        others: Mapping[str, nn.Module] | None = None,
    ) -> None:
        """See ``Policy``.

        Args:
          spaces: see ``Policy``; its ``team`` has the entities.
          settings: a ``TeamSettings``.
          lanes: see ``Policy``.
          seed: see ``Policy``.
          device: see ``Policy``.
          twin: whether there are two critics.
          target_actors: whether actors have targets.
          others: learned modules besides critics and actors.
        """
        self._team = team = team_of(spaces)
        use, place = type(self).__name__.lower(), torch.device(device)
        settings.check_team(use, team.entities)
        copies = lanes // len(team.positions)
        self.kinds = kinds_of(team, use, settings.noise, copies=copies, device=place)
        self._own = next(kind for kind in self.kinds if team.positions[0] in _positions(kind))
        self._copies, self._settings = copies, settings
        self._is_shared = settings.share != "each"
        for kind in self.kinds:
            settings.check_spaces(use, kind.spaces)
        with seeded(seed):
            built = []
            for kind in self.kinds:
                count = 1 if self._is_shared else kind.entities
                of_kind = [actor(kind.spaces.observation, self._actor_outputs(kind), settings) for _ in range(count)]
                share_normalization(*(network.encoder for network in of_kind))
                built += of_kind
            network = built[0] if len(built) == 1 else nn.ModuleList(built)
            learned: dict[str, nn.Module] = {"network": network.to(place), **(others or {})}
            targets: dict[str, nn.Module] = {}
            if spaces.global_state is not None:
                self.critics = nn.ModuleList(self._critic(spaces.global_state) for _ in range(1 + twin)).to(place)
                share_normalization(*self._state_encoders())
                self.target_critics = target_of(self.critics)
                learned = {"critics": self.critics, **learned}
                targets["critics"] = self.target_critics
        if target_actors:
            targets["network"] = target_of(network)
        self.actors = Actors(network, self.kinds, shared=self._is_shared)
        self.target_actors = Actors(targets.get("network", network), self.kinds, shared=self._is_shared)
        super().__init__(
            spaces,
            settings,
            actions=self._own.actions,
            learned=learned,
            targets=targets,
            extras=settings.extras(self._own.spaces),
            lanes=lanes,
            seed=seed,
            device=device,
            priority=settings.priority,
        )
        self.partners = [Partner(self, kind) for kind in self.kinds if kind is not self._own]

    @abstractmethod
    def _actor_outputs(self, kind: TeamKind) -> int:
        """Return the number of outputs of an actor of a kind."""

    @abstractmethod
    def _critic_outputs(self, kind: TeamKind) -> int:
        """Return the number of values that a critic has for each entity of a kind."""

    def _critic(self, state: gym_spaces.Space) -> TeamCritic:
        actions = sum(kind.entities * kind.width for kind in self.kinds)
        return TeamCritic(
            [
                KindCritic(
                    state,
                    len(self._team.entities),
                    actions,
                    self._critic_outputs(kind),
                    kind.entities,
                    self._settings,
                    shared=self._is_shared,
                )
                for kind in self.kinds
            ]
        )

    def _state_encoders(self) -> list[Encoder]:
        """Return all encoders of the global state."""
        critics: list[Any] = list(self.critics)
        return [encoder for critic in critics for kind in critic.kinds for encoder in kind.encoders]

    def _row_maker(self, lanes: int) -> RowMaker:
        """See ``OffPolicy``: joint rows."""
        settings: TeamSettings = self.settings
        kinds = settings.kinds(self._spaces)
        state = self._spaces.global_state
        return JointTransitions(kinds, state, copies=self._copies, gamma=settings.gamma, n_step=settings.n_step)

    # Acting

    def _prepare(self) -> None:
        """See ``OffPolicy``: torch, unless an algorithm has a compiled path."""

    def act(
        self,
        observations: Any,
        *,
        action_mask: np.ndarray | None = None,
        starts: np.ndarray | None = None,
        lanes: slice | np.ndarray | None = None,
        deterministic: bool = False,
        learning: bool = False,
    ) -> Decision:
        """See ``Policy``; while the replay buffer warms up, actions are uniform among the allowed ones."""
        return self.act_for(self._own, observations, action_mask, lanes, deterministic=deterministic, learning=learning)

    def act_for(
        self,
        kind: TeamKind,
        observations: Any,
        mask: np.ndarray | None,
        lanes: slice | np.ndarray | None,
        *,
        deterministic: bool,
        learning: bool,
    ) -> Decision:
        """Choose actions for lanes of a kind; arguments as in ``act``."""
        if learning and self.feed.pace.warming_up:
            choice = kind.actions.any(len(tree_leaves(observations)[0]), mask, self.random)
        else:
            outputs = self._outputs(observations, kind, lanes)
            if isinstance(kind.actions, CategoricalActions):
                choice = kind.actions.sample(outputs, mask, self.random, deterministic=deterministic)
            else:
                noise = None if deterministic or isinstance(lanes, np.ndarray) else lanes
                choice = self._choose_numbers(kind, outputs, noise, learning=learning, deterministic=deterministic)
        extras = {}
        if learning:
            extras["choice"] = choice
            if kind.sizes and kind.spaces.mask_size:
                extras["mask"] = np.ones((len(choice), kind.spaces.mask_size), np.int8) if mask is None else mask
        return Decision(kind.actions.members(choice), extras)

    @abstractmethod
    def _choose_numbers(
        self, kind: TeamKind, outputs: np.ndarray, lanes: slice | None, *, learning: bool, deterministic: bool
    ) -> np.ndarray:
        """Return the choices ``[N, d]`` of a kind with a Box for the actors' outputs, with exploration while learning.

        ``lanes`` are those of the noise; None draws independent noise.
        """

    def _forward(self, observations: Any, *where: Any) -> torch.Tensor:
        """See ``OffPolicy``: each lane by the actor of its entity; ``where`` is the kind, and the lanes."""
        kind, lanes = where
        actors, positions = self.actors.of_kind[kind.number], self._team.positions
        if len(actors) == 1:
            return actors[0](observations)
        if kind is self._own and len(positions) == 1:  # all lanes are of one entity
            return actors[_positions(kind).index(positions[0])](observations)
        if isinstance(lanes, np.ndarray):  # some lanes of a league's opponent
            outputs = torch.empty((len(lanes), self._actor_outputs(kind)), device=self.device)
            for e, network in enumerate(actors):
                where_e = torch.from_numpy(np.flatnonzero(lanes % len(actors) == e)).to(self.device)
                if len(where_e):
                    outputs[where_e] = network(map_tree(lambda x, at=where_e: x[at], observations))
            return outputs
        by_copy = map_tree(lambda x: x.unflatten(0, (-1, len(actors))), observations)
        return entities_outputs(actors, by_copy).flatten(0, 1)

    def inference(self) -> Inference:
        """See ``Policy``: the actor of the entity that the spaces name; a Box's actions are squashed."""
        actors = self.actors.of_kind[self._own.number]
        network = actors[0 if len(actors) == 1 else _positions(self._own).index(self._team.positions[0])]
        return inference_of(self._spaces, network, squashed=not self._own.sizes)

    # Learning

    def learn(self, rollout: Any, group: Any) -> dict[str, float]:
        """See ``Policy``."""
        if self._spaces.global_state is None:
            raise ConfigError(f"policy {self.name!r} expects a global state while it learns, found none; set env.state")
        if self.settings.priority is not None:
            start = self.settings.priority_weight
            self.feed.weight_exponent = start + (1 - start) * self.progress
        return super().learn(rollout, group)

    def _measure(self, rows: np.ndarray, group: Reducer) -> None:
        """See ``OffPolicy``: all actors of a kind share normalisations, and so do all critics.

        Observations of absent entities do not count.
        """
        if not self.settings.normalize_observations:
            return
        for kind in self.kinds:
            encoder: Any = self.actors.of_kind[kind.number][0].encoder
            name = f"{prefix_of(kind.number)}{OBSERVATION}"
            columns = [rows[f"{name}{number}"] for number in range(len(encoder.normalizations))]
            encoder.measure(columns, rows["present"][:, kind.places], group)
        state = self._state_encoders()[0]
        state.measure([rows[f"{STATE}{number}"] for number in range(len(state.normalizations))], slice(None), group)

    def _joint(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the actions of all kinds side by side, as ``KindCritic`` reads them.

        Args:
          parts: for each kind ``[B, k * width]``, or ``[B, n, k * width]`` where they differ between n entities.
        """
        entities = next((part.shape[1] for part in parts if part.dim() == 3), 0)
        if entities:
            parts = [part if part.dim() == 3 else part[:, None].expand(-1, entities, -1) for part in parts]
        return torch.cat(list(parts), -1) if len(parts) > 1 else parts[0]

    def _batch(self, rows: np.ndarray) -> JointBatch:
        """Return the tensors of joint rows ``[B]``, with new noise."""
        assert self._spaces.global_state is not None
        columns = JointRowTensors(rows, self._spaces.global_state, self.device)
        present = columns.column("present").float()
        actions = [
            (kind.encode(columns.of_kind(kind, "choice")) * present[:, kind.places, None]).flatten(1)
            for kind in self.kinds
        ]
        noise = [
            [torch.from_numpy(kind.draw(len(rows), self._draws)).to(self.device) for _ in range(2)]
            for kind in self.kinds
        ]
        return JointBatch(columns, columns.state(), present, actions, noise)

    def _critic_loss(
        self, values: torch.Tensor, goal: torch.Tensor, present: torch.Tensor, weights: np.ndarray | None
    ) -> torch.Tensor:
        """Return the sum over critics of the mean squared error, and set the rows' priorities.

        Args:
          values: ``[critics, B, K]``.
          goal: ``[B, K]``.
          present: ``[B, K]``.
          weights: ``[B]``, importance weights; None for equal ones.
        """
        errors = (values - goal) * present
        squares = errors**2
        if weights is not None:
            self.feed.set_errors(errors.detach().abs().mean(0).amax(1).numpy(force=True))
            squares = squares * torch.from_numpy(weights).to(self.device)[:, None]
        return squares.mean((1, 2)).sum()

    # State

    def worker_state(self) -> dict[str, np.ndarray]:
        """See ``Policy``."""
        state = super().worker_state()
        for kind in self.kinds:
            if kind is not self._own:
                state |= {f"kind.{kind.number}.{name}": array for name, array in kind.actions.state().items()}
        return state

    def load_worker_state(self, state: dict[str, Any]) -> None:
        """See ``Policy``."""
        super().load_worker_state(state)
        for kind in self.kinds:
            prefix = f"kind.{kind.number}."
            own = {name.removeprefix(prefix): array for name, array in state.items() if name.startswith(prefix)}
            if own:
                kind.actions.load_state(own)


def _positions(kind: TeamKind) -> tuple[int, ...]:
    """Return the positions of a kind's entities on the seat."""
    assert kind.spaces.team is not None
    return kind.spaces.team.positions
