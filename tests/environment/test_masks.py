"""A mask that allows nothing is a fault of that copy: in training with either manager, and in evaluation."""

from collections.abc import Iterator
from typing import ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from arena.common.errors import GivenUpError
from arena.common.masks import NoActionError, emptiness_check
from arena.common.registry import build_policy
from arena.env_manager.faults import fault_of
from arena.env_manager.slot import Slot
from arena.environment.batch_writer import BatchWriter
from arena.envs.adapters.kinds import adapt
from arena.evaluation.play import SeatAgent, play
from arena.protocol.wire import blocks_of, make_observation_message


class Masked(gymnasium.Env):
    """Allows no action in the third step of the episodes that ``stuck`` names."""

    metadata: ClassVar = {"action_mask": True}
    observation_space = spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, action: spaces.Space, empty: list[int], stuck: Iterator[bool]) -> None:
        self.action_space, self._empty, self._stuck = action, np.array(empty, np.int8), stuck

    def _returns(self):
        allowed = np.ones(len(self._empty), np.int8)
        return {"action_mask": self._empty if self.t == 3 and self.is_stuck else allowed}

    def reset(self, *, seed=None, options=None):
        self.t, self.is_stuck = 0, next(self._stuck)
        return np.zeros(2, np.float32), self._returns()

    def step(self, action):
        self.t += 1
        return np.zeros(2, np.float32), 1.0, self.t == 5, False, self._returns()


SPACES = [(spaces.Discrete(3), [0, 0, 0]), (spaces.MultiDiscrete([2, 2]), [0, 0, 1, 1])]


def always():
    while True:
        yield True


@pytest.mark.parametrize(("space", "empty"), SPACES)
def test_each_choice_needs_an_allowed_action(space, empty):
    is_empty = emptiness_check(space)
    assert is_empty(np.array(empty)) and not is_empty(np.ones(len(empty)))


@pytest.mark.parametrize(("space", "empty"), SPACES)
def test_in_training_it_is_a_fault_with_either_manager(space, empty):
    environment = adapt(Masked(space, empty, always()))
    timestep = environment.reset(1)
    slot = Slot(environment.entities)
    blocks = blocks_of(environment.entities)
    record = make_observation_message(blocks, 1)
    writer = BatchWriter([record], [(0,)], [blocks], environment.entities, readers=[], looks_for_nan=True)
    for _ in range(2):
        timestep = environment.step([space.sample()])
        slot.put(timestep)
        writer.write(0, timestep, started=False)
    timestep = environment.step([space.sample()])
    with pytest.raises(NoActionError, match="no action is allowed: .* for entity 'entity_0'"):
        slot.put(timestep)
    with pytest.raises(NoActionError) as caught:
        writer.write(0, timestep, started=False)
    assert fault_of(caught.value, "step").what == "mask"


def evaluated(stuck: Iterator[bool]):
    space, empty = SPACES[0]
    environment = adapt(Masked(space, empty, stuck))

    def make(block, lanes):
        return build_policy("random", block.spaces, {}, lanes=lanes, seed=1)

    seat = SeatAgent("p", (0,), environment.entities, 1, make, deterministic=False)
    return list(play([environment], [seat], 2, seed=1))


def test_in_evaluation_the_episode_begins_again(capsys):
    results = evaluated(iter([False, True, True, False]))
    assert [(result.length, result.returns) for result in results] == [(5, (5.0,)), (5, (5.0,))]
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 2 and all("no action is allowed" in line for line in told)


def test_in_evaluation_an_environment_that_only_fails_ends_it_in_one_sentence():
    with pytest.raises(GivenUpError, match=r"^episode 0: step left no action: .* failed 4 times in this episode$"):
        evaluated(always())
