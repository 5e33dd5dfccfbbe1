"""Observation messages of one batch of copies, for all seats of a match."""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from arena.common.masks import NoActionError, emptiness_check
from arena.common.trees import map_tree, tree_leaves
from arena.env_manager.faults import NotANumberError
from arena.env_manager.slot import nan_check
from arena.environment.global_state import GlobalState
from arena.envs.interface import EntitySpaces, Timestep
from arena.protocol.seat import StepInfos
from arena.protocol.wire import STEADY, Block, ObservationMessage, SlotWriter, state_writer, steady_view


class _SeatRecord(NamedTuple):
    """One seat's message, with flat memory views (cheaper to assign to than arrays)."""

    record: ObservationMessage
    rewards: "memoryview[float]"
    terminated: "memoryview[bool]"
    truncated: "memoryview[bool]"
    acting: "memoryview[bool]"
    started: "memoryview[bool]"
    over: "memoryview[bool]"


class _Place(NamedTuple):
    """Location of one entity of one copy in its seat's message.

    Attributes:
      entity: index of the entity.
      view, shape: array of its observation and its shape, if the observation is a single array; else None.
      write: writes any observation.
      mask: array of its action mask.
      is_empty: returns whether a mask leaves a choice without an allowed action.
      rewards: rewards of its seat.
      seat: message of its seat.
      offset: its index in the message's flat views.
    """

    entity: int
    view: Any
    shape: tuple[int, ...] | None
    write: Callable[[Any], None]
    mask: np.ndarray | None
    is_empty: Callable[[Any], bool]
    rewards: "memoryview[float]"
    seat: _SeatRecord
    offset: int


class SteadySlot(NamedTuple):
    """Views into the message for a copy with one entity: the fast path of a steady step.

    Attributes:
      observation: array of the observation.
      rewards, offset: flat view, and the index in it.
      steady: by copy, whether the previous step was steady too, so that no flag changes.
      copy: index in ``steady``.
      tells_infos: whether the seat reads infos.
    """

    observation: np.ndarray
    rewards: "memoryview[float]"
    offset: int
    steady: Sequence[bool]
    copy: int
    tells_infos: bool


