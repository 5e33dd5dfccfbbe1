"""Tasks that require memory: a corridor with a cue at its beginning, and a wrapper that hides observation elements."""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from arena.common.errors import ConfigError

LEFT, AHEAD, RIGHT = range(3)
BUMP = -0.1


class TMaze(gymnasium.Env):
    """The T-maze of Bakker (Reinforcement Learning with Long Short-Term Memory, 2002).

    A cue in the first cell of a corridor is the only hint at which way to turn at the other end. Of the observation,
    float32 ``[3]``, the first element is the cue, -1 for left and 1 for right, and 0 after the first cell; the others
    are 1 in the corridor and 1 at the junction. Actions are left, ahead and right. Ahead moves along the corridor. At
    the junction left and right end the episode, with 1 for the side of the cue and -1 for the other. An action into a
    wall changes nothing and costs 0.1.
    """

    def __init__(self, corridor: int = 50, max_steps: int | None = None) -> None:
        """Set up the maze.

        Args:
          corridor: steps from the first cell to the junction.
          max_steps: steps after which an episode is truncated; four times the corridor's by default.

        Raises:
          ConfigError: ``corridor`` is not positive, or ``max_steps`` does not suffice to reach the junction.
        """
        if isinstance(corridor, bool) or not isinstance(corridor, int) or corridor < 1:
            raise ConfigError(f"corridor: expected a whole number above 0, found {corridor!r}")
        if max_steps is not None and max_steps <= corridor:
            raise ConfigError(
                f"max_steps: expected more than the corridor of {corridor} steps, needed for the turn, "
                f"found {max_steps!r}"
            )
        self.observation_space = spaces.Box(-1, 1, (3,), np.float32)
        self.action_space = spaces.Discrete(3)
        self._corridor, self._max_steps = corridor, max_steps or 4 * corridor + 1
        self._place, self._steps, self._cue = 0, 0, LEFT

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Return to the first cell, with a new cue."""
        super().reset(seed=seed)
        self._place, self._steps = 0, 0
        self._cue = RIGHT if self.np_random.integers(2) else LEFT
        return self._observation(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Move or turn."""
        self._steps += 1
        reward, turned = BUMP, False
        if self._place < self._corridor:
            if action == AHEAD:
                self._place += 1
                reward = 0.0
        elif action != AHEAD:
            reward, turned = 1.0 if action == self._cue else -1.0, True
        return self._observation(), reward, turned, not turned and self._steps >= self._max_steps, {}

    def _observation(self) -> np.ndarray:
        cue = (self._cue - AHEAD) if self._place == 0 else 0
        at_junction = self._place == self._corridor
        return np.array([cue, not at_junction, at_junction], np.float32)


class KeepElements(gymnasium.ObservationWrapper):
    """Keeps some elements of a vector observation, such as positions without velocities."""

    def __init__(self, env: gymnasium.Env, elements: Sequence[int]) -> None:
        """Keep these elements, in this order.

        Raises:
          ConfigError: the observations are not vectors, or have no such elements.
        """
        super().__init__(env)
        space = env.observation_space
        if not isinstance(space, spaces.Box) or len(space.shape) != 1:
            raise ConfigError(f"KeepElements: expected observations that are vectors, found {space}")
        if not elements or not all(type(each) is int and 0 <= each < space.shape[0] for each in elements):
            raise ConfigError(
                f"KeepElements: expected elements from 0 to {space.shape[0] - 1}, found {list(elements)!r}"
            )
        self._elements = np.array(elements)
        low, high = space.low[self._elements], space.high[self._elements]
        self.observation_space = spaces.Box(low, high, dtype=space.dtype.type)

    def observation(self, observation: np.ndarray) -> np.ndarray:
        """Return the elements."""
        return observation[self._elements]
