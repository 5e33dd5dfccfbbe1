"""Policies that hold the proxies against their libraries' own checks, from inside a worker."""

import warnings
from copy import deepcopy

import gymnasium
import numpy as np
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from pettingzoo.test import parallel_api_test, parallel_seed_test


class ChecksGymnasium:
    """Runs Gymnasium's ``check_env`` on the proxy."""

    def __init__(self, env, group):
        self.env = env

    def run(self, steps):
        assert isinstance(self.env, gymnasium.Env)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", message=".*(infinity|Inf|-inf|symmetric|normalized).*")
            warnings.filterwarnings("ignore", message=".*not within the observation space.*bounds.*")
            check_env(self.env, skip_render_check=True, skip_close_check=True)
        print("check_env passed", flush=True)


class ChecksParallel:
    """Runs PettingZoo's ``parallel_api_test`` on the proxy, and ``parallel_seed_test`` on two copies of it."""

    def __init__(self, env, group):
        self.envs = env if isinstance(env, list) else [env]

    def run(self, steps):
        parallel_api_test(self.envs[0], num_cycles=200)
        if len(self.envs) == 2:
            copies = iter(self.envs)
            parallel_seed_test(lambda: next(copies), num_cycles=200)
            print("parallel_seed_test passed", flush=True)
        print("parallel_api_test passed", flush=True)


class ComparesWithSyncVectorEnv:
    """Plays the vector proxy and Gymnasium's own vector environment side by side; every value must be identical."""

    def __init__(self, env, group, *, use, env_settings=None, mode="next_step", length=600):
        self.env, self.length = env, length
        self.mode = AutoresetMode.SAME_STEP if mode == "same_step" else AutoresetMode.NEXT_STEP
        name = use.removeprefix("gymnasium:")
        self.make = lambda: gymnasium.make(name, **(env_settings or {}))

    def run(self, steps):
        assert isinstance(self.env, gymnasium.vector.VectorEnv)
        theirs = SyncVectorEnv([self.make] * self.env.num_envs, autoreset_mode=self.mode)
        assert self.env.metadata["autoreset_mode"] == theirs.metadata["autoreset_mode"]
        assert self.env.observation_space == theirs.observation_space
        assert self.env.action_space == theirs.action_space
        same(self.env.reset(seed=5), theirs.reset(seed=5))
        actions = deepcopy(theirs.action_space)
        actions.seed(1)
        ended = 0
        for _ in range(self.length):
            action = actions.sample()
            ours, expected = self.env.step(action), theirs.step(action)
            same(ours, expected)
            ended += int((expected[2] | expected[3]).sum())
        assert ended > 3, "the comparison never saw an episode end"
        same(self.env.reset(seed=[7] * self.env.num_envs), theirs.reset(seed=[7] * self.env.num_envs))
        mask = np.arange(self.env.num_envs) % 2 == 0
        same(self.env.reset(seed=11, options={"reset_mask": mask}), theirs.reset(seed=11, options={"reset_mask": mask}))
        print(f"identical to SyncVectorEnv over {ended} episodes", flush=True)


def same(a, b):
    """Assert that two nests of dicts, tuples and arrays are identical, dtypes included."""
    assert type(a) is type(b) or np.isscalar(a), (type(a), type(b))
    if isinstance(a, dict):
        assert a.keys() == b.keys(), (a.keys(), b.keys())
        for key in a:
            same(a[key], b[key])
    elif isinstance(a, tuple | list):
        assert len(a) == len(b)
        for left, right in zip(a, b, strict=True):
            same(left, right)
    elif isinstance(a, np.ndarray) and a.dtype == object:
        for left, right in zip(a, b, strict=True):
            same(left, right)
    else:
        np.testing.assert_array_equal(a, b)
        assert np.asarray(a).dtype == np.asarray(b).dtype
