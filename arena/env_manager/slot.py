"""Memory of one copy: its actions and its latest timestep, as arrays that two processes may share."""

from collections.abc import Callable, Sequence
from math import isnan
from typing import Any

import numpy as np

from arena.common.masks import NoActionError, emptiness_check
from arena.common.trees import map_tree, tree_leaves
from arena.env_manager.faults import NotANumberError
from arena.envs.interface import EntitySpaces, Timestep
from arena.protocol.wire import (
    ActionMessage,
    ShapeError,
    SlotWriter,
    action_reader,
    aligned,
    blocks_of,
    make_observation_message,
    state_writer,
)


class Slot:
    """The actions of one copy and its timestep.

    Attributes:
      size: bytes that it needs.
      global_state: array of the global state, or a nest of arrays; None without one.
    """

    def __init__(self, entities: Sequence[EntitySpaces], memory: np.ndarray | None = None) -> None:
        """Lay the arrays out in ``memory`` (bytes ``[size]``, aligned), or allocate them.

        There is room for a global state if the entities have its space.
        """
        blocks = blocks_of(entities)
        record = make_observation_message(blocks, 1, memory)
        start = aligned(record.buffer.size)
        message = ActionMessage(blocks, 1, None if memory is None else memory[start:])
        self.size = start + message.buffer.size
        self._record = record
        count = len(entities)
        readers: list[Any] = [None] * count
        writers: list[Any] = [None] * count
        observers: list[Any] = [None] * count
        views: list[Any] = [None] * count
        masks: list[Any] = [None] * count
        for b, block in enumerate(blocks):
            mask = record.action_masks[b]
            for place, entity in enumerate(block.positions):
                name = entities[entity].name
                readers[entity] = action_reader(message.actions[b], 0, place)
                writers[entity] = SlotWriter(message.actions[b], 0, place, name, "action").write
                observers[entity] = SlotWriter(record.observations[b], 0, place, name).write
                views[entity] = map_tree(lambda array, place=place: array[0, place, ...], record.observations[b])
                masks[entity] = None if mask is None else mask[0, place]
        self._readers: list[Callable[[], Any]] = readers
        self._writers: list[Callable[[Any], None]] = writers
        self._observers: list[Callable[[Any], None]] = observers
        self._views: list[Any] = views
        self._masks: list[np.ndarray | None] = masks
        self.global_state, self._write_state = None, None
        if record.global_state is not None:
            self.global_state = map_tree(lambda array: array[0, ...], record.global_state)
            self._write_state = state_writer(record.global_state, 0)
        self._names = [entity.name for entity in entities]
        self._is_empty = [emptiness_check(entity.action) for entity in entities]
        self._checks = nan_checks(tuple(record.observations))
        self._state_checks = [] if record.global_state is None else nan_checks(record.global_state)

    def put_actions(self, actions: Sequence[Any]) -> None:
        """Write one action per entity.

        Raises:
          ValueError: their number is wrong, or one has the wrong shape.
        """
        if len(actions) != len(self._writers):
            raise ValueError(f"expected {len(self._writers)} actions, one for each entity, found {len(actions)}")
        for write, action in zip(self._writers, actions, strict=True):
            write(action)

    def actions(self) -> list[Any]:
        """Return the actions: NumPy scalars and views, valid until the next ones are written."""
        return [read() for read in self._readers]

    def put(self, timestep: Timestep) -> None:
        """Write a timestep, without its infos.

        Raises:
          ShapeError: an array does not fit its space.
          NotANumberError: an observation is NaN, or a reward is not finite.
          NoActionError: an entity that acts has no allowed action.
        """
        observations, rewards, terminated, truncated, _, acting, masks, over = timestep
        count = len(self._observers)
        for name, items in zip(Timestep._fields, timestep[:-1], strict=False):
            if len(items) != count:
                raise ShapeError(f"expected {count} {name}, one for each entity, found {len(items)}")
        for write, observation in zip(self._observers, observations, strict=True):
            write(observation)
        record = self._record
        record.rewards[0] = rewards
        record.terminated[0] = terminated
        record.truncated[0] = truncated
        record.acting[0] = acting
        record.over[0] = over
        for entity, (own, mask) in enumerate(zip(self._masks, masks, strict=True)):
            if own is not None and mask is not None:
                own[...] = mask
                if acting[entity] and self._is_empty[entity](mask):
                    raise NoActionError(self._names[entity])
        for reward in rewards:
            if reward - reward != 0:  # cheaper than math.isfinite
                raise NotANumberError(f"the environment returned a reward that is not finite: {reward}")
        for has_nan, flat in self._checks:
            if has_nan():
                raise NotANumberError(f"the environment returned an observation that is NaN: {flat.tolist()!s:.200}")

    def put_state(self, state: Any) -> None:
        """Write the global state.

        Raises:
          ShapeError: an array does not fit its space.
          NotANumberError: a number is NaN.
        """
        assert self._write_state is not None
        self._write_state(state)
        check_state(self._state_checks)

    def timestep(self, infos: Sequence[dict] | None = None) -> Timestep:
        """Return the timestep; observations and masks are views."""
        record = self._record
        return Timestep(
            observations=self._views,
            rewards=record.rewards[0].tolist(),
            terminated=tuple(record.terminated[0].tolist()),
            truncated=tuple(record.truncated[0].tolist()),
            infos=[{} for _ in self._views] if infos is None else infos,
            acting=tuple(record.acting[0].tolist()),
            action_masks=self._masks,
            over=bool(record.over[0]),
        )


_FEW = 64
"""Number of floats up to which comparing memory with itself takes less time than a call of NumPy."""


def nan_check(flat: np.ndarray) -> Callable[[], bool]:
    """Return a function that reports whether a flat, non-empty array of floats currently contains a NaN."""
    if flat.size <= _FEW and flat.dtype.char in "efd":  # a memory view cannot read longer types
        memory = flat.data
        return lambda: memory != memory  # element-wise; only NaN differs from itself
    # argmax returns a NaN if there is one; a fifth of the time of isnan and any
    return lambda: isnan(flat.item(flat.argmax()))


NanChecks = list[tuple[Callable[[], bool], np.ndarray]]
"""For each array of floats, a function that reports whether it currently contains a NaN, and the array, flat."""


def nan_checks(tree: Any) -> NanChecks:
    """Return the checks of the arrays of floats in a tree."""
    flats = [leaf.reshape(-1) for leaf in tree_leaves(tree) if leaf.dtype.kind == "f" and leaf.size]
    return [(nan_check(flat), flat) for flat in flats]


def check_state(checks: NanChecks) -> None:
    """Check a global state.

    Raises:
      NotANumberError: a number is NaN.
    """
    for has_nan, flat in checks:
        if has_nan():
            raise NotANumberError(f"the environment returned a global state that is NaN: {flat.tolist()!s:.200}")


def owned(timestep: Timestep) -> Timestep:
    """Return a deep copy of a timestep, independent of the memory that it was read from."""

    def copied(view: np.ndarray) -> Any:
        return view.copy() if view.ndim else view[()]

    return timestep._replace(
        observations=[map_tree(copied, tree) for tree in timestep.observations],
        action_masks=[None if mask is None else mask.copy() for mask in timestep.action_masks],
    )
