"""Trajectories of lanes that advance independently: each lane fills a column of its own.

The entities of an external game act on request, so that one lane may be ten actions ahead of another. Each lane
therefore counts its own time steps. A full column moves to the next free lane of a rollout. When there is enough for an
update, partly filled columns move too: their transitions would otherwise come from older weights than the rest.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from arena.common.trees import leaf_dtype, leaf_shape, map_space, map_tree, put
from arena.envs.interface import EntitySpaces
from arena.experience.rollout import Decision, Rollout


class LaneColumns:
    """A column of T + 1 time steps for each of L lanes.

    For each exchange and the lanes that take part in it: ``withdraw`` if the last action was not carried out, then
    ``observe`` and ``decide``, and ``move_full``. Time step T of a full column is step 0 of the lane's next one, with
    its decision, so that nothing is decided twice. Lanes that are never used touch no memory.

    Attributes:
      horizon: T.
      slots: ``[L]``, the time step that each lane fills next; T + 1 for a full column.
    """

    def __init__(
        self, spaces: EntitySpaces, extras: Mapping[str, tuple[tuple[int, ...], Any]], *, horizon: int, lanes: int
    ) -> None:
        """Allocate all columns; see ``Rollout`` for the arguments."""
        shape = (lanes, horizon + 1)
        self.horizon = horizon
        self.slots = np.zeros(lanes, np.intp)
        self._observations = map_space(spaces.observation, lambda s: np.zeros((*shape, *leaf_shape(s)), leaf_dtype(s)))
        self._actions = map_space(spaces.action, lambda s: np.zeros((*shape, *leaf_shape(s)), leaf_dtype(s)))
        self._mask = np.zeros((*shape, spaces.mask_size), np.int8) if spaces.mask_size else None
        self._extras = {name: np.zeros((*shape, *below), dtype) for name, (below, dtype) in extras.items()}
        self._earned = np.zeros(shape, np.float64)
        self._flags = {name: np.zeros(shape, bool) for name in ("over", "cut", "void", "acting", "starts")}

    def withdraw(self, lanes: np.ndarray, cut: np.ndarray) -> None:
        """Remove the last action of some lanes, which was not carried out and is not learned from.

        Args:
          lanes: ``[N]``, their numbers.
          cut: ``[N]`` bool, whether the episode is truncated at the observation of that action; otherwise the lane acts
            again, and the time in between is that between two actions of a turn-based game.
        """
        there = self.slots[lanes] > 0
        lanes, cut = lanes[there], cut[there]
        last = self.slots[lanes] - 1
        self._flags["acting"][lanes, last] = False
        self._flags["cut"][lanes, last] |= cut

    def observe(
        self,
        lanes: np.ndarray,
        observations: Any,
        earned: np.ndarray,
        over: np.ndarray,
        cut: np.ndarray,
        void: np.ndarray,
        acting: np.ndarray,
        starts: np.ndarray,
        action_mask: np.ndarray | None = None,
    ) -> None:
        """Store what has arrived in the next time step of some lanes; see ``Rollout.observe`` for the meaning.

        Args:
          lanes: ``[N]``, their numbers, each once.
          observations: arrays ``[N, ...]``, nested like the observation space.
          earned: ``[N]`` float64.
          over: ``[N]`` bool, whether the episode was reported terminated.
          cut: ``[N]`` bool, whether it was reported truncated; the observation is then the final one.
          void: ``[N]`` bool, whether a fault has ended it.
          acting: ``[N]`` bool.
          starts: ``[N]`` bool.
          action_mask: ``[N, mask_size]``, nonzero is allowed.

        Raises:
          RuntimeError: a lane's column is full, and was not moved.
        """
        slots = self.slots[lanes]
        if (slots > self.horizon).any():
            raise RuntimeError(f"lane {int(lanes[slots > self.horizon][0])} has a full column that was not moved")
        where = lanes, slots
        put(self._observations, where, observations)
        if self._mask is not None:
            self._mask[where] = 1 if action_mask is None else action_mask
        self._earned[where] = earned
        for name, values in (("over", over), ("cut", cut), ("void", void), ("acting", acting), ("starts", starts)):
            self._flags[name][where] = values
        self.slots[lanes] += 1

    def decide(self, lanes: np.ndarray, decision: Decision) -> None:
        """Store the policy's decision for the lanes of the latest ``observe``."""
        where = lanes, self.slots[lanes] - 1
        put(self._actions, where, decision.actions)
        for name, value in decision.extras.items():
            self._extras[name][where] = value

    @property
    def filled(self) -> int:
        """Number of finished time steps in all columns: the size of the rollout that they would fill."""
        return int(np.maximum(self.slots - 1, 0).sum())

    def move_full(self, rollout: Rollout, first: int) -> int:
        """Move full columns into the lanes of a rollout from ``first`` on, and begin the next columns.

        Returns:
          The number of moved columns: those that are full, or for which there are lanes.
        """
        return self._move(np.flatnonzero(self.slots > self.horizon), rollout, first)

    def move_all(self, rollout: Rollout, first: int) -> int:
        """Move all columns with a finished time step, full or not; otherwise like ``move_full``."""
        return self._move(np.flatnonzero(self.slots > 1), rollout, first)

    def _move(self, lanes: np.ndarray, rollout: Rollout, first: int) -> int:
        lanes = lanes[: rollout.lanes - first]
        for place, lane in enumerate(lanes.tolist(), first):
            at = lane, slice(0, int(self.slots[lane]))
            rollout.load_column(
                place,
                observations=map_tree(lambda array, at=at: array[at], self._observations),
                actions=map_tree(lambda array, at=at: array[at], self._actions),
                action_mask=None if self._mask is None else self._mask[at],
                extras={name: array[at] for name, array in self._extras.items()},
                earned=self._earned[at],
                **{name: array[at] for name, array in self._flags.items()},
            )
            self._begin(lane, int(self.slots[lane]) - 1)
        return len(lanes)

    def _begin(self, lane: int, last: int) -> None:
        """Begin a lane's next column with the last time step of this one."""

        def repeat(array: np.ndarray) -> None:
            array[lane, 0] = array[lane, last]

        map_tree(repeat, self._observations)
        map_tree(repeat, self._actions)
        arrays = (self._earned, *self._flags.values(), *self._extras.values())
        for array in arrays if self._mask is None else (*arrays, self._mask):
            repeat(array)
        self.slots[lane] = 1
