"""Gymnasium environments with spaces of every supported kind."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Nested(gymnasium.Env):
    """Nested observations and actions. It keeps its last action by reference, and shows it in the next observation."""

    def __init__(self, length: int = 9) -> None:
        """Build spaces.

        Args:
          length: steps until the episode is truncated.
        """
        self.length = length
        self.action_space = spaces.Dict(
            {
                "keys": spaces.MultiBinary(3),
                "wheel": spaces.Box(-1, 1, (1,), np.float32),
                "gear": spaces.Tuple((spaces.Discrete(4, start=1), spaces.MultiDiscrete([2, 3]))),
            }
        )
        self.observation_space = spaces.Dict(
            {
                "camera": spaces.Box(0, 255, (2, 3, 1), np.uint8),
                "inner": spaces.Tuple(
                    (spaces.Discrete(10), spaces.Dict({"wheel": spaces.Box(-1, 1, (1,), np.float64)}))
                ),
                "previous": self.action_space,
                "switches": spaces.MultiBinary((2, 2)),
            }
        )

    def _observation(self) -> dict[str, Any]:
        return {
            "camera": self.np_random.integers(0, 256, (2, 3, 1)),  # int64 where the space says uint8
            "inner": (self.time, {"wheel": [float(self.last["wheel"][0])]}),  # a list where the space says an array
            "previous": self.last,
            "switches": np.array([[self.time % 2, 1], [0, 1]], bool),
        }

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        """Start at time 0."""
        super().reset(seed=seed)
        self.time = 0
        gear = (np.int64(1), np.zeros(2, np.int64))
        self.last: dict = {"keys": np.zeros(3, np.int8), "wheel": np.zeros(1, np.float32), "gear": gear}
        return self._observation(), {"options": options}

    def step(self, action: dict) -> tuple[dict, float, bool, bool, dict]:
        """Pay for a wheel that turns; terminated by all three keys, truncated by the length."""
        assert self.action_space.contains(action), action
        self.time += 1
        reward = float(abs(action["wheel"][0] - self.last["wheel"][0]))
        self.last = action
        return self._observation(), reward, bool(action["keys"].all()), self.time >= self.length, {"time": self.time}


class Masked(gymnasium.Env):
    """Counts; only the action that equals the time modulo the number of actions is allowed, marked in three ways."""

    def __init__(self, how: str = "method", render_mode: str | None = None) -> None:
        """Choose how the mask is stated: ``method``, ``info`` or ``observation``."""
        self.render_mode = render_mode
        self.how = how
        self.metadata = {"action_mask": how == "info", "render_modes": ["rgb_array"]}
        self.action_space = spaces.MultiDiscrete([2, 3]) if how == "method" else spaces.Discrete(3, start=5)
        self.observation_space = spaces.Box(0, 100, (1,), np.float32)
        if how == "observation":
            extra = {"clock": spaces.Discrete(100)}
            mask = spaces.Box(0, 1, (3,), np.int8)
            self.observation_space = spaces.Dict({"observation": self.observation_space, "action_mask": mask, **extra})
        if how == "method":
            self.action_masks = self._flags

    def _flags(self) -> np.ndarray:
        three = np.arange(3) == self.time % 3
        return np.concatenate([np.arange(2) == self.time % 2, three]) if self.how == "method" else three

    def _report(self) -> tuple[Any, dict]:
        now = np.array([self.time], np.float32)
        if self.how == "observation":
            return {"observation": now, "action_mask": self._flags(), "clock": self.time}, {}
        return now, {"action_mask": self._flags()} if self.how == "info" else {}

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        """Start at time 0."""
        super().reset(seed=seed)
        self.time = 0
        return self._report()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        """Refuse what is not allowed."""
        first = self.time % 2, self.time % 3
        assert (tuple(action) == first) if self.how == "method" else action == 5 + self.time % 3
        self.time += 1
        observation, info = self._report()
        return observation, 1.0, self.time == 7, False, info

    def render(self) -> np.ndarray:
        """Return one grey pixel."""
        return np.full((1, 1, 3), 128, np.uint8)


class Wordy(gymnasium.Env):
    """Observes text, which cannot be carried."""

    observation_space = spaces.Dict({"place": spaces.Box(0, 1, (2,)), "said": spaces.Tuple((spaces.Text(5),))})
    action_space = spaces.Discrete(2)


class Liar(gymnasium.Env):
    """Returns an observation of another shape than its space's."""

    observation_space = spaces.Box(0, 1, (4,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        """Return one number, which would silently fill all four."""
        return np.zeros(1, np.float32), {}


def broken(size: int) -> gymnasium.Env:
    """Fail with a TypeError that has nothing to do with the settings."""
    return size + "1"  # type: ignore[operator]


def needs_absent_package() -> gymnasium.Env:
    """Import a package that is not installed."""
    import package_that_nobody_installs  # noqa: F401

    raise AssertionError


class Halve(gymnasium.RewardWrapper):
    """Scales rewards."""

    def __init__(self, env: gymnasium.Env, factor: float = 0.5) -> None:
        """Set the factor."""
        super().__init__(env)
        self.factor = factor

    def reward(self, reward: Any) -> float:
        """Return the scaled reward."""
        return float(reward) * self.factor
