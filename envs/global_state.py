"""The global state of an environment: what a critic may read while learning, beside the observations of entities."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.spaces.utils import flatdim, flatten

from arena.common.errors import ConfigError
from arena.envs.interface import EntitySpaces, Timestep
from arena.envs.spaces import mismatch, reader, unsupported


class StateReader:
    """Reader of the global state that a native environment declares by its ``state_space``.

    Attributes:
      space: the space; None if the environment declares none.
    """

    def __init__(self, declared: Any) -> None:
        """Prepare the conversion; ``declared`` is the attribute ``state_space`` of the environment, or None.

        Raises:
          ConfigError: the space is not supported.
        """
        self.space: spaces.Space | None = declared if isinstance(declared, spaces.Space) else None
        check_state_space(self.space)
        self._convert = None if self.space is None else reader(self.space)
        self._checked = False

    def read(self, state: Any) -> Any:
        """Return a state in the form of its space; the form of the first one is checked.

        Raises:
          ConfigError: it does not have the form.
        """
        assert self.space is not None and self._convert is not None
        if not self._checked:
            problem = mismatch(self.space, state)
            if problem:
                raise ConfigError(f"the environment returned a global state outside its state_space: {problem}")
            self._checked = True
        return self._convert(state)


def check_state_space(space: spaces.Space | None) -> None:
    """Check that the arena supports the space of a global state.

    Raises:
      ConfigError: it does not.
    """
    problem = None if space is None else unsupported(space)
    if problem:
        raise ConfigError(f"the state_space {space} is not supported: found {problem}")


def state_space_of(environment: Any) -> spaces.Space | None:
    """Return the space of an environment's own global state; None if it has none.

    Raises:
      ConfigError: the space is not supported.
    """
    space = getattr(environment, "state_space", None)
    check_state_space(space)
    return space


class JointObservation:
    """The observations of all entities as one vector: the global state of an environment without a state of its own.

    The vector holds the observations in the order of the entities, flattened as by Gymnasium's ``flatten`` (one-hot
    vectors for Discrete and MultiDiscrete), and then for each entity a flag that is 1 while it is present. The
    observation of an absent entity (not there yet, or done in an earlier step) is all zeros. Bytes with the bounds 0
    and 255 are scaled to [0, 1].

    Attributes:
      space: Box of float32, ``[width]``.
    """

    def __init__(self, entities: Sequence[EntitySpaces], *, turn_based: bool) -> None:
        """Lay the vector out for some entities; ``turn_based`` as in ``Environment``."""
        self._spaces = [entity.observation for entity in entities]
        edges = np.cumsum([0, *(flatdim(space) for space in self._spaces)]).tolist()
        self._parts = [slice(start, end) for start, end in itertools.pairwise(edges)]
        self._flags = slice(edges[-1], edges[-1] + len(entities))
        self._scales = [_scale(space) for space in self._spaces]
        self._turn_based = turn_based
        self.space = spaces.Box(-np.inf, np.inf, (self._flags.stop,), np.float32)

    def begin(self) -> list[bool]:
        """Return whether each entity is done, at the start of an episode: a list that ``write`` updates."""
        return [False] * len(self._spaces)

    def write(self, vector: np.ndarray, timestep: Timestep, done: list[bool]) -> None:
        """Write the state at a timestep.

        Args:
          vector: float32 ``[width]``, written.
          timestep: the timestep.
          done: whether each entity was done before this timestep; updated.
        """
        flags = vector[self._flags]
        for i, (space, part, scale) in enumerate(zip(self._spaces, self._parts, self._scales, strict=True)):
            ends = timestep.terminated[i] or timestep.truncated[i]
            present = not done[i] and (self._turn_based or timestep.acting[i] or ends)
            flags[i] = present
            observation = timestep.observations[i]
            if not present:
                vector[part] = 0
            elif type(space) is spaces.Box:
                vector[part] = observation.reshape(-1)
            else:
                vector[part] = flatten(space, observation)
            if scale is not None:
                vector[part] *= scale
            done[i] = done[i] or bool(ends)


def _scale(space: spaces.Space) -> np.float32 | None:
    whole = isinstance(space, spaces.Box) and space.dtype == np.uint8 and space.high.max() == 255
    return np.float32(1 / 255) if whole else None
