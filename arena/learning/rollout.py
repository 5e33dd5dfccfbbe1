"""What a worker collected between two updates: preallocated arrays with leading axes ``[T, L]``, slots and lanes."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from arena.common.trees import leaf_dtype, leaf_shape, map_space, put, tree_leaves
from arena.envs.interface import EntitySpaces
from arena.learning.numba_jit import compiled

NO_SLOT = -1


class Decision(NamedTuple):
    """What a policy decided for N lanes.

    Attributes:
      actions: array ``[N, ...]`` in the action space's dtype, or a nested dict or tuple of such arrays.
      extras: arrays ``[N, ...]`` by the names of ``Policy.extras``; empty when acting without learning.
    """

    actions: Any
    extras: dict[str, np.ndarray]


class Rollout:
    """T slots of L lanes. A slot is one exchange with the environment process, a lane one entity in one copy.

    For each batch (a slice of lanes) and slot, the collector calls ``observe`` with the record that arrived and
    ``decide`` with the answer; at slot T ``observe`` and then ``finish``. When all lanes have finished, the policy
    learns, ``begin`` makes slot T the first of the next rollout, and slot 0 is decided without being observed again.

    A transition begins in a slot where its lane acts and ends in the slot that brings its outcome: the next one, or in
    turn-based games the one where the entity acts again or is done. One that has not ended by slot T does not count.

    Attributes:
      horizon: T.
      lanes: L.
      observations: array ``[T + 1, L, ...]``, or a nested dict or tuple of them.
      action_mask: ``[T + 1, L, mask_size]`` int8, or None where the entity has no mask.
      acting: ``[T + 1, L]`` bool, where the action counts.
      starts: ``[T + 1, L]`` bool, where the observation is the first of an episode.
      actions: array ``[T + 1, L, ...]``, or a nested dict or tuple of them.
      extras: what the policy left for ``learn``, by name: ``[T + 1, L, ...]``.
      rewards: ``[T, L]`` float32, stored where the transition began, like the next four.
      terminated: ``[T, L]`` bool, the episode ended by its rules: nothing follows.
      truncated: ``[T, L]`` bool, the episode was cut: the value of the final observation is what would have followed.
      valid: ``[T, L]`` bool, a whole transition that counts for learning.
      next_slot: ``[T, L]`` intp, the slot of the observation that follows the transition, at most T.
      earned: ``[T + 1, L]`` float64, the reward that arrived in each slot, like the next three: these and ``acting``
        and ``starts`` are what transitions are made of.
      over: ``[T + 1, L]`` bool, where an episode was found terminated.
      cut: ``[T + 1, L]`` bool, where it was found truncated.
      void: ``[T + 1, L]`` bool, where an accident has ended it.
    """

    def __init__(
        self, spaces: EntitySpaces, extras: Mapping[str, tuple[tuple[int, ...], Any]], *, horizon: int, lanes: int
    ) -> None:
        """Allocate everything.

        Args:
          spaces: what the entity in each lane sees and does.
          extras: ``Policy.extras``.
          horizon: ``Policy.horizon``, at least 1.
          lanes: copies times entities of this worker.
        """
        shape = (horizon + 1, lanes)
        self.horizon = horizon
        self.lanes = lanes
        self.observations = map_space(spaces.observation, lambda s: np.zeros((*shape, *leaf_shape(s)), leaf_dtype(s)))
        self.action_mask = np.ones((*shape, spaces.mask_size), np.int8) if spaces.mask_size else None
        self.acting = np.zeros(shape, bool)
        self.starts = np.zeros(shape, bool)
        self.actions = map_space(spaces.action, lambda s: np.zeros((*shape, *leaf_shape(s)), leaf_dtype(s)))
        self.extras = {name: np.zeros((*shape, *below), dtype) for name, (below, dtype) in extras.items()}
        self.rewards = np.zeros((horizon, lanes), np.float32)
        self.terminated = np.zeros((horizon, lanes), bool)
        self.truncated = np.zeros((horizon, lanes), bool)
        self.valid = np.zeros((horizon, lanes), bool)
        self.next_slot = np.zeros((horizon, lanes), np.intp)
        self._following = np.arange(1, horizon + 1)[:, None]
        self.earned = np.zeros(shape, np.float64)
        self.over, self.cut, self.void = np.zeros((3, *shape), bool)
        self._arrived = self.earned, self.over, self.cut, self.void, self.acting, self.starts
        self._rows: dict[int, list[tuple[np.ndarray, ...]]] = {}  # of these, by a batch's first lane: views by slot
        self.begin()

    def begin(self) -> None:
        """Start the next rollout: what was observed in slot T is now in slot 0. Nothing is allocated."""
        for array in (*tree_leaves(self.observations), self.acting, self.starts):
            array[0] = array[-1]
        if self.action_mask is not None:
            self.action_mask[0] = self.action_mask[-1]
        for array in (self.rewards, self.terminated, self.truncated, self.valid):
            array.fill(0)
        self.next_slot[:] = self._following

    def observe(
        self,
        slot: int,
        lanes: slice,
        observations: Any,
        rewards: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        acting: np.ndarray,
        starts: np.ndarray,
        action_mask: np.ndarray | None = None,
        void: np.ndarray | None = None,
    ) -> None:
        """Store the record that arrived for N lanes: what they see in ``slot``, and what came of their last action.

        That of slot T completes their transitions.

        Args:
          slot: 0 (in the very first rollout only) to T.
          lanes: which lanes these are.
          observations: arrays ``[N, ...]``, nested like the observation space.
          rewards: ``[N]`` float64, what each lane collected.
          terminated: ``[N]`` bool.
          truncated: ``[N]`` bool.
          acting: ``[N]`` bool, whether the lane's next action counts.
          starts: ``[N]`` bool, whether an episode begins here; a transition that was still open is dropped.
          action_mask: ``[N, mask_size]``, nonzero is allowed.
          void: ``[N]`` bool, where an accident (the copy crashed) ended the episode: what this rollout holds of it is
            not learned from. None for nowhere.
        """
        put(self.observations, (slot, lanes), observations)
        if self.action_mask is not None and action_mask is not None:
            self.action_mask[slot, lanes] = action_mask
        if lanes.start not in self._rows:
            self._rows[lanes.start] = [
                tuple(array[slot, lanes] for array in self._arrived) for slot in range(self.horizon + 1)
            ]
        earned, over, cut, voided, acts, begins = self._rows[lanes.start][slot]
        earned[...] = rewards
        over[...] = terminated
        cut[...] = truncated
        voided[...] = False if void is None else void
        acts[...] = acting
        begins[...] = starts
        if slot == self.horizon:
            self._settle(lanes.start, lanes.start + len(rewards))

    def decide(self, slot: int, lanes: slice, decision: Decision) -> None:
        """Store what the policy answered to the observations of ``slot``, 0 to T - 1."""
        put(self.actions, (slot, lanes), decision.actions)
        for name, value in decision.extras.items():
            self.extras[name][slot, lanes] = value

    def finish(self, lanes: slice, values: np.ndarray) -> None:
        """Store the values ``[N]`` of the observations of slot T (``Policy.bootstrap``)."""
        self.extras["value"][self.horizon, lanes] = values

    # Columns of lanes that go at their own pace (``arena.learning.lanes``), instead of all of the above

    def clear(self) -> None:
        """Make room for other columns: no lane holds a transition."""
        for array in (self.acting, self.starts, self.over, self.cut, self.void):
            array.fill(False)
        for array in (self.earned, self.rewards, self.terminated, self.truncated, self.valid):
            array.fill(0)
        self.next_slot[:] = self._following

    def load_column(
        self,
        lane: int,
        *,
        observations: Any,
        actions: Any,
        action_mask: np.ndarray | None,
        extras: Mapping[str, np.ndarray],
        earned: np.ndarray,
        over: np.ndarray,
        cut: np.ndarray,
        void: np.ndarray,
        acting: np.ndarray,
        starts: np.ndarray,
    ) -> None:
        """Take what a lane has collected, all arrays ``[N, ...]`` with N of 2 to T + 1, and make transitions of it.

        The column is closed: an episode that goes on is cut in its last slot, whose value stands for what follows,
        since the lane of the next rollout is another one's.

        Args:
          lane: where it goes; it has been cleared.
          observations: see the attributes of the class, like all that follow.
          actions: see there.
          action_mask: see there.
          extras: see there.
          earned: see there.
          over: see there.
          cut: see there.
          void: see there.
          acting: see there.
          starts: see there.
        """
        slots = len(earned)
        where = slice(0, slots), lane
        put(self.observations, where, observations)
        put(self.actions, where, actions)
        if self.action_mask is not None and action_mask is not None:
            self.action_mask[where] = action_mask
        for name, value in extras.items():
            self.extras[name][where] = value
        for array, values in zip(self._arrived, (earned, over, cut, void, acting, starts), strict=True):
            array[where] = values
        self.cut[slots - 1, lane] |= not over[-1]
        self.acting[slots - 1, lane] &= slots > self.horizon  # what it does is in the next column
        self._settle(lane, lane + 1)

    def _settle(self, first: int, end: int) -> None:
        """Make the transitions of the lanes from ``first`` to before ``end``."""
        _transitions(
            first, end, *self._arrived, self.rewards, self.terminated, self.truncated, self.valid, self.next_slot
        )


@compiled(
    "void(int64, int64, float64[:, ::1], boolean[:, ::1], boolean[:, ::1], boolean[:, ::1], boolean[:, ::1],"
    " boolean[:, ::1], float32[:, ::1], boolean[:, ::1], boolean[:, ::1], boolean[:, ::1], int64[:, ::1])"
)
def _transitions(
    first: int,
    end: int,
    earned: np.ndarray,
    over: np.ndarray,
    cut: np.ndarray,
    void: np.ndarray,
    acting: np.ndarray,
    starts: np.ndarray,
    rewards: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    valid: np.ndarray,
    next_slot: np.ndarray,
) -> None:
    """Make the transitions of the lanes from ``first`` to before ``end`` of what arrived in all slots.

    See ``Rollout.observe`` for what arrived, and its attributes for what becomes of it.
    """
    for lane in range(first, end):
        began, collected = 0 if acting[0, lane] else NO_SLOT, 0.0  # of the transition that is still open
        for slot in range(1, len(acting)):
            if starts[slot, lane]:  # one that was still open is dropped
                began = NO_SLOT
            if began != NO_SLOT:
                collected += earned[slot, lane]
                if acting[slot, lane] or over[slot, lane] or cut[slot, lane]:
                    rewards[began, lane] = collected
                    terminated[began, lane] = over[slot, lane]
                    truncated[began, lane] = cut[slot, lane]
                    valid[began, lane] = True
                    next_slot[began, lane] = slot
                    began = NO_SLOT
            if acting[slot, lane]:
                began, collected = slot, 0.0
            if void[slot, lane]:
                earlier = slot
                while earlier > 0:
                    earlier -= 1
                    valid[earlier, lane] = False
                    if starts[earlier, lane]:
                        break
