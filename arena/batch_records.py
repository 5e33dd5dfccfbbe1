"""What the seats of a match are told of one batch of its copies, in the memory that is sent to them."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from arena.env_manager.faults import NotANumberError
from arena.env_manager.slot import has_nan
from arena.envs.interface import EntitySpaces, Timestep
from arena.seat import Side
from arena.wire import PLAIN, VOID, Block, Record, SlotWriter, tree_leaves


class _Place(NamedTuple):
    """One entity of one copy in a seat's record: the observations, flat views of the rest, and where it lies there."""

    entity: int
    offset: int
    write: Callable[[Any], None]
    mask: np.ndarray | None


class _SeatRecord(NamedTuple):
    """One seat's record, with flat memory views (cheaper to assign to than arrays)."""

    record: Record
    rewards: "memoryview[float]"
    terminated: "memoryview[bool]"
    truncated: "memoryview[bool]"
    acting: "memoryview[bool]"
    started: "memoryview[bool]"
    over: "memoryview[bool]"
    places: list[list[_Place]]


class BatchRecords:
    """The records of all seats for one batch of copies, which are numbered from 0 here.

    Attributes:
      copies: how many they are.
    """

    def __init__(
        self,
        records: Sequence[Record],
        seats: Sequence[Sequence[int]],
        blocks: Sequence[Sequence[Block]],
        entities: Sequence[EntitySpaces],
        *,
        looks_for_nan: bool,
    ) -> None:
        """Take the memory.

        Args:
          records: of each seat.
          seats: the entities of each seat.
          blocks: of each seat.
          entities: of the environment.
          looks_for_nan: whether nobody has looked at the observations yet.
        """
        self.copies = int(records[0].rewards.shape[0])
        self._voided = self._plain = self._said_plain = False
        self._acted = [False] * self.copies  # whether everybody acted in what was last written of a copy
        self._entities, self._seats = entities, seats
        self._records = [
            self._seat_record(record, own, its) for record, own, its in zip(records, seats, blocks, strict=True)
        ]
        # Of a vector with a NaN in it, the product with itself is one.
        self._products = [(flat.dot, flat) for flat in self._floats(None)] if looks_for_nan else []
        self._floats_of = [self._floats(copy) if looks_for_nan else [] for copy in range(self.copies)]

    def _seat_record(self, record: Record, seat: Sequence[int], blocks: Sequence[Block]) -> _SeatRecord:
        copies, count = record.rewards.shape
        places: list[list[_Place]] = []
        for copy in range(copies):
            row = []
            for b, block in enumerate(blocks):
                masks = record.action_masks[b]
                for place, position in enumerate(block.positions):
                    entity = seat[position]
                    writer = SlotWriter(record.observations[b], copy, place, self._entities[entity].name)
                    mask = None if masks is None else masks[copy, place]
                    row.append(_Place(entity, copy * count + position, writer.write, mask))
            places.append(row)
        return _SeatRecord(
            record,
            rewards=record.rewards.data.cast("B").cast("d"),
            terminated=_flags(record.terminated),
            truncated=_flags(record.truncated),
            acting=_flags(record.acting),
            started=_flags(record.started),
            over=_flags(record.over),
            places=places,
        )

    def _floats(self, copy: int | None) -> list[np.ndarray]:
        """Return flat views of the observations that may be NaN, of all copies or of one."""
        trees = [tree for seat in self._records for tree in seat.record.observations]
        floats = [leaf for tree in trees for leaf in tree_leaves(tree) if leaf.dtype.kind == "f"]
        return [(array if copy is None else array[copy]).reshape(-1) for array in floats]

    def begin(self) -> None:
        """Begin what is told after an exchange."""
        self._plain = True
        if self._voided:
            self._voided = False
            for seat in self._records:
                seat.record.void.fill(False)
                seat.record.header[0] &= ~VOID

    def finish(self) -> None:
        """End what is told after an exchange."""
        plain = self._plain and False not in self._acted  # a copy that rests may not have been written to
        if plain is not self._said_plain:
            self._said_plain = plain
            for seat in self._records:
                seat.record.header[0] ^= PLAIN

    def write(
        self, copy: int, timestep: Timestep, sides: dict[int, Side], *, started: bool, over: bool = False
    ) -> None:
        """Write one copy's timestep into every seat's record, and its infos into the ``sides`` of seats that read them.

        Raises:
          ShapeError: an observation does not have the shape of its space.
        """
        observations, rewards, terminated, truncated, infos, acting, masks, ended = timestep
        all_act = False not in acting
        if started or ended or over or not (all_act and self._acted[copy]):
            self._plain = False
        self._acted[copy] = all_act
        for seat in self._records:
            for entity, offset, write, mask in seat.places[copy]:
                write(observations[entity])
                seat.rewards[offset] = rewards[entity]
                seat.terminated[offset] = terminated[entity]
                seat.truncated[offset] = truncated[entity]
                seat.acting[offset] = acting[entity]
                if mask is not None and masks[entity] is not None:
                    mask[...] = masks[entity]
            seat.started[copy] = started
            seat.over[copy] = ended or over
        for s, side in sides.items():
            own = [infos[e] for e in self._seats[s]]
            if any(own):
                side.infos[copy] = own

    def rest(self, copy: int) -> None:
        """Have nobody act in a copy that the job leaves idle, or that is late."""
        self._plain = self._acted[copy] = False
        for seat in self._records:
            record = seat.record
            record.rewards[copy] = 0.0
            for flags in (record.terminated, record.truncated, record.acting, record.started, record.over):
                flags[copy] = False

    def cast(self, copy: int, number: int) -> None:
        """Say by which cast a copy is played."""
        for seat in self._records:
            seat.record.cast[copy] = number

    # Faults ---------------------------------------------------------------------------------------------------

    def has_nan(self) -> bool:
        """Whether an observation is NaN; ``check`` finds out whose."""
        for dot, flat in self._products:
            square = dot(flat)
            if square != square:  # see arena.env_manager.slot.has_nan
                return True
        return False

    def check(self, copy: int) -> None:
        """Look at a copy's observations.

        Raises:
          NotANumberError: one of them is NaN.
        """
        for flat in self._floats_of[copy]:
            if has_nan(flat):
                raise NotANumberError(f"the environment returned an observation that is NaN: {flat.tolist()!s:.200}")

    def clean(self, copy: int) -> None:
        """Take NaN out of a copy's observations, lest it poisons those who only look."""
        for flat in self._floats(copy):
            np.nan_to_num(flat, copy=False)

    def void(self, copy: int) -> None:
        """Mark a copy's transition as spoiled by a fault."""
        self._voided, self._plain = True, False
        for seat in self._records:
            seat.record.void[copy] = True
            seat.record.header[0] |= VOID


def _flags(array: np.ndarray) -> "memoryview[bool]":
    """Return a flat memory view of a contiguous array of flags."""
    return array.data.cast("B").cast("?")
