"""Rollouts: the experience of a worker between two updates, in preallocated arrays ``[T, L]``, time steps and lanes."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from arena.common.trees import map_tree, put, tree_leaves
from arena.envs.interface import EntitySpaces
from arena.protocol.wire import BufferLayout, steady_view
from arena.tensors.numba_jit import compiled

NO_SLOT = -1
HEADER_WORDS = 8
SEQUENCE, VERSION, TAKEN, WAITED, SPENT = range(5)
"""Words of the header of a rollout that is sent: its number, the version of the weights that acted, its transition
steps; nanoseconds that its worker waited for weights, and nanoseconds from begin to end."""


class Decision(NamedTuple):
    """Decision of a policy for N lanes.

    Attributes:
      actions: array ``[N, ...]`` in the action space's dtype, or a nested dict or tuple of such arrays.
      extras: arrays ``[N, ...]`` by the names of ``Policy.extras``; empty when acting without learning.
    """

    actions: Any
    extras: dict[str, np.ndarray]


class Rollout:
    """T time steps of L lanes. A step is one exchange with the environment process, a lane one entity in one copy.

    For each batch (a slice of lanes) and step, the collector calls ``observe`` with the observation message and
    ``decide`` with the decision; at step T ``observe`` and then ``finish``. When all lanes have finished, the policy
    learns, ``begin`` makes step T the first of the next rollout, and step 0 is decided without being observed again.

    A transition begins in a step in which its lane acts and ends in the step with its outcome: the next one, or in
    turn-based games the one in which the entity acts again or is done. One that has not ended by step T does not count.

    All arrays are views of one buffer, so that a rollout can be sent from a worker to a learner as it is.

    Attributes:
      horizon: T.
      lanes: L.
      buffer: the bytes of all arrays.
      header: int64 [8], used if it is sent, see ``SEQUENCE`` and the indices after it.
      observations: array ``[T + 1, L, ...]``, or a nested dict or tuple of them.
      action_mask: ``[T + 1, L, mask_size]`` int8, or None if the entity has no mask.
      global_state: array ``[T + 1, L, ...]``, or a nested dict or tuple of them, equal for the lanes of one copy; None
        if the policy reads none.
      acting: ``[T + 1, L]`` bool, whether the action counts.
      starts: ``[T + 1, L]`` bool, whether the observation is the first of an episode.
      actions: array ``[T + 1, L, ...]``, or a nested dict or tuple of them.
      extras: arrays of the policy for ``learn``, by name: ``[T + 1, L, ...]``.
      rewards: ``[T, L]`` float32, stored where the transition began, like the next four.
      terminated: ``[T, L]`` bool, the episode ended by its rules: the value of what follows is 0.
      truncated: ``[T, L]`` bool, the episode was truncated: the value of the final observation is that of what follows.
      valid: ``[T, L]`` bool, a whole transition that counts for learning.
      next_slot: ``[T, L]`` intp, the time step of the observation that follows the transition, at most T.
      earned: ``[T + 1, L]`` float64, the reward that arrived in each step, like the next three: transitions are built
        from these and from ``acting`` and ``starts``.
      over: ``[T + 1, L]`` bool, whether an episode was reported terminated.
      cut: ``[T + 1, L]`` bool, whether it was reported truncated.
      void: ``[T + 1, L]`` bool, whether a fault has ended it.
    """

    def __init__(
        self,
        spaces: EntitySpaces,
        extras: Mapping[str, tuple[tuple[int, ...], Any]],
        *,
        horizon: int,
        lanes: int,
        memory: np.ndarray | None = None,
    ) -> None:
        """Lay out all arrays.

        Args:
          spaces: spaces of the entity in each lane.
          extras: ``Policy.extras``.
          horizon: ``Policy.horizon``, at least 1.
          lanes: number of lanes of this worker: copies times entities.
          memory: aligned, zeroed bytes, as many as the ``buffer`` of an equal rollout has; None allocates.
        """
        self.horizon = horizon
        self.lanes = lanes
        carver = BufferLayout()

        def want(*shape: int, dtype: Any = bool) -> int:
            return carver.want(shape, dtype)

        rows = horizon + 1
        header = want(HEADER_WORDS, dtype=np.int64)
        observations = carver.add_leaves(spaces.observation, rows, lanes)
        mask = want(rows, lanes, spaces.mask_size, dtype=np.int8) if spaces.mask_size else None
        state = None if spaces.global_state is None else carver.add_leaves(spaces.global_state, rows, lanes)
        actions = carver.add_leaves(spaces.action, rows, lanes)
        left = {name: want(rows, lanes, *below, dtype=dtype) for name, (below, dtype) in extras.items()}
        acting, starts, over, cut, void = (want(rows, lanes) for _ in range(5))
        earned, rewards = want(rows, lanes, dtype=np.float64), want(horizon, lanes, dtype=np.float32)
        terminated, truncated, valid = (want(horizon, lanes) for _ in range(3))
        next_slot = want(horizon, lanes, dtype=np.intp)
        self.buffer, arrays = carver.allocate(memory)
        self._arrays = [array for number, array in enumerate(arrays) if number != header]
        self.header: memoryview[int] = steady_view(arrays[header])
        self.observations = map_tree(lambda i: arrays[i], observations)
        self.action_mask = None if mask is None else arrays[mask]
        if self.action_mask is not None:
            self.action_mask.fill(1)
        self.global_state = None if state is None else map_tree(lambda i: arrays[i], state)
        self.actions = map_tree(lambda i: arrays[i], actions)
        self.extras = {name: arrays[i] for name, i in left.items()}
        self.acting, self.starts = arrays[acting], arrays[starts]
        self.over, self.cut, self.void = arrays[over], arrays[cut], arrays[void]
        self.earned, self.rewards = arrays[earned], arrays[rewards]
        self.terminated, self.truncated, self.valid = arrays[terminated], arrays[truncated], arrays[valid]
        self.next_slot = arrays[next_slot]
        self._following = np.arange(1, horizon + 1)[:, None]
        self._arrived = self.earned, self.over, self.cut, self.void, self.acting, self.starts
        self._rows: dict[int, list[tuple[np.ndarray, ...]]] = {}  # views by time step, by a batch's first lane
        self.begin()

    def begin(self, last: "Rollout | None" = None) -> None:
        """Start the next rollout with the observations of step T in step 0. Nothing is allocated.

        Args:
          last: the rollout before it, of the same lanes; None to fill this one again.
        """
        last = self if last is None else last
        for array, before in zip(self._seen(), last._seen(), strict=True):
            array[0] = before[-1]
        for array in (self.rewards, self.terminated, self.truncated, self.valid):
            array.fill(0)
        self.next_slot[:] = self._following

    def _seen(self) -> list[np.ndarray]:
        """Return the arrays that hold a time step before a decision."""
        masks = [] if self.action_mask is None else [self.action_mask]
        states = [] if self.global_state is None else tree_leaves(self.global_state)
        return [*tree_leaves(self.observations), self.acting, self.starts, *masks, *states]

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return self.buffer.nbytes

    @property
    def blocks(self) -> "tuple[Rollout, ...]":
        """This rollout alone: its lanes are entities with equal spaces."""
        return (self,)

    def take_lanes(self, other: "Rollout", first: int) -> None:
        """Copy all lanes of another rollout of the same length into the lanes from ``first`` on."""
        if other.lanes == self.lanes:
            self.buffer[:] = other.buffer
            return
        lanes = slice(first, first + other.lanes)
        for target, source in zip(self._arrays, other._arrays, strict=True):
            target[:, lanes] = source

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
        global_state: Any = None,
    ) -> None:
        """Store the observation message for N lanes: observations of step ``slot``, and outcomes of their last actions.

        That of step T completes their transitions.

        Args:
          slot: time step, 0 (in the very first rollout only) to T.
          lanes: indices of the lanes.
          observations: arrays ``[N, ...]``, nested like the observation space.
          rewards: ``[N]`` float64, reward of each lane.
          terminated: ``[N]`` bool.
          truncated: ``[N]`` bool.
          acting: ``[N]`` bool, whether the lane's next action counts.
          starts: ``[N]`` bool, whether an episode begins here; an open transition is dropped.
          action_mask: ``[N, mask_size]``, nonzero is allowed.
          void: ``[N]`` bool, whether a fault (the copy crashed) ended the episode: its transitions in this rollout are
            not learned from. None for no lane.
          global_state: arrays ``[N, ...]``, nested like the state's space; None without one.
        """
        put(self.observations, (slot, lanes), observations)
        if self.action_mask is not None and action_mask is not None:
            self.action_mask[slot, lanes] = action_mask
        if global_state is not None:
            put(self.global_state, (slot, lanes), global_state)
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
            self._build_transitions(lanes.start, lanes.start + len(rewards))

    def decide(self, slot: int, lanes: slice, decision: Decision) -> None:
        """Store the policy's decision on the observations of step ``slot``, 0 to T - 1."""
        put(self.actions, (slot, lanes), decision.actions)
        for name, value in decision.extras.items():
            self.extras[name][slot, lanes] = value

    def finish(self, lanes: slice, values: np.ndarray) -> None:
        """Store the values ``[N]`` of the observations of step T (``Policy.bootstrap``)."""
        self.extras["value"][self.horizon, lanes] = values

    # Columns of lanes that advance independently (``arena.experience.lanes``), instead of all of the above

    def clear(self) -> None:
        """Remove the transitions of all lanes."""
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
        """Store the column of a lane, arrays ``[N, ...]`` with N of 2 to T + 1, and build its transitions.

        The column ends there: an unfinished episode is cut in its last step, and its value stands for what follows,
        since the lane belongs to another column in the next rollout.

        ``lane`` is the index of the target, which has been cleared; the arrays are columns of the attributes with their
        names.
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
        self.acting[slots - 1, lane] &= slots > self.horizon  # its action belongs to the next column
        self._build_transitions(lane, lane + 1)

    def _build_transitions(self, first: int, end: int) -> None:
        """Build the transitions of the lanes ``first`` to ``end`` (exclusive)."""
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
    """Build the transitions of the lanes ``first`` to ``end`` (exclusive) from the arrays of all steps.

    For inputs see ``Rollout.observe``, for outputs the attributes of ``Rollout``.
    """
    for lane in range(first, end):
        began, collected = 0 if acting[0, lane] else NO_SLOT, 0.0  # start and return of the open transition
        for slot in range(1, len(acting)):
            if starts[slot, lane]:  # an open transition is dropped
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
