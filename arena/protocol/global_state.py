"""The global state of an environment copy: what a critic may read while learning, beside its own observations."""

import itertools
from collections.abc import Sequence

import numpy as np
from gymnasium import spaces
from gymnasium.spaces.utils import flatdim, flatten

from arena.envs.interface import EntitySpaces, Timestep


def joint_observation(
    kind: str, own: spaces.Space | None, entities: Sequence[EntitySpaces], *, turn_based: bool
) -> "JointObservation | None":
    """Return the joint observation if it is the global state; None if there is another one or none.

    Args:
      kind: ``env.state`` of the configuration.
      own: space of the environment's own state; None if it has none.
      entities: all entities of the environment.
      turn_based: as in ``Environment``.
    """
    if kind == "none" or (kind == "auto" and own is not None):
        return None
    return JointObservation(entities, turn_based=turn_based)


def global_state_space(
    kind: str, own: spaces.Space | None, entities: Sequence[EntitySpaces], *, turn_based: bool
) -> spaces.Space | None:
    """Return the space of the global state; None if there is none. Arguments as in ``joint_observation``."""
    joint = joint_observation(kind, own, entities, turn_based=turn_based)
    return joint.space if joint is not None else own if kind == "auto" else None


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
                vector[part] = np.ravel(observation)
            else:
                vector[part] = flatten(space, observation)
            if scale is not None:
                vector[part] *= scale
            done[i] = done[i] or bool(ends)


def _scale(space: spaces.Space) -> np.float32 | None:
    whole = isinstance(space, spaces.Box) and space.dtype == np.uint8 and space.high.max() == 255
    return np.float32(1 / 255) if whole else None
