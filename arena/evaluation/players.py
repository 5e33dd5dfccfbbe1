"""Trained players of a run outside of it: policies with their weights."""

import contextlib
import itertools
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from arena.common import registry
from arena.common.copies.placeholders import OUTSIDE_RUN, CopyPlace
from arena.common.errors import ConfigError
from arena.common.seeding import derive_seed, seed_global_generators
from arena.common.text import suggestion
from arena.config.rounds import TableRow
from arena.config.run import RunConfig
from arena.config.sections import PolicyConfig
from arena.envs.interface import EntitySpaces, Environment
from arena.evaluation.play import Acting, SeatAgent
from arena.evaluation.user_policy import UserPolicy
from arena.group.placeholders import PlaceholderError, SingleWorkerGroup, placeholder_env
from arena.plan.seats import check_seats
from arena.protocol.wire import Block
from arena.records.player_files import NEWEST, newest_version, snapshot_of
from arena.records.run_directory import RunDirectory
from arena.tensors.weights import read_state
from arena.worker.custom_player import CustomPlayer


class Contestant(NamedTuple):
    """A player that can play without its run.

    Attributes:
      name: name of the player in tables.
      policy: configuration of its policy.
      weights: its weights file; None if it has none.
      place: place where weights were searched, for messages.
    """

    name: str
    policy: PolicyConfig
    weights: Path | None
    place: Path


def policy_of(config: RunConfig, player: str) -> PolicyConfig:
    """Return the configuration of a player's policy in a run.

    Raises:
      ConfigError: there is no such player.
    """
    if player not in config.players:
        near = suggestion(player, config.players)
        raise ConfigError(f"there is no player {player!r}{near}; players: {', '.join(config.players)}")
    return config.players[player]


def split_name(config: RunConfig, name: str) -> tuple[str, str]:
    """Return the player that a name means, and its weights: ``blue`` and ``2000`` for ``blue@2000``."""
    active, _, frozen_at = name.rpartition("_")
    if name not in config.players and active in config.players and frozen_at.isdecimal():
        return active, frozen_at  # form of the names of a league's snapshots
    player, _, steps = name.partition("@")
    return player, steps or NEWEST


def find_contestant(run: RunDirectory, config: RunConfig, name: str) -> Contestant:
    """Return a player of a run.

    Args:
      run: the run directory.
      config: its configuration.
      name: ``blue`` or ``blue@newest`` for its newest weights, ``blue@2000`` for its snapshot at 2000 steps,
        ``blue@best`` for the best ones of its evaluations.

    Raises:
      ConfigError: there is no such player or snapshot, or the checkpoints are damaged.
    """
    player, steps = split_name(config, name)
    policy = policy_of(config, player)
    place = run.players / player
    if steps == NEWEST:
        return Contestant(name, policy, newest_weights(run, player, policy), place)
    return Contestant(name, policy, snapshot_of(run, player, steps).weights, place)


def split_entity(config: RunConfig, name: str) -> tuple[str, str | None]:
    """Return a name without its entity, and the entity: ``team.listener_0@300`` as ``team@300`` and ``listener_0``.

    The entity is None if the name has none.
    """
    player, at, steps = name.partition("@")
    team, _, entity = player.rpartition(".")
    if player in config.players or team not in config.players:
        return name, None
    return f"{team}{at}{steps}", entity


