"""Environments on which the arena and its peers are measured; requires Gymnasium and NumPy only."""

import os
import time
from typing import Any

import gymnasium
import numpy as np


class Noop(gymnasium.Env):
    """A no-op environment: the time of a step is the time of its transport."""

    def __init__(self, shape: tuple[int, ...] = (8,), dtype: str = "float32") -> None:
        high = 255 if dtype == "uint8" else 1
        self.observation_space = gymnasium.spaces.Box(0, high, tuple(shape), np.dtype(dtype).type)
        self.action_space = gymnasium.spaces.Discrete(4)
        self._observation = np.zeros(shape, dtype)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Return zeros."""
        return self._observation, {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Return zeros."""
        return self._observation, 0.0, False, False, {}


def noop_vector() -> gymnasium.Env:
    """Return a no-op environment with observations of 8 floats."""
    return Noop()


def noop_screen() -> gymnasium.Env:
    """Return a no-op environment with observations of four frames of 84 x 84 bytes."""
    return Noop((84, 84, 4), "uint8")


def make(name: str) -> gymnasium.Env:
    """Return a no-op environment, or the one that Gymnasium has registered under this name."""
    if name.startswith("noop"):
        return {"noop": noop_vector, "noop_screen": noop_screen}[name]()
    if name.startswith("ALE/"):
        import ale_py

        if hasattr(gymnasium, "register_envs"):  # before Gymnasium 1.0 the import is enough
            gymnasium.register_envs(ale_py)
    return gymnasium.make(name, disable_env_checker=True)


EPISODES = "ARENA_BENCHMARK_EPISODES"
"""Environment variable: the file into which ``Noted`` writes."""


class Noted(gymnasium.Wrapper):
    """Wrapper that writes a line into a file at the first start and for each finished episode: time, steps and return.

    Speed and learning are thus read in the same way for every library, from the environments themselves.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self._file: Any = None
        self._steps, self._return = 0, 0.0

    def _note(self, text: str) -> None:
        if self._file is None:  # here, so that every process that got a copy opens the file for itself
            self._file = open(os.environ.get(EPISODES, os.devnull), "a", encoding="utf-8")  # noqa: SIM115 (kept open)
        self._file.write(f"{time.time():.4f} {text}\n")
        self._file.flush()

    def reset(self, **keywords: Any) -> tuple[Any, dict[str, Any]]:
        """Reset."""
        if self._file is None:
            self._note("start")
        self._steps, self._return = 0, 0.0
        return self.env.reset(**keywords)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step, and record the end of an episode."""
        found = self.env.step(action)
        self._steps += 1
        self._return += float(found[1])
        if found[2] or found[3]:
            self._note(f"{self._steps} {self._return:g}")
        return found


def pong_screen() -> gymnasium.Env:
    """Return Pong as in the Nature DQN paper: four grey frames of 84 x 84, each action repeated four times."""
    import ale_py

    gymnasium.register_envs(ale_py)
    env = gymnasium.make("ALE/Pong-v5", frameskip=1, disable_env_checker=True)
    env = gymnasium.wrappers.AtariPreprocessing(env)
    if hasattr(gymnasium.wrappers, "FrameStackObservation"):
        return gymnasium.wrappers.FrameStackObservation(env, 4)
    return gymnasium.wrappers.FrameStack(env, 4)  # what it was called before Gymnasium 1.0


def training_game(name: str) -> gymnasium.Env:
    """Return an environment that records its episodes: ``pong``, or one registered with Gymnasium."""
    return Noted(pong_screen() if name == "pong" else make(name))
