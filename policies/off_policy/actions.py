"""Choices, the actions in the algorithms' own form: an index for Discrete, numbers from -1 to 1 for a Box."""

import math
from collections.abc import Mapping
from typing import Protocol

import numpy as np
from gymnasium import spaces as gym_spaces

from arena.envs.interface import EntitySpaces
from arena.policies.distributions.discrete import Categorical
from arena.policies.off_policy.noise import NOISES, PinkNoise, WhiteNoise
from arena.policies.off_policy.spaces import check_box, check_discrete


class Actions(Protocol):
    """Conversion between choices and members of an action space."""

    def any(self, count: int, mask: np.ndarray | None, random: np.random.Generator) -> np.ndarray:
        """Return choices ``[N, ...]``, uniform among those that a mask ``[N, mask_size]`` allows."""

    def members(self, choice: np.ndarray) -> np.ndarray:
        """Return choices as members of the space."""

    def state(self) -> dict[str, np.ndarray]:
        """Return the exploration state of each lane."""

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Load a state returned by ``state``."""


class DiscreteActions:
    """Indices from 0 for the members of a Discrete space.

    Attributes:
      n: number of members.
    """

    def __init__(self, use: str, spaces: EntitySpaces) -> None:
        """Read the space.

        Raises:
          ConfigError: it is not Discrete, or its mask has another size.
        """
        check_discrete(use, spaces)
        assert isinstance(spaces.action, gym_spaces.Discrete)
        self.n, self._start, self._dtype = int(spaces.action.n), int(spaces.action.start), spaces.action.dtype

    def any(self, count: int, mask: np.ndarray | None, random: np.random.Generator) -> np.ndarray:
        """See ``Actions``: ``[N]``."""
        tickets = random.random((count, self.n), np.float32)
        return tickets.argmax(1) if mask is None else np.where(mask != 0, tickets, -1).argmax(1)

    def members(self, choice: np.ndarray) -> np.ndarray:
        """See ``Actions``: ``[N]``."""
        return (choice + self._start).astype(self._dtype, copy=False)

    def state(self) -> dict[str, np.ndarray]:
        """Return an empty dict: random actions are independent."""
        return {}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Load nothing."""


class CategoricalActions:
    """Indices from 0, ``[N, choices]``, for the members of a Discrete or MultiDiscrete space.

    Attributes:
      sizes: number of values of each choice.
    """

    def __init__(self, space: gym_spaces.Discrete | gym_spaces.MultiDiscrete) -> None:
        """Read the space."""
        self._categorical = Categorical(space)
        sizes = np.atleast_1d(space.n if isinstance(space, gym_spaces.Discrete) else space.nvec.ravel())
        self.sizes = [int(size) for size in sizes]

    def sample(
        self, outputs: np.ndarray, mask: np.ndarray | None, random: np.random.Generator, *, deterministic: bool
    ) -> np.ndarray:
        """Return choices for logits ``[N, sum of sizes]``; the most likely ones if ``deterministic``."""
        nothing = np.empty(0, np.float32)
        return self._categorical.sample(outputs, nothing, mask, random, deterministic).astype(np.int64)

    def probabilities(self, outputs: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
        """Return the probability of each value of a single choice, ``[N, n]``."""
        return self._categorical.probabilities(outputs, mask)

    def any(self, count: int, mask: np.ndarray | None, random: np.random.Generator) -> np.ndarray:
        """See ``Actions``: ``[N, choices]``."""
        return self.sample(np.zeros((count, sum(self.sizes)), np.float32), mask, random, deterministic=False)

    def members(self, choice: np.ndarray) -> np.ndarray:
        """See ``Actions``: ``[N, ...]``."""
        return self._categorical.actions(choice)

    def state(self) -> dict[str, np.ndarray]:
        """Return an empty dict: draws are independent."""
        return {}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Load nothing."""


class BoxActions:
    """Conversion of choices, ``[N, size]`` float32 from -1 to 1, to members of a Box, and exploration noise.

    Attributes:
      size: numbers in an action.
      noise: standard normal noise of each lane.
    """

    noise: WhiteNoise | PinkNoise

    def __init__(self, use: str, spaces: EntitySpaces, noise: str, *, lanes: int) -> None:
        """Read bounds and shape.

        Raises:
          ConfigError: it is not a Box of floats with finite bounds.
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

    def any(self, count: int, mask: np.ndarray | None, random: np.random.Generator) -> np.ndarray:
        """See ``Actions``: ``[N, size]``; a Box has no mask."""
        return random.random((count, self.size), np.float32) * np.float32(2) - np.float32(1)

    def draw(self, lanes: slice | None, count: int, random: np.random.Generator) -> np.ndarray:
        """Return standard normal noise ``[N, size]``: the next of some lanes; independent for ``lanes`` None."""
        if lanes is None:
            return random.standard_normal((count, self.size), np.float32)
        return self.noise.draw(lanes, random)

    def members(self, choice: np.ndarray) -> np.ndarray:
        """Return choices ``[N, size]`` as actions ``[N, ...]``."""
        actions = (self._middle + self._half * choice).astype(self._dtype)
        return np.clip(actions, self._low, self._high, out=actions).reshape(len(choice), *self._shape)

    def state(self) -> dict[str, np.ndarray]:
        """Return the state of the noise."""
        return self.noise.state()

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Load a state returned by ``state``."""
        self.noise.load_state(state)
