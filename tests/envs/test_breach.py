"""An environment that breaks the contract of its library is reported in one sentence, with its file and line."""

import gymnasium
import numpy as np
import pytest
from pettingzoo import ParallelEnv

from arena.common.errors import ConfigError, ContractError
from arena.envs.adapters.kinds import adapt

BOX, TWO = gymnasium.spaces.Box(-1, 1, (2,), np.float32), gymnasium.spaces.Discrete(2)
SEEN = np.zeros(2, np.float32)


class Env(gymnasium.Env):
    observation_space, action_space = BOX, TWO
    first, then = (SEEN, {}), (SEEN, 1.0, False, False, {})

    def reset(self, *, seed=None, options=None):
        return self.first

    def step(self, action):
        return self.then


class OldReset(Env):
    def reset(self):
        return SEEN


class Parallel(ParallelEnv):
    possible_agents = agents = ("a", "b")
    first = ({"a": SEEN, "b": SEEN}, {"a": {}, "b": {}})
    then = ({}, {"a": 1.0, "b": 0.0}, {}, {}, {})

    def observation_space(self, agent):
        return BOX

    def action_space(self, agent):
        return TWO

    def reset(self, seed=None, options=None):
        return self.first

    def step(self, actions):
        return self.then


def refusal(env) -> str:
    environment = adapt(env)
    try:
        environment.reset(1)
        environment.step([np.int64(0)] * len(environment.entities))
    except ContractError as error:
        return str(error)
    raise AssertionError("the environment was accepted")


def test_the_reset_of_gym_before_0_26():
    text = refusal(gymnasium.wrappers.OrderEnforcing(OldReset()))
    assert text.startswith("must accept the keyword arguments seed and options; found reset() (")
    assert "test_breach.py, line " in text


@pytest.mark.parametrize("first", [SEEN, (SEEN, 0.0), (SEEN, {}, 1), [SEEN, {}], None])
def test_a_reset_without_info(first):
    env = Env()
    env.first = first
    text = refusal(env)
    assert text.startswith("must return (observation, info), as in Gymnasium since 0.26; found ")
    assert "test_breach.py, line " in text


@pytest.mark.parametrize("then", [(SEEN, 1.0, False, {}), (SEEN, 1.0, False, False, None), None])
def test_a_step_of_another_form(then):
    env = Env()
    env.then = then
    assert refusal(env).startswith("must return (observation, reward, terminated, truncated, info)")


@pytest.mark.parametrize("reward", [np.zeros(2), None, {}])
def test_a_reward_that_is_no_number(reward):
    env = Env()
    env.then = (SEEN, reward, False, False, {})
    assert refusal(env).startswith("must return a number as reward; found ")
    assert ("an environment of several agents is a PettingZoo ParallelEnv" in refusal(env)) == (reward is not None)


@pytest.mark.parametrize("shape", [(1,), (1, 1)])
def test_a_reward_of_one_element_is_taken_with_one_warning(shape, caplog):
    env = Env()
    env.then = (SEEN, np.full(shape, 0.5), False, False, {})
    environment = adapt(env)
    environment.reset(1)
    assert [environment.step([np.int64(0)]).rewards for _ in range(3)] == [(0.5,)] * 3
    assert caplog.text.count(f"the reward is an array of shape {shape}") == 1


def test_a_parallel_environment_without_infos_or_with_four_values():
    env = Parallel()
    env.first = {"a": SEEN, "b": SEEN}
    assert refusal(env).startswith("must return (observations, infos), two dicts by agent")
    env = Parallel()
    env.then = Parallel.then[:4]
    assert refusal(env).startswith("must return (observations, rewards, terminations, truncations, infos), five dicts")


def test_an_observation_without_a_number_is_refused_before_a_run_starts():
    env = Env()
    env.observation_space = gymnasium.spaces.Box(0, 1, (0,), np.float32)
    with pytest.raises(ConfigError, match=r"found a Box of shape \(0,\), with no number in it"):
        adapt(env)


def test_a_mask_in_infos_that_nothing_declares_is_ignored_with_one_warning(caplog):
    env = Env()
    env.reset = lambda seed=None, options=None: (SEEN, {"action_mask": np.ones(2, np.int8)})
    environment = adapt(env)
    for _ in range(2):
        assert environment.reset(1).action_masks == (None,)
    assert caplog.text.count("set env.action_mask: info") == 1
    env.metadata = {"action_mask": True}
    assert (adapt(env).reset(1).action_masks[0] == 1).all()
