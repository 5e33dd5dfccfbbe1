"""Matches in one process and without MPI: trained policies on every seat, and no learning."""

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from arena.common.errors import ConfigError, GivenUpError
from arena.common.masks import NoActionError, emptiness_check, sample_action
from arena.common.seeding import derive_seed
from arena.common.trees import map_tree
from arena.env_manager.faults import fault_of
from arena.environment.episodes.running import metrics_of
from arena.envs.interface import EntitySpaces, Environment, Timestep
from arena.protocol.wire import (
    ActionMessage,
    Block,
    SlotWriter,
    action_reader,
    blocks_of,
    make_observation_message,
)


class Acting(Protocol):
    """The part of a policy that acts; see ``arena.policies.interface.Policy``."""

    def act(
        self,
        observations: Any,
        *,
        action_mask: np.ndarray | None = None,
        starts: np.ndarray | None = None,
        lanes: slice | None = None,
        deterministic: bool = False,
    ) -> Any:
        """Return a ``Decision`` for N lanes."""


Watching = TypeVar("Watching", bound=Acting)


class Result(NamedTuple):
    """Result of one episode.

    Attributes:
      players: name of the player of each played entity.
      returns: undiscounted return of each.
      outcomes: reported outcome of each, or None.
      length: environment steps.
      metrics: measurements of the environment for each, by name; empty if there are none.
    """

    players: tuple[str, ...]
    returns: tuple[float, ...]
    outcomes: tuple[Any, ...]
    length: int
    metrics: tuple[dict[str, float], ...] = ()


class SeatAgent:
    """One player on one seat, in several copies of the environment.

    Attributes:
      player: name of the player.
      entities: indices of its entities.
    """

    def __init__(
        self,
        player: str,
        entities: Sequence[int],
        spaces: Sequence[EntitySpaces],
        copies: int,
        make_policy: Callable[[Block, int], Acting],
        *,
        deterministic: bool,
    ) -> None:
        """Build the policies.

        Args:
          player: name of the player.
          entities: indices of its entities.
          spaces: spaces of each entity.
          copies: number of copies of the environment.
          make_policy: (block of entities with equal spaces, lanes) -> policy.
          deterministic: whether the policy takes its most likely action.
        """
        self.player, self.entities = player, tuple(entities)
        self._deterministic = deterministic
        self._blocks = blocks = blocks_of(spaces)
        self._record = make_observation_message(blocks, copies)
        message = ActionMessage(blocks, copies)
        self._lanes = [copies * len(block.positions) for block in blocks]
        self._policies = [make_policy(block, lanes) for block, lanes in zip(blocks, self._lanes, strict=True)]
        self._sizes = [len(block.positions) for block in blocks]
        # Flat views by lane, copies first: inputs and outputs of a policy.
        self._observations = [map_tree(_lanes, tree) for tree in self._record.observations]
        self._masks = [None if mask is None else mask.reshape(-1, mask.shape[-1]) for mask in self._record.action_masks]
        self._actions = [map_tree(_lanes, tree) for tree in message.actions]
        self._writers: list[list[tuple[int, SlotWriter, np.ndarray | None]]] = [[] for _ in range(copies)]
        self._readers: list[list[tuple[int, Callable[[], Any]]]] = [[] for _ in range(copies)]
        for number, block in enumerate(blocks):
            for place, position in enumerate(block.positions):
                entity, mask = self.entities[position], self._record.action_masks[number]
                for copy in range(copies):
                    writer = SlotWriter(self._record.observations[number], copy, place, spaces[position].name)
                    slot = None if mask is None else mask[copy, place]
                    self._writers[copy].append((entity, writer, slot))
                    self._readers[copy].append((entity, action_reader(message.actions[number], copy, place)))

    def wrap_policy(self, wrap: Callable[[Acting], Watching], position: int = 0) -> Watching:
        """Wrap the policy that acts for an entity, by its position on the seat, and return the wrapper."""
        number = next(number for number, block in enumerate(self._blocks) if position in block.positions)
        watching = wrap(self._policies[number])
        self._policies[number] = watching
        return watching

    def observe(self, copy: int, timestep: Timestep, started: bool) -> None:
        """Store the observations of the seat's entities in one copy."""
        self._record.started[copy] = started
        for entity, writer, mask_slot in self._writers[copy]:
            writer.write(timestep.observations[entity])
            if mask_slot is not None:
                mask = timestep.action_masks[entity]
                mask_slot[...] = 1 if mask is None else mask

    def decide(self) -> None:
        """Choose the actions of all copies."""
        for number, policy in enumerate(self._policies):
            decision = policy.act(
                self._observations[number],
                action_mask=self._masks[number],
                starts=np.repeat(self._record.started, self._sizes[number]),
                lanes=slice(0, self._lanes[number]),
                deterministic=self._deterministic,
            )
            map_tree(
                lambda array, values: np.copyto(array, values, casting="same_kind"),
                self._actions[number],
                decision.actions,
            )

    def assign(self, copy: int, actions: list[Any]) -> None:
        """Write the seat's actions for one copy into the list of all entities' actions."""
        for entity, read in self._readers[copy]:
            actions[entity] = read()


MAX_FAULTS = 3
"""Number of faults of an environment in one episode after which playing ends."""


