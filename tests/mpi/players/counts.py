"""An environment and policies that count what an exchange costs: messages, bytes, memory that is not given back."""

import tracemalloc
from pathlib import Path

import gymnasium
import numpy as np

from arena.policies.on_policy.ppo import PPO

STEPS = 2000
"""Exchanges between two looks at the memory."""


class Memory:
    """Looks at the memory twice, far apart."""

    def __init__(self):
        self._first = None

    @staticmethod
    def _now():
        arrays = tracemalloc.take_snapshot().filter_traces([tracemalloc.DomainFilter(True, np.lib.tracemalloc_domain)])
        return tracemalloc.get_traced_memory()[0], len(arrays.traces)

    def look(self):
        """Return nothing at first, then by how many bytes and NumPy arrays the memory has grown since."""
        if self._first is None:
            self._now()  # what looking itself leaves behind is there from now on
            self._first = self._now()
            return None
        found = self._now()
        return tuple(now - before for now, before in zip(found, self._first, strict=True))


class Endless(gymnasium.Env):
    """Never ends; the first copy writes by how much its process has grown while it stepped."""

    looking = None
    observation_space = gymnasium.spaces.Box(-1, 1, (8,), np.float32)
    action_space = gymnasium.spaces.Discrete(4)

    def __init__(self, report: str):
        self._report, self._steps, self._memory = report, 0, Memory()
        self._observation = np.zeros(8, np.float32)

    def reset(self, *, seed=None, options=None):
        return self._observation, {}

    def step(self, action):
        Endless.looking = Endless.looking or self
        if Endless.looking is self:
            self._look()
        return self._observation, 0.0, False, False, {}

    def _look(self):
        self._steps += 1
        if self._steps == 200:
            tracemalloc.start()
        elif self._steps in (400, 400 + STEPS):
            grown = self._memory.look()
            if grown is not None:
                Path(self._report).write_text(f"{grown[0]} {grown[1]}", encoding="utf-8")
                tracemalloc.stop()


class CountsSteps:
    """Steps its proxy and counts what that took."""

    def __init__(self, env, group):
        self.env = env

    def run(self, steps):
        env, seat = self.env, self.env.seat
        calls = {"send": 0, "receive": 0, "receive_side": 0}
        for name in calls:
            self._count(seat._channel, name, calls)
        env.reset()
        memory, before = Memory(), dict(calls)
        actions = env.action_space.sample()
        for step in range(400 + STEPS):
            if step == 200:
                tracemalloc.start()
            elif step == 400:
                assert memory.look() is None
            env.step(actions)
        grown = memory.look()
        tracemalloc.stop()
        made = {name: calls[name] - before[name] for name in calls}
        sizes = seat.messages[0].buffer.nbytes, seat.records[0].buffer.nbytes
        print(f"counted: {made} bytes {sizes} grown {grown}", flush=True)

    @staticmethod
    def _count(channel, name, calls):
        really = getattr(channel, name)

        def counted(*arguments):
            calls[name] += 1
            return really(*arguments)

        setattr(channel, name, counted)


class CountsUpdates(PPO):
    """A PPO that looks at its process's memory after its 4th and its 12th update."""

    def learn(self, rollout, group):
        metrics = super().learn(rollout, group)
        if self.updates == 2:
            tracemalloc.start()
            self.memory = Memory()
        elif self.updates in (4, 12):
            grown = self.memory.look()
            if grown is not None:
                tracemalloc.stop()
                print(f"learned: grown {grown}", flush=True)
        return metrics
