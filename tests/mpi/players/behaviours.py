"""Policies that misbehave, or look closely at what they are given; none of them needs torch."""

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor

import gymnasium
import numpy as np
from pettingzoo import ParallelEnv


class Steady:
    """Plays whole episodes with random actions and remembers how they ended."""

    def __init__(self, env, group, *, expect_reset_by=None):
        self.env, self.group, self.expect = env, group, expect_reset_by

    def run(self, steps):
        cut = 0
        for _ in range(6):
            self.env.reset()
            done = False
            while not done:
                _, _, terminated, truncated, info = self.env.step(self.env.action_space.sample())
                done = terminated or truncated
                cut += "reset_by" in info
        if self.expect is not None:
            assert cut > 0, "the other seat's resets were never seen"
        print(f"steady: {cut} episodes were cut", flush=True)


class SteadyVector:
    """Steps all copies as one vector and sees that another seat cuts their episodes short."""

    def __init__(self, env, group):
        self.env = env

    def run(self, steps):
        self.env.reset()
        cut = sum("reset_by" in self.env.step(self.env.action_space.sample())[-1] for _ in range(60))
        print(f"steady: in {cut} steps episodes were cut", flush=True)


class Restless:
    """Resets after a few steps, again and again, then gives up early; with one copy or a vector of several."""

    def __init__(self, env, group):
        self.env = env

    def run(self, steps):
        for _ in range(5):
            self.env.reset()
            for _ in range(3):
                _, _, terminated, truncated, _ = self.env.step(self.env.action_space.sample())
                if np.all(terminated | truncated):
                    self.env.reset()
        print("restless: done", flush=True)


class Echo:
    """Sends random actions and asserts that the environment received exactly these, for these entities."""

    def __init__(self, env, group, *, entities, mark=0):
        self.env, self.group, self.entities, self.mark = env, group, entities, mark

    def run(self, steps):
        if isinstance(self.env, ParallelEnv):
            self._several()
        else:
            assert isinstance(self.env, gymnasium.Env)
            self._one()
        print(f"echo of {self.entities} with mark {self.mark}", flush=True)

    def _several(self):
        for _ in range(3):
            observations, _ = self.env.reset()
            while self.env.agents:
                actions = {agent: self.env.action_space(agent).sample() for agent in self.env.agents}
                observations, rewards, _, _, _ = self.env.step(actions)
                for agent, entity in zip(self.env.possible_agents, self.entities, strict=True):
                    self._check(observations[agent], actions[agent], rewards[agent], entity)

    def _one(self):
        for _ in range(3):
            self.env.reset()
            done = False
            while not done:
                action = self.env.action_space.sample()
                observation, reward, terminated, truncated, _ = self.env.step(action)
                self._check(observation, action, reward, self.entities[0])
                done = terminated or truncated

    def _check(self, observation, action, reward, entity):
        assert observation["who"].tolist() == [entity, self.mark], (observation, entity, self.mark)
        same_values(observation["did"], action)
        assert reward == float(entity)


def same_values(a, b):
    """Assert that two actions are equal, nested ones too."""
    if isinstance(a, dict):
        for key in a:
            same_values(a[key], b[key])
    elif isinstance(a, tuple):
        for left, right in zip(a, b, strict=True):
            same_values(left, right)
    else:
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


class Raises:
    """Fails in the middle of its run."""

    def __init__(self, env, group):
        self.env = env

    def run(self, steps):
        self.env.reset()
        for _ in range(20):
            self.env.step(self.env.action_space.sample())
        raise ZeroDivisionError("a planted mistake")


class Swallows:
    """Takes whatever its environment raises for nothing."""

    def __init__(self, env, group):
        self.env = env

    def run(self, steps):
        while True:
            with contextlib.suppress(Exception):
                self.env.reset()
                self.env.step(self.env.action_space.sample())


class Dreams:
    """Takes a step and then blocks."""

    def __init__(self, env, group):
        self.env = env

    def run(self, steps):
        self.env.reset()
        while True:
            time.sleep(1.0)


class StepsElsewhere:
    """Resets its environment from another thread than the one it was started in."""

    def __init__(self, env, group):
        self.env = env

    def run(self, steps):
        with ThreadPoolExecutor(1) as pool:
            pool.submit(self.env.reset).result()


class Disagrees:
    """Calls different collectives on different workers, which must be an error instead of a hang."""

    def __init__(self, env, group):
        self.env, self.group = env, group

    def run(self, steps):
        self.env.reset()
        self.group.sum(np.zeros(3 + self.group.rank))