def _lanes(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1, *array.shape[2:])


class _Copy:
    """One copy of the environment, its episodes to play, and the current one."""

    def __init__(self, environment: Environment, episodes: Iterator[int], seed: int) -> None:
        self._environment, self._episodes, self._seed = environment, episodes, seed
        self.timestep: Timestep | None = None
        self.episode = -1
        self.started = False
        self._is_empty = [emptiness_check(entity.action) for entity in environment.entities]
        self.begin()

    def begin(self) -> None:
        """Reset for the next episode, if there is one.

        Raises:
          GivenUpError: the environment has failed too often.
        """
        self.episode, self._faults = next(self._episodes, -1), 0
        if self.episode < 0:
            self.timestep = None
        else:
            self._begin_again()

    def step(self, actions: Sequence[Any]) -> bool:
        """Step; return whether the episode is over. If the environment fails, the episode starts over.

        Raises:
          GivenUpError: it has failed too often.
        """
        try:
            timestep = self._environment.step(actions)
            self._check_masks(timestep)
        except (Exception, SystemExit) as error:
            self._count(error, "step")
            self._begin_again()
            return False
        self.timestep = timestep
        self.started = False
        self.length += 1
        self.returns += timestep.rewards
        for entity, info in enumerate(timestep.infos):
            if "outcome" in info:
                self.outcomes[entity] = info["outcome"]
        return timestep.over

    def _begin_again(self) -> None:
        self.started, self.length = True, 0
        self.returns = np.zeros(len(self._environment.entities))
        self.outcomes: list[Any] = [None] * len(self._environment.entities)
        while True:
            # As without a fault, so that results do not depend on earlier faults.
            parts = ("episode", self.episode, *(("fault", self._faults) if self._faults else ()))
            try:
                self.timestep = self._environment.reset(seed=derive_seed(self._seed, *parts))
                self._check_masks(self.timestep)
                return
            except (Exception, SystemExit) as error:
                self._count(error, "reset")

    def _check_masks(self, timestep: Timestep) -> None:
        for entity, is_empty in enumerate(self._is_empty):
            mask = timestep.action_masks[entity]
            if mask is not None and timestep.acting[entity] and is_empty(mask):
                raise NoActionError(self._environment.entities[entity].name)

    def _count(self, error: BaseException, method: str) -> None:
        """Count a fault of the environment.

        Raises:
          GivenUpError: there were too many in one episode; the message states the last one.
        """
        if isinstance(error, ConfigError):
            raise error
        fault = fault_of(error, method)
        self._faults += 1
        text = f"episode {self.episode}: {method} {fault.cause}"
        if self._faults > MAX_FAULTS:
            raise GivenUpError(f"{text}; the environment has failed {self._faults} times in this episode") from error
        print(f"warning: {text}; the episode begins again", file=sys.stderr)


def play(
    environments: Sequence[Environment],
    seats: Sequence[SeatAgent],
    episodes: int,
    seed: int,
    on_step: Callable[[int, bool], None] = lambda copy, over: None,
) -> Iterator[Result]:
    """Play a number of episodes in several copies, and yield their results.

    Episodes are assigned to copies beforehand: assigning them to the copy that ends first would favour short ones.

    Args:
      environments: the copies.
      seats: agents of the seats, each for all copies.
      episodes: total number of episodes.
      seed: root of each episode's own seed.
      on_step: called with the copy, and whether its episode is over, after each reset and step.
    """
    count = len(environments)
    copies = [_Copy(env, iter(range(c, episodes, count)), seed) for c, env in enumerate(environments)]
    generator = np.random.default_rng(derive_seed(seed, "unclaimed"))
    played = {entity for seat in seats for entity in seat.entities}
    unclaimed = [(index, e) for index, e in enumerate(environments[0].entities) if index not in played]
    for _, entity in unclaimed:
        entity.action.seed(int(generator.integers(2**31)))
    for number, copy in enumerate(copies):
        if copy.timestep is not None:
            on_step(number, False)
    while any(copy.timestep is not None for copy in copies):
        for number, copy in enumerate(copies):
            if copy.timestep is not None:
                for seat in seats:
                    seat.observe(number, copy.timestep, copy.started)
        for seat in seats:
            seat.decide()
        for number, copy in enumerate(copies):
            if copy.timestep is None:
                continue
            actions: list[Any] = [None] * len(environments[number].entities)
            for seat in seats:
                seat.assign(number, actions)
            for index, entity in unclaimed:
                actions[index] = sample_action(entity.action, copy.timestep.action_masks[index])
            over = copy.step(actions)
            on_step(number, over)
            if over:
                yield _result(copy, seats)
                copy.begin()
                if copy.timestep is not None:
                    on_step(number, False)


def _result(copy: _Copy, seats: Sequence[SeatAgent]) -> Result:
    entities = [(entity, seat.player) for seat in seats for entity in seat.entities]
    assert copy.timestep is not None  # that of the last step
    measured = metrics_of(copy.timestep.infos)
    return Result(
        players=tuple(player for _, player in entities),
        returns=tuple(float(copy.returns[entity]) for entity, _ in entities),
        outcomes=tuple(copy.outcomes[entity] for entity, _ in entities),
        length=copy.length,
        metrics=tuple(measured[entity] for entity, _ in entities) if measured else (),
    )
