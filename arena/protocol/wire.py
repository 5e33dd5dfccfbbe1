"""Byte layout of the two messages that a seat exchanges with its environment process, derived from spaces.

Both ends derive the same layout from the same spaces, so that nothing but raw arrays travels per step.

Action message (worker to environment process), one per exchange and batch::

    header   int64 [3]                     command, bytes of the side message that follows, steps learned from
    actions  one block per kind of entity: each leaf [copies, entities of that kind, ...] in its own dtype

Observation message (environment process to worker)::

    header      int64 [2]                  flags, bytes of the side message that follows
    rewards     float64 [copies, entities]
    terminated, truncated, acting  bool [copies, entities]
    started, over, void  bool [copies]     void: a fault ended the episode
    lineup      int32 [copies]             line-up of the copy's episode (leagues), see ``protocol.lineup``
    observations, action masks  one block per kind of entity: each leaf [copies, entities of that kind, ...]
    global state  each leaf [copies, ...], for seats that receive it

Every array starts at a multiple of 64 bytes, a cache line. Observation messages of external games, where entities act
on request, also have ``marks``, int8 [copies, entities], before the observations: BEGINS, WITHDRAWN and VOID.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from arena.common.trees import Tree, leaf_dtype, leaf_shape, map_space, map_tree
from arena.envs.interface import EntitySpaces, Team

ALIGNMENT = 64
HEADER_WORDS = 2
ACTION_HEADER_WORDS = 3

# Commands of a worker.
STEP, RESET, DONE = 0, 1, 2  # DONE is a step after which this seat requests no more.
# Flags of an observation message, besides its arrays. STEADY: every entity of every copy acts, as in the step before,
# and no episode begins or ends; the arrays hold that too, and the flag saves reading them.
# GIVEN_UP, with MATCH_OVER: the environment has failed too often.
MATCH_OVER, STEADY, GIVEN_UP = 1, 2, 4
# Marks of an external game: an episode of the entity begins here; its last action was not carried out; a fault has
# ended its episode.
BEGINS, WITHDRAWN, VOID = 1, 2, 4


class ShapeError(ValueError):
    """The shape of an observation or action differs from that of its space."""


class Block(NamedTuple):
    """The entities of one seat that have equal spaces, and so share arrays.

    Attributes:
      positions: their indices among the seat's entities.
      spaces: their observation and action spaces, and the seat's entities as ``team``.
    """

    positions: tuple[int, ...]
    spaces: EntitySpaces


def blocks_of(entities: Sequence[EntitySpaces]) -> tuple[Block, ...]:
    """Group a seat's entities by equal spaces, in order of first appearance."""
    return tuple(
        Block(team.positions, entities[team.positions[0]]._replace(team=team))
        for team in Team(tuple(entities), ()).kinds()
    )


class BufferLayout:
    """Layout of consecutive arrays in a buffer that is allocated once all of them are declared.

    Attributes:
      size: bytes declared so far.
    """

    def __init__(self) -> None:
        """Create an empty layout."""
        self.size = 0
        self._wanted: list[tuple[int, tuple[int, ...], np.dtype]] = []

    def want(self, shape: tuple[int, ...], dtype: Any) -> int:
        """Declare one more array, aligned to a cache line; return its index."""
        dtype = np.dtype(dtype)
        start = aligned(self.size)
        self.size = start + int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        self._wanted.append((start, shape, dtype))
        return len(self._wanted) - 1

    def add_leaves(self, space: spaces.Space, *leading: int) -> Tree:
        """Declare an array ``[*leading, ...]`` for each leaf of a space; return the tree of their indices."""
        return map_space(space, lambda leaf: self.want((*leading, *leaf_shape(leaf)), leaf_dtype(leaf)))

    def allocate(self, memory: np.ndarray | None) -> tuple[np.ndarray, list[np.ndarray]]:
        """Return the buffer and views of it, in the order of their indices.

        Args:
          memory: aligned bytes, at least ``size``; None allocates zeros.
        """
        buffer = _new_buffer(self.size) if memory is None else memory[: self.size]
        arrays = []
        for start, shape, dtype in self._wanted:
            size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
            arrays.append(buffer[start : start + size].view(dtype).reshape(shape))
        return buffer, arrays