class BatchWriter:
    """Writer of the messages of all seats for one batch of copies, which are numbered from 0 here.

    Attributes:
      copies: number of copies.
      has_state: whether a seat receives the global state; ``write_state`` must then follow ``write``.
      sides: side messages of the seats that read infos, if any.
    """

    def __init__(
        self,
        records: Sequence[ObservationMessage],
        seats: Sequence[Sequence[int]],
        blocks: Sequence[Sequence[Block]],
        entities: Sequence[EntitySpaces],
        *,
        readers: Collection[int],
        looks_for_nan: bool,
        state: GlobalState | None = None,
    ) -> None:
        """Prepare the views.

        Args:
          records: message of each seat.
          seats: entities of each seat.
          blocks: blocks of each seat.
          entities: names and spaces of the environment's entities.
          readers: the seats that read infos.
          looks_for_nan: whether observations have not been checked for NaN yet.
          state: reads the global state, if a seat's record has room for it.
        """
        self.copies = int(records[0].rewards.shape[0])
        self.sides: dict[int, StepInfos] = {}
        self._seats, self._readers = seats, tuple(readers)
        self._voided = self._plain = self._said_plain = self._said_sides = False
        # Of a copy's last timestep: whether every entity acted, and whether no other flag was set.
        self._acted, self._steady = [False] * self.copies, [False] * self.copies
        self._names = [entity.name for entity in entities]
        self._all, self._none = (True,) * len(entities), (False,) * len(entities)
        self._records = [_seat_record(record) for record in records]
        self._places: list[list[_Place]] = [[] for _ in range(self.copies)]
        for seat, own, its in zip(self._records, seats, blocks, strict=True):
            for copy, places in enumerate(self._places):
                places += _places(seat, copy, own, its, entities)
        self.has_state, self._state = state is not None, state
        self._state_writers = [
            [state_writer(tree, copy) for record in records if (tree := record.global_state) is not None]
            for copy in range(self.copies)
        ]
        self._nan_checks = [nan_check(flat) for flat in self._floats(None)] if looks_for_nan else []
        self._nan_checks_of = [
            [(nan_check(flat), flat) for flat in self._floats(copy)] if looks_for_nan else []
            for copy in range(self.copies)
        ]

    def _floats(self, copy: int | None) -> list[np.ndarray]:
        """Return flat views of the observations that may be NaN, of all copies or of one."""
        trees = [tree for seat in self._records for tree in (*seat.record.observations, *_state_of(seat.record))]
        floats = [leaf for tree in trees for leaf in tree_leaves(tree) if leaf.dtype.kind == "f" and leaf.size]
        return [(array if copy is None else array[copy]).reshape(-1) for array in floats]

    def begin(self) -> None:
        """Begin the messages of an exchange."""
        self._plain = True
        if self.sides:
            self.sides = {}
        if self._voided:
            self._voided = False
            for seat in self._records:
                seat.record.void.fill(False)

    def finish(self) -> None:
        """Complete the messages of an exchange."""
        plain = self._plain and False not in self._acted  # the arrays of an idle copy may be unwritten
        if plain is not self._said_plain:
            self._said_plain = plain
            for seat in self._records:
                seat.record.header[0] ^= STEADY
        if self.sides or self._said_sides:
            self._said_sides = bool(self.sides)
            for s in self._readers:
                self._records[s].record.header[1] = s in self.sides

    def write(self, copy: int, timestep: Timestep, *, started: bool, over: bool = False) -> None:
        """Write one copy's timestep into every seat's record, and its infos into the sides of seats that read them.

        Raises:
          ShapeError: an observation does not have the shape of its space.
          NotANumberError: a reward is not finite.
          NoActionError: an entity that acts has no allowed action.
        """
        observations, rewards, terminated, truncated, infos, acting, masks, ended = timestep
        for entity, view, shape, write, mask, is_empty, paid, _, offset in self._places[copy]:
            observation = observations[entity]
            if type(observation) is np.ndarray and observation.shape == shape:  # inlined ``write``, for speed
                view[...] = observation
            else:
                write(observation)
            paid[offset] = reward = rewards[entity]
            if reward - reward != 0:  # cheaper than math.isfinite
                raise NotANumberError(f"the environment returned a reward that is not finite: {reward}")
            if mask is not None and masks[entity] is not None:
                mask[...] = flags = masks[entity]
                if acting[entity] and is_empty(flags):
                    raise NoActionError(self._names[entity])
        if not (
            self._steady[copy]
            and acting == self._all
            and terminated == truncated == self._none
            and not (ended or started or over)
        ):
            self._write_flags(copy, timestep, started, ended or over)
        if self._readers and any(infos):
            self._put_infos(copy, infos)

    def write_state(self, copy: int, timestep: Timestep, *, started: bool) -> None:
        """Write the global state after a copy's timestep into the records of the seats that receive it.

        Without this call, the state of the previous timestep remains: after a fault there is no other.

        Raises:
          ShapeError: the state does not have the shape of its space.
        """
        assert self._state is not None
        state = self._state.read(copy, timestep, started=started)
        for write in self._state_writers[copy]:
            write(state)

    def steady_slot(self, copy: int) -> SteadySlot | None:
        """Return the views of a copy for steady steps.

        None if it has several entities, nested observations or a global state.
        """
        if len(self._all) > 1 or not self._places[copy] or self.has_state:
            return None
        ((_, view, _, _, mask, _, rewards, _, offset),) = self._places[copy]
        if view is None or mask is not None:
            return None
        return SteadySlot(view, rewards, offset, self._steady, copy, bool(self._readers))

    def _write_flags(self, copy: int, timestep: Timestep, started: bool, over: bool) -> None:
        all_act = False not in timestep.acting
        steady = all_act and not (started or over or True in timestep.terminated or True in timestep.truncated)
        if not (steady and self._acted[copy]):
            self._plain = False
        self._acted[copy], self._steady[copy] = all_act, steady
        for entity, *_, seat, offset in self._places[copy]:
            seat.terminated[offset] = timestep.terminated[entity]
            seat.truncated[offset] = timestep.truncated[entity]
            seat.acting[offset] = timestep.acting[entity]
        for seat in self._records:
            seat.started[copy] = started
            seat.over[copy] = over

    def _put_infos(self, copy: int, infos: Sequence[dict]) -> None:
        for s in self._readers:
            own = [infos[e] for e in self._seats[s]]
            if any(own):
                self.sides.setdefault(s, StepInfos({}, {})).infos[copy] = own

    def put_finals(self, copy: int, final: Timestep) -> None:
        """Send final observations and infos of an episode in the side message: the arrays hold the next one's first."""
        for s in self._readers:
            side = self.sides.setdefault(s, StepInfos({}, {}))
            side.infos.pop(copy, None)
            side.finals[copy] = [(_copied(final.observations[e]), final.infos[e]) for e in self._seats[s]]

    def write_idle(self, copy: int) -> None:
        """Mark every entity of a copy as not acting: the job leaves it idle, or it has not answered in time."""
        self._plain = self._acted[copy] = self._steady[copy] = False
        for seat in self._records:
            record = seat.record
            record.rewards[copy] = 0.0
            for flags in (record.terminated, record.truncated, record.acting, record.started, record.over):
                flags[copy] = False

    def write_lineup(self, copy: int, number: int) -> None:
        """Write the number of a copy's line-up."""
        for seat in self._records:
            seat.record.lineup[copy] = number

    # Faults ---------------------------------------------------------------------------------------------------

    def has_nan(self) -> bool:
        """Return whether an observation is NaN; ``check`` finds the copy."""
        for has_nan in self._nan_checks:  # noqa: SIM110 (faster than any() of a generator)
            if has_nan():
                return True
        return False

    def check(self, copy: int) -> None:
        """Check the observations of a copy.

        Raises:
          NotANumberError: one of them is NaN.
        """
        for has_nan, flat in self._nan_checks_of[copy]:
            if has_nan():
                raise NotANumberError(f"the environment returned an observation that is NaN: {flat.tolist()!s:.200}")

    def zero_nan(self, copy: int) -> None:
        """Replace NaN in a copy's observations by zeros, so that it does not spread to seats that observe only."""
        for flat in self._floats(copy):
            np.nan_to_num(flat, copy=False)

    def mark_void(self, copy: int) -> None:
        """Mark a copy's transition as void: a fault has spoiled it."""
        self._voided, self._plain = True, False
        for seat in self._records:
            seat.record.void[copy] = True


