"""If these fail, the random policy plays what is not allowed, or is no fair yardstick."""

import subprocess
import sys

import numpy as np
import pytest
from gymnasium import spaces as gym_spaces

from arena.common.errors import ConfigError
from arena.envs.interface import EntitySpaces
from arena.policies.random import Random
from arena.policies.settings.random import RandomSettings

OBSERVATION = gym_spaces.Box(-1, 1, (2,))


def make(action, mask_size=0, seed=0):
    return Random(EntitySpaces("a", OBSERVATION, action, mask_size), RandomSettings(), lanes=8, seed=seed)


def sample(action, count=400, **more):
    return make(action, **more).act(np.zeros((count, 2), np.float32)).actions


def member(space, actions, index):
    if isinstance(space, gym_spaces.Dict):
        return {key: member(sub, actions[key], index) for key, sub in space.spaces.items()}
    if isinstance(space, gym_spaces.Tuple):
        return tuple(member(sub, actions[i], index) for i, sub in enumerate(space.spaces))
    return actions[index]


@pytest.mark.parametrize(
    "space",
    [
        gym_spaces.Discrete(5, start=-2),
        gym_spaces.MultiDiscrete([3, 2, 5]),
        gym_spaces.MultiDiscrete([[3, 2], [4, 4]]),
        gym_spaces.MultiBinary((2, 2)),
        gym_spaces.Box(-3, 7, (2, 2)),
        gym_spaces.Box(np.array([-np.inf, 0, -1]), np.array([np.inf, np.inf, 1]), dtype=np.float64),
        gym_spaces.Box(0, 255, (3,), np.uint8),
        gym_spaces.Dict(move=gym_spaces.Discrete(3), aim=gym_spaces.Tuple([gym_spaces.Box(-1, 1, (1,))])),
    ],
    ids=str,
)
def test_every_sample_is_a_member_of_the_space(space):
    actions = sample(space)
    assert all(space.contains(member(space, actions, i)) for i in range(400))


def test_all_actions_are_equally_likely():
    counts = np.bincount(sample(gym_spaces.Discrete(4), 40_000), minlength=4)
    assert np.abs(counts - 10_000).max() < 400


def test_masks_are_honoured_and_what_is_left_is_equally_likely():
    mask = np.tile(np.array([0, 1, 0, 1, 1], np.int8), (30_000, 1))
    policy = make(gym_spaces.Discrete(5, start=1), 5)
    counts = np.bincount(policy.act(np.zeros((30_000, 2)), action_mask=mask).actions - 1, minlength=5)
    assert counts[0] == counts[2] == 0
    assert np.abs(counts[[1, 3, 4]] - 10_000).max() < 400


def test_probabilities_are_equal_among_what_is_allowed():
    policy, seen = make(gym_spaces.Discrete(4), 4), np.zeros((2, 2))
    np.testing.assert_array_equal(policy.probabilities(seen), np.full((2, 4), 0.25))
    masks = np.array([[1, 0, 1, 0], [0, 0, 0, 1]], np.int8)
    np.testing.assert_array_equal(policy.probabilities(seen, masks), [[0.5, 0, 0.5, 0], [0, 0, 0, 1]])
    with pytest.raises(ConfigError, match="expected a Discrete action space"):
        make(gym_spaces.MultiDiscrete([2, 2])).probabilities(seen)


def test_each_run_of_a_long_mask_belongs_to_its_own_number():
    mask = np.tile(np.array([0, 0, 1, 1, 0], np.int8), (50, 1))
    actions = make(gym_spaces.MultiDiscrete([3, 2]), 5).act(np.zeros((50, 2)), action_mask=mask).actions
    assert (actions == [2, 0]).all()


def test_lanes_and_seeds_differ_and_a_seed_repeats():
    first = sample(gym_spaces.Box(-1, 1, (3,)), seed=1)
    assert len(np.unique(first)) == first.size
    assert not np.array_equal(first, sample(gym_spaces.Box(-1, 1, (3,)), seed=2))
    assert np.array_equal(first, sample(gym_spaces.Box(-1, 1, (3,)), seed=1))


def test_goes_on_from_its_stored_state():
    policy = make(gym_spaces.Discrete(1000))
    policy.act(np.zeros((3, 2)))
    state = policy.worker_state()
    expected = policy.act(np.zeros((50, 2))).actions
    other = make(gym_spaces.Discrete(1000), seed=99)
    other.load_worker_state(state)
    assert np.array_equal(other.act(np.zeros((50, 2))).actions, expected)


def test_never_learns():
    assert make(gym_spaces.Discrete(2)).horizon == 0


def test_refuses_spaces_and_masks_it_does_not_understand():
    with pytest.raises(ConfigError, match="random cannot sample Text"):
        make(gym_spaces.Text(3))
    with pytest.raises(ConfigError, match="expected an action mask of 4 flags .* found 3"):
        make(gym_spaces.Discrete(4), 3)


def test_plays_without_torch():
    code = "import sys, arena.policies.random, arena.policies.settings.random; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
