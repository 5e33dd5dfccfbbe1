"""What a worker collected between two updates: preallocated arrays with leading axes ``[T, L]``, slots and lanes."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from arena.compiled import compiled
from arena.envs.interface import EntitySpaces
from arena.policies.interface import Decision
from arena.wire import leaf_dtype, leaf_shape, map_space, put, tree_leaves

NO_SLOT = -1


class Rollout:
    """T slots of L lanes. A slot is one exchange with the environment process, a lane one entity in one copy.

    For each batch (a slice of lanes) and slot, the driver calls ``observe`` with the record that arrived and ``decide``
    with the answer; at slot T ``observe`` and then ``finish``. When all lanes have finished, the policy learns,
    ``begin`` makes slot T the first of the next rollout, and slot 0 is decided without being observed again.

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
        self._open = np.full(lanes, NO_SLOT, np.intp)  # where the lane's unfinished transition began
        self._collected = np.zeros(lanes, np.float32)  # and its reward so far
        self._nowhere = np.zeros(lanes, bool)
        self._transitions = (
            self.acting,
            self.starts,
            self.rewards,
            self.terminated,
            self.truncated,
            self.valid,
            self.next_slot,
            self._open,
            self._collected,
        )
        self.begin()

    def begin(self) -> None:
        """Start the next rollout: what was observed in slot T is now in slot 0. Nothing is allocated."""
        for array in (*tree_leaves(self.observations), self.acting, self.starts):
            array[0] = array[-1]
        if self.action_mask is not None:
            self.action_mask[0] = self.action_mask[-1]
        for array in (self.rewards, self.terminated, self.truncated, self.valid, self._collected):
            array.fill(0)
        self.next_slot[:] = self._following
        self._open[:] = np.where(self.acting[0], 0, NO_SLOT)

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
        if void is None:
            void = self._nowhere[lanes]
        _observe(slot, lanes.start, rewards, terminated, truncated, acting, starts, void, *self._transitions)

    def decide(self, slot: int, lanes: slice, decision: Decision) -> None:
        """Store what the policy answered to the observations of ``slot``, 0 to T - 1."""
        put(self.actions, (slot, lanes), decision.actions)
        for name, value in decision.extras.items():
            self.extras[name][slot, lanes] = value

    def finish(self, lanes: slice, values: np.ndarray) -> None:
        """Store the values ``[N]`` of the observations of slot T (``Policy.bootstrap``)."""
        self.extras["value"][self.horizon, lanes] = values


@compiled(
    "void(int64, int64, float64[::1], boolean[::1], boolean[::1], boolean[::1], boolean[::1], boolean[::1],"
    " boolean[:, ::1], boolean[:, ::1], float32[:, ::1], boolean[:, ::1], boolean[:, ::1], boolean[:, ::1],"
    " int64[:, ::1], int64[::1], float32[::1])"
)
def _observe(
    slot: int,
    first: int,
    reward: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    acting: np.ndarray,
    starts: np.ndarray,
    void: np.ndarray,
    all_acting: np.ndarray,
    all_starts: np.ndarray,
    all_rewards: np.ndarray,
    all_terminated: np.ndarray,
    all_truncated: np.ndarray,
    valid: np.ndarray,
    next_slot: np.ndarray,
    began: np.ndarray,
    collected: np.ndarray,
) -> None:
    """Store what arrived for lanes from ``first`` on; see ``Rollout.observe``, and its attributes for the rest."""
    for i in range(len(reward)):
        lane = first + i
        all_acting[slot, lane] = acting[i]
        all_starts[slot, lane] = starts[i]
        if starts[i]:  # a transition that was still open is dropped
            began[lane] = NO_SLOT
        at = began[lane]
        if at == NO_SLOT:
            collected[lane] = 0
        else:
            collected[lane] += reward[i]
            if acting[i] or terminated[i] or truncated[i]:
                all_rewards[at, lane] = collected[lane]
                all_terminated[at, lane] = terminated[i]
                all_truncated[at, lane] = truncated[i]
                valid[at, lane] = True
                next_slot[at, lane] = slot
                began[lane] = NO_SLOT
                collected[lane] = 0
        if acting[i]:
            began[lane] = slot
        if void[i]:
            earlier = slot
            while earlier > 0:
                earlier -= 1
                valid[earlier, lane] = False
                if all_starts[earlier, lane]:
                    break