def _seat_record(record: ObservationMessage) -> _SeatRecord:
    return _SeatRecord(
        record,
        rewards=steady_view(record.rewards),
        terminated=steady_view(record.terminated),
        truncated=steady_view(record.truncated),
        acting=steady_view(record.acting),
        started=steady_view(record.started),
        over=steady_view(record.over),
    )


def _state_of(record: ObservationMessage) -> tuple[Any, ...]:
    return () if record.global_state is None else (record.global_state,)


def _places(
    seat: _SeatRecord, copy: int, own: Sequence[int], blocks: Sequence[Block], entities: Sequence[EntitySpaces]
) -> Iterator[_Place]:
    """Yield the location of each seat's entities for one copy."""
    record = seat.record
    for b, block in enumerate(blocks):
        masks = record.action_masks[b]
        for place, position in enumerate(block.positions):
            entity = own[position]
            writer = SlotWriter(record.observations[b], copy, place, entities[entity].name)
            mask = None if masks is None else masks[copy, place]
            offset = copy * record.rewards.shape[1] + position
            check = emptiness_check(entities[entity].action)
            yield _Place(entity, writer.plain, writer.shape, writer.write, mask, check, seat.rewards, seat, offset)


def _copied(observation: Any) -> Any:
    """Return a copy of an observation that the environment may overwrite."""
    return map_tree(lambda leaf: np.array(leaf) if isinstance(leaf, np.ndarray) else leaf, observation)
