"""Policies that misbehave, or look closely at what they are given."""

import contextlib
import random
import time
from concurrent.futures import ThreadPoolExecutor

import gymnasium
import numpy as np
import pytest
import torch
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
    """Takes a step and then does nothing, for ever."""

    def __init__(self, env, group):
        self.env = env

    def run(self, steps):
        self.env.reset()
        while True:
            time.sleep(1.0)


class Averages:
    """Averages gradients with its group; worker 1 stops after a few updates and the others must go on."""

    def __init__(self, env, group, *, updates=30, early=5, outputs=2):
        self.env, self.group, self.updates, self.early = env, group, updates, early
        self.model = torch.nn.Linear(3, outputs)
        group.broadcast(self.model)

    def run(self, steps):
        group = self.group
        count = self.early if group.rank == 1 else self.updates
        with pytest.raises(TypeError, match="expected a float32 or float64 array, found int64"):
            group.sum_in_place(np.arange(3))
        self.env.reset()
        for update in range(count):
            _, _, terminated, truncated, _ = self.env.step(self.env.action_space.sample())
            if terminated or truncated:
                self.env.reset()
            self.model.zero_grad()
            if update == self.early + 1:  # a gradient that is not finite spoils the update that it is for, and no other
                (self.model(torch.ones(1, 3)).sum() * float("nan")).backward()
                group.average_gradients(self.model)
                assert self.model.weight.grad.isnan().all()
                self.model.zero_grad()
            (self.model(torch.ones(1, 3)).sum() * (group.rank + 1)).backward()
            weights = [1] * group.size if update % 3 else [rank + 2 for rank in range(group.size)]
            group.average_gradients(self.model, weights[group.rank])
            if update >= self.early:
                weights[1] = 0
            gradient = torch.cat([self.model.weight.grad.reshape(-1), self.model.bias.grad])
            expected = np.average(np.arange(group.size) + 1, weights=weights)
            assert (gradient - expected).abs().max() < 1e-6, (update, gradient, expected)
            assert (gradient == gradient[0]).all()
            running = [rank for rank in range(group.size) if update < self.early or rank != 1]
            few = np.array([[update, group.rank, 0.5]], np.float32)
            group.sum_in_place(few)  # few enough to be added up by every worker
            assert few.tolist() == [[update * len(running), sum(running), 0.5 * len(running)]], few
            assert group.sum(group.rank + 0.25) == sum(running) + 0.25 * len(running)
            if update in (0, self.early):  # more than is summed at once, with all and without the one that is early
                assert (group.sum(np.arange(600_000.0)) == np.arange(600_000.0) * len(running)).all()
                assert (group.sum(np.ones(600_000)) == len(running)).all()
        print(f"worker {group.rank} made {count} updates", flush=True)


class StepsElsewhere:
    """Resets its environment from another thread than the one it was started in."""

    def __init__(self, env, group):
        self.env = env

    def run(self, steps):
        with ThreadPoolExecutor(1) as pool:
            pool.submit(self.env.reset).result()


class Looks:
    """Logs what tells workers and rounds apart: random streams, and the handle of the group's communicator."""

    def __init__(self, env, group):
        self.env, self.group = env, group

    def run(self, steps):
        streams = np.zeros((self.group.size, 3))
        streams[self.group.rank] = random.random(), np.random.random(), float(torch.rand(()))  # noqa: NPY002
        streams = self.group.sum(streams)
        assert len(np.unique(streams)) == streams.size, streams
        handle = self.group.sum_in_place.__self__._comm.py2f()
        self.group.log(communicator=handle)
        self.env.reset()
        for _ in range(steps):
            _, _, terminated, truncated, _ = self.env.step(self.env.action_space.sample())
            if terminated or truncated:
                self.env.reset()
        print(f"communicator {handle}", flush=True)


class Disagrees:
    """Calls different collectives on different workers, which must be an error instead of a hang."""

    def __init__(self, env, group):
        self.env, self.group = env, group

    def run(self, steps):
        self.env.reset()
        self.group.sum(np.zeros(3 + self.group.rank))