def aligned(size: int) -> int:
    """Round a number of bytes up to whole cache lines."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def _new_buffer(size: int) -> np.ndarray:
    # Over-allocate and shift, so that the first byte is aligned too.
    raw = np.zeros(size + ALIGNMENT, np.uint8)
    shift = -raw.ctypes.data % ALIGNMENT
    return raw[shift : shift + size]


class ActionMessage:
    """The action message of one batch of a seat: a buffer and views of it.

    Attributes:
      buffer: the bytes that are sent.
      header: int64 [3], see the module's text; a ``steady_view``.
      actions: for each block, a tree of arrays ``[copies, entities of the block, ...]``.
    """

    def __init__(self, blocks: Sequence[Block], copies: int, memory: np.ndarray | None = None) -> None:
        """Lay the message out in ``memory`` (aligned bytes, enough of them), or in a buffer of its own."""
        carver = BufferLayout()
        header = carver.want((ACTION_HEADER_WORDS,), np.int64)
        fields = [carver.add_leaves(block.spaces.action, copies, len(block.positions)) for block in blocks]
        self.buffer, arrays = carver.allocate(memory)
        self.header = steady_view(arrays[header])
        self.actions: list[Tree] = [map_tree(lambda i: arrays[i], tree) for tree in fields]


class ObservationMessage(NamedTuple):
    """The observation message of one batch of a seat: a buffer and views of it; the module gives the shapes."""

    buffer: np.ndarray
    header: "memoryview[int]"
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    acting: np.ndarray
    started: np.ndarray
    over: np.ndarray
    void: np.ndarray
    lineup: np.ndarray
    marks: np.ndarray
    observations: list[Tree]
    action_masks: list[np.ndarray | None]
    global_state: Tree | None


def make_observation_message(
    blocks: Sequence[Block], copies: int, memory: np.ndarray | None = None, *, marked: bool = False
) -> ObservationMessage:
    """Lay out the observation message of a seat for one batch of ``copies`` environment copies.

    Args:
      blocks: the entities of the seat, grouped by spaces; all with the same ``global_state``.
      copies: number of copies in the batch.
      memory: aligned bytes, enough of them; None allocates.
      marked: whether to reserve space for marks.
    """
    entities = sum(len(block.positions) for block in blocks)
    carver = BufferLayout()
    header = carver.want((HEADER_WORDS,), np.int64)
    rewards = carver.want((copies, entities), np.float64)
    terminated, truncated, acting = (carver.want((copies, entities), np.bool_) for _ in range(3))
    started, over, void = (carver.want((copies,), np.bool_) for _ in range(3))
    lineup = carver.want((copies,), np.int32)
    marks = carver.want((copies if marked else 0, entities), np.int8)
    observations, masks = [], []
    for block in blocks:
        k = len(block.positions)
        observations.append(carver.add_leaves(block.spaces.observation, copies, k))
        masks.append(carver.want((copies, k, block.spaces.mask_size), np.int8) if block.spaces.mask_size else None)
    state_space = blocks[0].spaces.global_state
    state = None if state_space is None else carver.add_leaves(state_space, copies)
    buffer, arrays = carver.allocate(memory)
    record = ObservationMessage(
        buffer=buffer,
        header=steady_view(arrays[header]),
        rewards=arrays[rewards],
        terminated=arrays[terminated],
        truncated=arrays[truncated],
        acting=arrays[acting],
        started=arrays[started],
        over=arrays[over],
        void=arrays[void],
        lineup=arrays[lineup],
        marks=arrays[marks],
        observations=[map_tree(lambda i: arrays[i], tree) for tree in observations],
        action_masks=[None if i is None else arrays[i] for i in masks],
        global_state=None if state is None else map_tree(lambda i: arrays[i], state),
    )
    for mask in record.action_masks:
        if mask is not None:
            mask.fill(1)
    return record


def steady_view(array: np.ndarray) -> Any:
    """Return a flat memory view of a contiguous array: plain numbers, read and written faster than array items."""
    return array.reshape(-1).data


class SlotWriter:
    """Writer of one entity's observations into the observation message of one copy; built once, called every step.

    Writes actions into an action message likewise.

    Attributes:
      plain: the target, if it is a single array; ``shape`` is its shape.
    """

    __slots__ = ("_expected", "_views", "plain", "shape")

    def __init__(self, tree: Tree, copy: int, place: int, name: str, what: str = "observation") -> None:
        self._expected = f"entity {name!r}: expected an {what}" if name else f"expected a {what}"
        self._views = map_tree(lambda array: array[copy, place, ...], tree)
        self.plain: np.ndarray | None = self._views if isinstance(self._views, np.ndarray) else None
        self.shape = None if self.plain is None else self.plain.shape

    def write(self, observation: Any) -> None:
        """Write one observation.

        Raises:
          ShapeError: its shape differs from that of its space (the message states both).
        """
        if self.plain is not None and getattr(observation, "shape", None) == self.shape:
            self.plain[...] = observation
        else:
            self._write(self._views, observation)

    def _write(self, views: Tree, value: Any) -> None:
        if isinstance(views, Mapping):
            for key, view in views.items():
                self._write(view, value[key])
        elif isinstance(views, tuple):
            for view, item in zip(views, value, strict=True):
                self._write(view, item)
        else:
            array = np.asarray(value)
            if array.shape != views.shape:
                raise ShapeError(
                    f"{self._expected} of shape {views.shape}, as its space has it, found shape {array.shape}"
                )
            views[...] = array


def state_writer(tree: Tree, copy: int) -> Callable[[Any], None]:
    """Return a function that writes the global state of one copy into a tree of arrays ``[copies, ...]``.

    It raises a ShapeError if the shape differs from that of the state's space.
    """
    return SlotWriter(map_tree(lambda array: array[:, None], tree), copy, 0, "", "global state").write


def action_reader(tree: Tree, copy: int, place: int) -> Callable[[], Any]:
    """Return a function that reads one entity's action in one copy: NumPy scalars, views, or nests of them.

    Array views are created here once, so that reading allocates nothing.
    """
    if isinstance(tree, Mapping):
        readers = {key: action_reader(sub, copy, place) for key, sub in tree.items()}
        return lambda: {key: reader() for key, reader in readers.items()}
    if isinstance(tree, tuple):
        parts = tuple(action_reader(sub, copy, place) for sub in tree)
        return lambda: tuple(part() for part in parts)
    if tree.ndim == 2:
        return partial(tree.__getitem__, (copy, place))
    view = tree[copy, place]
    return lambda: view
