"""If these fail, a task that is documented to need memory can be solved without, or cannot be solved at all."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from arena.common.errors import ConfigError
from arena.envs.partially_observed import AHEAD, BUMP, LEFT, RIGHT, KeepElements, TMaze


@pytest.mark.filterwarnings("ignore")
def test_the_maze_keeps_gymnasium_s_contract() -> None:
    check_env(TMaze(5), skip_render_check=True)


@pytest.mark.parametrize("seed", range(4))
def test_the_cue_is_seen_once_and_decides(seed: int) -> None:
    for turns_as_cued in (True, False):
        env = TMaze(50)
        seen, _ = env.reset(seed=seed)
        cue = seen[0]
        assert cue in (-1, 1) and seen[1:].tolist() == [1, 0]
        for step in range(50):
            seen, reward, terminated, truncated, _ = env.step(AHEAD)
            assert seen.tolist() == ([0, 1, 0] if step < 49 else [0, 0, 1]), "the same whatever the cue was"
            assert (reward, terminated, truncated) == (0.0, False, False)
        side = RIGHT if (cue == 1) == turns_as_cued else LEFT
        _, reward, terminated, truncated, _ = env.step(side)
        assert (reward, terminated, truncated) == (1.0 if turns_as_cued else -1.0, True, False)


def test_both_cues_come() -> None:
    env = TMaze(1)
    assert {float(env.reset(seed=seed)[0][0]) for seed in range(20)} == {-1.0, 1.0}


def test_walls_cost_and_time_ends() -> None:
    env = TMaze(2, max_steps=4)
    first, _ = env.reset(seed=0)
    seen, reward, *_ = env.step(LEFT)
    assert reward == BUMP and np.array_equal(seen, first)
    env.step(AHEAD)
    env.step(AHEAD)
    seen, reward, terminated, truncated, _ = env.step(AHEAD)
    assert (seen.tolist(), reward, terminated, truncated) == ([0, 0, 1], BUMP, False, True)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"corridor": 0}, "corridor: expected a whole number above 0, found 0"),
        ({"corridor": 5, "max_steps": 5}, "max_steps: expected more than the corridor of 5 steps.*found 5"),
    ],
    ids=str,
)
def test_a_maze_without_a_way_is_refused(settings: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TMaze(**settings)


def test_elements_are_kept_in_their_order() -> None:
    env, whole = KeepElements(gymnasium.make("CartPole-v1"), [2, 0]), gymnasium.make("CartPole-v1")
    seen, all_seen = env.reset(seed=1)[0], whole.reset(seed=1)[0]
    assert seen.tolist() == all_seen[[2, 0]].tolist() and env.observation_space.contains(seen)
    assert env.observation_space.high.tolist() == whole.observation_space.high[[2, 0]].tolist()


@pytest.mark.parametrize("elements", [[4], [-1], [], ["0"], [True]], ids=str)
def test_elements_that_are_not_there_are_refused(elements: list) -> None:
    with pytest.raises(ConfigError, match="KeepElements: expected elements from 0 to 3"):
        KeepElements(gymnasium.make("CartPole-v1"), elements)


def test_what_is_no_vector_is_refused() -> None:
    with pytest.raises(ConfigError, match="expected observations that are vectors, found Discrete"):
        KeepElements(gymnasium.make("FrozenLake-v1"), [0])
