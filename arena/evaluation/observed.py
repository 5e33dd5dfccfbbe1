"""Recording of a player's observations while it plays its own matches."""

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from arena.common.errors import ConfigError
from arena.common.seeding import derive_seed
from arena.common.trees import Tree, map_tree
from arena.config.rounds import TableRow
from arena.config.run import RunConfig
from arena.envs.interface import Environment
from arena.evaluation.play import Acting, SeatAgent, play
from arena.evaluation.players import find_contestant, make_copy, seed_libraries, take_seats
from arena.experience.samples import ObservationSample
from arena.records.run_directory import RunDirectory

COPIES = 8


class _SampleComplete(Exception):
    """The requested number of observations was recorded."""


class _Recorder:
    """A policy that records its inputs."""

    def __init__(self, policy: Acting, slots: int) -> None:
        self._policy, self._slots = policy, slots
        self.inputs: list[tuple[Tree, np.ndarray | None, np.ndarray]] = []

    def act(self, observations: Any, *, action_mask: Any = None, starts: Any = None, **others: Any) -> Any:
        """See ``Acting``."""
        if len(self.inputs) == self._slots:
            raise _SampleComplete
        mask = None if action_mask is None else np.array(action_mask)
        self.inputs.append((map_tree(np.array, observations), mask, np.array(starts)))
        return self._policy.act(observations, action_mask=action_mask, starts=starts, **others)


@contextlib.contextmanager
def match_of(
    run: RunDirectory, config: RunConfig, name: str, row: TableRow, seed: int, *, deterministic: bool
) -> Iterator[tuple[list[Environment], list[SeatAgent], list[int]]]:
    """Yield ``COPIES`` environments of a match, the players of its seats, and the indices of the seats of one player.

    All others play with their newest weights; see ``record_observations`` for the arguments.

    Raises:
      ConfigError: a player of the match has no weights or cannot play.
    """
    player = name.partition("@")[0]
    seed_libraries(seed)
    with contextlib.ExitStack() as stack:
        environments = []
        for _ in range(COPIES):
            environments.append(make_copy(row))
            stack.callback(environments[-1].close)
        names = [name if seat.player == player else seat.player for seat in row.seats]
        contestants = [find_contestant(run, config, name) for name in names]
        agents = take_seats(row, contestants, environments, seed, deterministic=deterministic)
        yield environments, agents, [number for number, seat in enumerate(row.seats) if seat.player == player]


def record_observations(
    run: RunDirectory, config: RunConfig, name: str, row: TableRow, rows: int, seed: int, entity: str | None = None
) -> ObservationSample:
    """Return observations of a player as in a training match, with the newest weights of all others.

    Args:
      run: the run directory.
      config: configuration of the run.
      name: name of the player; ``blue@2000`` plays with its snapshot.
      row: a match with the player.
      rows: least number of observations.
      seed: seed of episodes and actions.
      entity: the entity of the player to record, together with those that have equal spaces; None for the first.

    Raises:
      ConfigError: a player of the match has no weights or cannot play.
    """
    with match_of(run, config, name, row, seed, deterministic=False) as (environments, agents, seats):
        agent = agents[seats[0]]
        names = [environments[0].entities[index].name for index in agent.entities]
        lanes = COPIES * len(names)
        recorder = agent.wrap_policy(
            lambda policy: _Recorder(policy, math.ceil(rows / lanes)), names.index(entity) if entity else 0
        )
        with contextlib.suppress(_SampleComplete):
            for _ in play(environments, agents, 1_000_000_000, derive_seed(seed, "observations")):
                pass
    observations, masks, starts = zip(*recorder.inputs, strict=True)
    if not starts:
        raise ConfigError(f"{name}: expected observations of its matches, found none")
    starts_ = np.stack(starts)
    starts_[0] = True
    return ObservationSample(
        map_tree(lambda *leaves: np.stack(leaves), *observations),
        None if masks[0] is None else np.stack(masks),
        starts_,
    )
