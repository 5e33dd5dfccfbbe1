"""The global state of a batch's copies: the environment's own, or the joint observation of its entities."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from gymnasium import spaces

from arena.env_manager import BaseEnvManager
from arena.envs.interface import EntitySpaces, Timestep
from arena.protocol.global_state import JointObservation, global_state_space, joint_observation


class GlobalState(Protocol):
    """Reader of the global state of a batch's copies, which are numbered from 0 here."""

    def read(self, copy: int, timestep: Timestep, *, started: bool) -> Any:
        """Return the state of a copy after a timestep, which starts an episode or not; valid until the next call."""


class OwnState:
    """The environment's own global state."""

    def __init__(self, read: Callable[[int], Any], first: int) -> None:
        """Create it; ``read`` returns the state of the copy with a number in the match, the first of which is given."""
        self._read, self._first = read, first

    def read(self, copy: int, timestep: Timestep, *, started: bool) -> Any:
        """See ``GlobalState``."""
        return self._read(self._first + copy)


class JointState:
    """The joint observation of the copy's entities; see ``JointObservation``."""

    def __init__(self, joint: JointObservation, copies: int) -> None:
        """Create it for a number of copies."""
        self._joint = joint
        self._vector = np.zeros(joint.space.shape, np.float32)
        self._done = [joint.begin() for _ in range(copies)]

    def read(self, copy: int, timestep: Timestep, *, started: bool) -> Any:
        """See ``GlobalState``."""
        if started:
            self._done[copy] = self._joint.begin()
        self._joint.write(self._vector, timestep, self._done[copy])
        return self._vector


class StateSource:
    """Chooses the global state of a match.

    Attributes:
      space: its space; None if there is none (``env.state: none``).
    """

    def __init__(self, kind: str, manager: BaseEnvManager, entities: Sequence[EntitySpaces]) -> None:
        """Choose it; ``kind`` is ``env.state`` of the configuration."""
        self._manager = manager
        own, turn_based = manager.state_space, manager.turn_based
        self._joint = joint_observation(kind, own, entities, turn_based=turn_based)
        self.space: spaces.Space | None = global_state_space(kind, own, entities, turn_based=turn_based)

    def of_batch(self, copies: slice) -> GlobalState:
        """Return the reader of some of the match's copies."""
        if self._joint is not None:
            return JointState(self._joint, copies.stop - copies.start)
        self._manager.reads_state = True
        return OwnState(self._manager.state, copies.start)