def seed_libraries(seed: int) -> None:
    """Seed the global generators that users' policies use."""
    import torch

    seed_global_generators(seed)
    torch.manual_seed(seed)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute with one thread: the last bits of sums depend on their number."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def global_generators_kept() -> Iterator[None]:
    """Restore the states of the global generators afterwards: an evaluation inside a user's process seeds them."""
    import torch

    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 (what users' code may use)
    with torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002


_indices = itertools.count(OUTSIDE_RUN)


def make_copy(row: TableRow, *, render: bool = False, place: CopyPlace | None = None) -> Environment:
    """Return one copy of a match's environment; by default, each copy of this process has an index of its own."""
    place = place or CopyPlace(next(_indices))
    return registry.make_environment(**row.env.construction, render=render, place=place)


def take_seats(
    row: TableRow,
    seated: Sequence[Contestant],
    environments: Sequence[Environment],
    seed: int,
    *,
    deterministic: bool,
) -> list[SeatAgent]:
    """Return the agents of a match's seats, for all copies of its environment.

    Args:
      row: the match.
      seated: player of each of its seats.
      environments: the copies.
      seed: root of the policies' random streams.
      deterministic: whether to take the most likely actions, whatever the configuration sets.

    Raises:
      ConfigError: the seats do not fit the environment, or a policy cannot play them or has no weights.
    """
    entities = environments[0].entities
    listed = [entity for seat in row.seats for entity in seat.entities]
    check_seats("this row", row.env.use, [entity.name for entity in entities], listed, row.remapped)
    players = []
    for position, (seat, contestant) in enumerate(zip(row.seats, seated, strict=True)):
        spaces = [entities[index] for index in seat.entities]
        maker = PolicyMaker(contestant, spaces, row, derive_seed(seed, "seat", position))
        likely = deterministic or contestant.policy.deterministic_actions
        copies = len(environments)
        players.append(SeatAgent(contestant.name, seat.entities, spaces, copies, maker, deterministic=likely))
    return players


class PolicyMaker:
    """Builds the policy for a block of a seat's entities, with the player's weights."""

    def __init__(self, contestant: Contestant, spaces: Sequence[EntitySpaces], row: TableRow, seed: int) -> None:
        """Store the arguments.

        Args:
          contestant: the player.
          spaces: spaces of the entities on its seat.
          row: match of the player.
          seed: root of its random streams.
        """
        self._contestant, self._policy, self._weights = contestant, contestant.policy, contestant.weights
        self._spaces, self._row, self._seed = spaces, row, seed

    def __call__(self, block: Block, lanes: int) -> Acting:
        """Return the policy for a block of the seat's entities in ``lanes`` lanes.

        Raises:
          ConfigError: the player has no weights, they do not fit, or its policy cannot play without a match.
        """
        cls = registry.policy_class(self._policy.use)
        try:
            if hasattr(cls, "run"):
                return UserPolicy(self._custom_loop(cls), self._policy.use, block.spaces)
            seed = derive_seed(self._seed, "block", *block.positions)
            chosen = self._policy
            policy = registry.build_policy(chosen.use, block.spaces, chosen.settings, lanes=lanes, seed=seed)
            if self._weights is not None:
                registry.load_policy_weights(policy, self._weights)
            elif policy.weights():
                raise ConfigError(self._untrained())
        except ConfigError as error:
            raise ConfigError(f"player {self._contestant.name!r}: {error}") from error
        return UserPolicy(policy, chosen.use, block.spaces) if registry.is_reference(chosen.use) else policy

    def _untrained(self) -> str:
        return (
            f"expected weights in {self._contestant.place} or in a checkpoint, found none; "
            "train it first, or let it finish its first checkpoint"
        )

    def _custom_loop(self, cls: type) -> Acting:
        if self._weights is None:
            raise ConfigError(self._untrained())
        keywords = dict(self._policy.settings)
        model = registry.policy_settings_model(self._policy.use)
        if model is not None:
            keywords = model(**keywords).model_dump()
        env = placeholder_env(self._spaces, self._row.env.num_envs, self._row.env.autoreset)
        try:
            policy = cls(env, SingleWorkerGroup(), **keywords)
        except PlaceholderError as error:
            raise ConfigError(
                f"{self._policy.use} cannot be evaluated: it steps its environment while it is built, "
                "and there is no match here; move that into run"
            ) from error
        missing = [name for name in ("act", "load_state_dict") if not callable(getattr(policy, name, None))]
        if missing:
            raise ConfigError(
                f"{self._policy.use} cannot be evaluated: expected methods act(observations) and "
                f"load_state_dict(state), found no {' and no '.join(missing)}"
            )
        policy.load_state_dict(read_state(self._weights))
        return CustomPlayer(policy)


def newest_weights(run: RunDirectory, player: str, policy: PolicyConfig) -> Path | None:
    """Return the file of a player's newest weights, or None; see ``newest_version``."""
    newest = newest_version(run, player, policy.warm_start)
    return None if newest is None else newest.weights
