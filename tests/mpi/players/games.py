"""Small environments whose every value can be predicted, for tests that look at what really travelled."""

import ctypes

import gymnasium
import numpy as np
from gymnasium import spaces

ACTION_SPACES = {
    "grid": spaces.Box(-1.0, 1.0, (2, 3), np.float32),
    "one": spaces.Box(-1.0, 1.0, (1,), np.float64),
    "plain": spaces.Discrete(4),
    "several": spaces.MultiDiscrete([3, 5]),
    "flags": spaces.MultiBinary(4),
    "nested": spaces.Dict(
        {"move": spaces.Box(-1.0, 1.0, (2,), np.float32), "say": spaces.Tuple((spaces.Discrete(3), spaces.Discrete(2)))}
    ),
}


class Mirror:
    """A list environment: each entity observes its own index, the ``mark``, and the action it took last."""

    def __init__(self, kinds=("grid", "one", "plain", "several"), mark=0, length=20):
        self.action_spaces = [ACTION_SPACES[kind] for kind in kinds]
        everything = spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self.observation_spaces = [spaces.Dict({"who": everything, "did": space}) for space in self.action_spaces]
        self.mark, self.length = mark, length

    def reset(self):
        self.time = 0
        return self._see([_zero(space) for space in self.action_spaces])

    def _see(self, actions):
        return [{"who": np.array([i, self.mark], np.float64), "did": action} for i, action in enumerate(actions)]

    def step(self, actions):
        self.time += 1
        seen = self._see([_copied(action) for action in actions])
        return seen, [float(i) for i in range(len(actions))], self.time >= self.length, {}


def _zero(space):
    if isinstance(space, spaces.Dict):
        return {key: _zero(sub) for key, sub in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_zero(sub) for sub in space)
    return np.zeros(space.shape, space.dtype)


def _copied(action):
    if isinstance(action, dict):
        return {key: _copied(value) for key, value in action.items()}
    if isinstance(action, tuple):
        return tuple(_copied(value) for value in action)
    return np.array(action)


def mirror(**settings):
    """Make a Mirror."""
    return Mirror(**settings)


class HoldsTheLock(gymnasium.Wrapper):
    """Does in its thirtieth step what native code does that hangs without giving Python's lock away."""

    steps = 0

    def step(self, action):
        self.steps += 1
        if self.steps == 30:
            ctypes.PyDLL(None).sleep(600)
        return self.env.step(action)
