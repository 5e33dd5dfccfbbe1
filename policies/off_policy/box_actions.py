"""Continuous actions between bounds, as the algorithms see them: numbers from -1 to 1."""

import math
from collections.abc import Mapping

import numpy as np
from gymnasium import spaces as gym_spaces

from arena.envs.interface import EntitySpaces
from arena.policies.off_policy.noise import NOISES, PinkNoise, WhiteNoise
from arena.policies.off_policy.spaces import check_box


class BoxActions:
    """Turns choices, ``[N, size]`` float32 from -1 to 1, into members of a Box, and explores.

    Attributes:
      size: numbers in an action.
      noise: standard normal numbers for each lane.
    """

    noise: WhiteNoise | PinkNoise

    def __init__(self, use: str, spaces: EntitySpaces, noise: str, *, lanes: int) -> None:
        """Read bounds and shape.

        Raises:
          ConfigError: it is no Box of floats with bounds.
        """
        check_box(use, spaces)
        space = spaces.action
        assert isinstance(space, gym_spaces.Box)
        self.size = math.prod(space.shape)
        self._shape, self._dtype = space.shape, space.dtype
        low, high = space.low.astype(np.float64).ravel(), space.high.astype(np.float64).ravel()
        self._middle, self._half = (low + high) / 2, (high - low) / 2
        self._low, self._high = space.low.ravel(), space.high.ravel()
        self.noise = NOISES[noise](lanes, self.size)

    def any(self, count: int, random: np.random.Generator) -> np.ndarray:
        """Return choices drawn evenly, ``[N, size]``."""
        return random.random((count, self.size), np.float32) * np.float32(2) - np.float32(1)

    def draw(self, lanes: slice | None, count: int, random: np.random.Generator) -> np.ndarray:
        """Return standard normal numbers ``[N, size]``: the next ones of some lanes, or independent ones of none."""
        if lanes is None:
            return random.standard_normal((count, self.size), np.float32)
        return self.noise.draw(lanes, random)

    def members(self, choice: np.ndarray) -> np.ndarray:
        """Return choices ``[N, size]`` as actions ``[N, ...]``."""
        actions = (self._middle + self._half * choice).astype(self._dtype)
        return np.clip(actions, self._low, self._high, out=actions).reshape(len(choice), *self._shape)

    def state(self) -> dict[str, np.ndarray]:
        """Return the memory of the noise."""
        return self.noise.state()

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Load what ``state`` returned."""
        self.noise.load_state(state)
