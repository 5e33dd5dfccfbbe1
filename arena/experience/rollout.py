"""What a worker collected between two updates: preallocated arrays with leading axes ``[T, L]``, slots and lanes."""

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
"""Words of the header of a rollout that travels: its number, the version of the weights that acted, the transition
steps in it; nanoseconds for which its worker has waited for weights, and those that the rollout took in all."""


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

    All arrays are views of one buffer, so that a rollout travels from a worker to a learner as it is.

    Attributes:
      horizon: T.
      lanes: L.
      buffer: the bytes.
      header: int64 [8], for one that travels, see ``SEQUENCE`` and those beside it.
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
        self,
        spaces: EntitySpaces,
        extras: Mapping[str, tuple[tuple[int, ...], Any]],
        *,
        horizon: int,
        lanes: int,
        memory: np.ndarray | None = None,
    ) -> None:
        """Lay everything out.

        Args:
          spaces: what the entity in each lane sees and does.
          extras: ``Policy.extras``.
          horizon: ``Policy.horizon``, at least 1.
          lanes: copies times entities of this worker.
          memory: where to: zero bytes, aligned, as many as ``buffer`` of another one has; None allocates.
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
        self.actions = map_tree(lambda i: arrays[i], actions)
        self.extras = {name: arrays[i] for name, i in left.items()}
        self.acting, self.starts = arrays[acting], arrays[starts]
        self.over, self.cut, self.void = arrays[over], arrays[cut], arrays[void]
        self.earned, self.rewards = arrays[earned], arrays[rewards]
        self.terminated, self.truncated, self.valid = arrays[terminated], arrays[truncated], arrays[valid]
        self.next_slot = arrays[next_slot]
        self._following = np.arange(1, horizon + 1)[:, None]
        self._arrived = self.earned, self.over, self.cut, self.void, self.acting, self.starts
        self._rows: dict[int, list[tuple[np.ndarray, ...]]] = {}  # of these, by a batch's first lane: views by slot
        self.begin()

    def begin(self, last: "Rollout | None" = None) -> None:
        """Start the next rollout: what was observed in slot T is now in slot 0. Nothing is allocated.

        Args:
          last: the rollout before it, of the same lanes; None where this one is to be filled again.
        """
        last = self if last is None else last
        for array, before in zip(self._seen(), last._seen(), strict=True):
            array[0] = before[-1]
        for array in (self.rewards, self.terminated, self.truncated, self.valid):
            array.fill(0)
        self.next_slot[:] = self._following

    def _seen(self) -> list[np.ndarray]:
        """Return what is known of a slot before anything is decided in it."""
        masks = [] if self.action_mask is None else [self.action_mask]
        return [*tree_leaves(self.observations), self.acting, self.starts, *masks]

    def take_lanes(self, other: "Rollout", first: int) -> None:
        """Copy another rollout of the same length, all of its lanes, into the lanes from ``first`` on."""
        if other.lanes == self.lanes:
            self.buffer[:] = other.buffer
            return
        lanes = slice(first, first + other.lanes)
        for mine, its in zip(self._arrays, other._arrays, strict=True):
            mine[:, lanes] = its

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

    # Columns of lanes that go at their own pace (``arena.experience.lanes``), instead of all of the above

    def clear(self) -> None:
        """Leave no transition in any lane."""
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
