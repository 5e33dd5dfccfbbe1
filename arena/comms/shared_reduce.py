"""Averages and sums over a group whose members share memory: each reads what the others bring where it lies."""

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from arena.comms.mpi import MPI
from arena.system.shared_memory import MemoryName, find_memory, offer_memory, whole_pages

_T = TypeVar("_T")

_PIECE = 2**20
"""Numbers that are averaged at once: they stay in the caches from when they are written until they are read."""

_IN_PLACE = 4
"""Largest number of members with which each one reduces in its own memory: one more rendezvous, but fewer copies."""


_SMALL = 2**15
"""Numbers up to which every member averages all of them for itself: that takes less time than a second meeting."""


class SharedAverage(Protocol):
    """The numbers of every member of a group, to be averaged again and again.

    Attributes:
      own: float32, what this member brings, and afterwards the average.
    """

    own: np.ndarray

    def contribute(self, weight: float) -> None:
        """Let the others have ``own`` once all have met, which then counts ``weight`` times."""

    def withdraw(self) -> None:
        """Bring nothing to any average that follows."""

    def finish(self, meet: Callable[[], None], *, takes: bool = True) -> float:
        """Average what all have brought, once all have met. All get the same bits.

        Args:
          meet: returns once every member has called it.
          takes: whether this member wants to have the result; else it has withdrawn.

        Returns:
          The sum of the weights.
        """


class ReplicatedAverage:
    """A copy of every member's numbers in memory that all have mapped: each works out the whole average.

    There is room for two copies, which take turns: who is ahead by one average leaves alone what others still read.
    Nobody is ahead by two, since each average begins with a meeting.
    """

    def __init__(self, memory: memoryview, items: int, rank: int, size: int) -> None:
        """Take the memory: the members' weights, float64, twice, and their numbers, twice."""
        self.own = np.zeros(items, np.float32)
        self._rank, self._turn = rank, 0
        weights = memory[: 16 * size].cast("d")
        self._weights = [weights[:size], weights[size:]]
        rows = np.frombuffer(memory, np.float32, offset=whole_pages(16 * size)).reshape(2, size, -1)
        self._brought = [list(turn) for turn in rows[:, :, :items]]

    @staticmethod
    def bytes_for(members: int, items: int) -> int:
        """Return how much memory it takes."""
        return whole_pages(16 * members) + 2 * members * whole_pages(4 * items)

    def contribute(self, weight: float) -> None:
        """See ``SharedAverage``."""
        self._brought[self._turn][self._rank][:] = self.own
        self._weights[self._turn][self._rank] = weight

    def withdraw(self) -> None:
        """See ``SharedAverage``."""
        self._weights[self._turn][self._rank] = 0.0

    def finish(self, meet: Callable[[], None], *, takes: bool = True) -> float:
        """See ``SharedAverage``; nobody needs to meet again."""
        weights, brought = list(self._weights[self._turn]), self._brought[self._turn]
        self._turn = 1 - self._turn
        if not takes:
            self.withdraw()
        total = sum(weights)
        if takes and total:
            # What counts for nothing may be left from earlier, and is not looked at: it may be NaN.
            shares = [weight / total for weight in weights if weight]
            _average(self.own, [mine for mine, weight in zip(brought, weights, strict=True) if weight], shares)
        elif takes:
            self.own.fill(0.0)
        return total


class _Partition(NamedTuple):
    """Numbers of which a member averages a part.

    Attributes:
      mean: where its part of the average comes to lie.
      brought: the same part of what each member brings; where the mean takes the place of its own, that comes first.
      copied: what it takes from others, or from what all have worked out: where to, and from where.
    """

    mean: np.ndarray
    brought: list[np.ndarray]
    copied: list[tuple[np.ndarray, np.ndarray]]


class PartitionedAverage:
    """The numbers of every member in memory that all have mapped: each works out a part of the average.

    With more than ``_IN_PLACE`` members their average lies there, too: then nobody reads a member's numbers any more
    once all have met behind working it out, and the next one begins with a meeting, before which all have taken this.
    """

    def __init__(self, memory: memoryview, items: int, rank: int, size: int) -> None:
        """Take the memory: the members' weights, float64, their numbers, the average; each from a new page on."""
        self._rank = rank
        self._in_place = size <= _IN_PLACE
        self._weights = memory[: 8 * size].cast("d")
        rows = np.frombuffer(memory, np.float32, offset=whole_pages(8 * size)).reshape(_rows(size), -1)[:, :items]
        self.own = rows[rank]
        self._pieces = [
            _piece(rows[:, start : start + _PIECE], rank, size, in_place=self._in_place)
            for start in range(0, items, _PIECE)
        ]

    @staticmethod
    def bytes_for(members: int, items: int) -> int:
        """Return how much memory it takes."""
        return whole_pages(8 * members) + _rows(members) * whole_pages(4 * items)

    def contribute(self, weight: float) -> None:
        """See ``SharedAverage``."""
        self._weights[self._rank] = weight

    def withdraw(self) -> None:
        """See ``SharedAverage``."""
        self.contribute(0.0)
        self.own.fill(0.0)

    def finish(self, meet: Callable[[], None], *, takes: bool = True) -> float:
        """See ``SharedAverage``."""
        weights = list(self._weights)
        total = sum(weights)
        shares = [weight / total for weight in weights] if total else weights
        if self._in_place:
            shares = _own_first(shares, self._rank)
        for piece in self._pieces:
            _average(piece.mean, piece.brought, shares)
            meet()
            for mine, mean in piece.copied if takes else ():
                mine[:] = mean
        if self._in_place:
            meet()  # nobody still reads what is written next
            if not takes:
                self.own.fill(0.0)  # nothing again, not even times its weight of zero: the average may be NaN
        return total


def _own_first(of_members: list[_T], rank: int) -> list[_T]:
    return [of_members[rank], *of_members[:rank], *of_members[rank + 1 :]]


def _rows(members: int) -> int:
    return members if members <= _IN_PLACE else members + 1


def _piece(rows: np.ndarray, rank: int, size: int, *, in_place: bool) -> _Partition:
    """Lay out a piece in its part of all rows: of the members, then of the average where that lies apart."""
    edges = [rows.shape[1] * place // size for place in range(size + 1)]
    parts = list(map(slice, edges, edges[1:]))
    own = rows[rank]
    brought = [row[parts[rank]] for row in rows[:size]]
    if in_place:
        copied = [(own[part], rows[place, part]) for place, part in enumerate(parts) if place != rank]
        return _Partition(own[parts[rank]], _own_first(brought, rank), copied)
    mean = rows[size]
    return _Partition(mean[parts[rank]], brought, [(own, mean)])


def _average(mean: np.ndarray, brought: list[np.ndarray], shares: list[float]) -> None:
    """Average what members have brought; ``mean`` may be the first of it."""
    first, *others = brought
    if min(shares) == max(shares):  # then one multiplication will do
        for theirs in others:
            np.add(first, theirs, out=mean)
            first = mean
        np.multiply(first, shares[0], out=mean)
        return
    np.multiply(first, shares[0], out=mean)
    for theirs, share in zip(others, shares[1:], strict=True):
        np.add(mean, theirs * share, out=mean)


def shared_memory(comm: MPI.Comm, size: int) -> memoryview | None:
    """Return so many zero bytes; None where the members have no memory in common. All call it."""
    offered = offer_memory(size) if comm.rank == 0 else None
    try:
        name: MemoryName | None = comm.bcast(None if offered is None else offered.name)
        if offered is not None:
            memory: memoryview | None = offered.view
        else:
            memory = None if name is None else find_memory(name, size)
        everyone = comm.allreduce(memory is not None, MPI.LAND)
    finally:
        if offered is not None:
            offered.withdraw()
    return memory if everyone else None


def shared_average(comm: MPI.Comm, items: int) -> SharedAverage | None:
    """Return what the members of a communicator average by; None where they have no memory in common. All call it."""
    kind = ReplicatedAverage if items <= _SMALL else PartitionedAverage
    memory = shared_memory(comm, kind.bytes_for(comm.size, items))
    return None if memory is None else kind(memory, items, comm.rank, comm.size)


ROOM = 4096
"""Bytes that a member can bring."""


class SharedSum:
    """Room for what every member brings, twice: who is ahead by one sum leaves alone what others still read.

    Nobody is ahead by two, since between bringing and adding up all must have met.
    """

    def __init__(self, memory: memoryview, rank: int, size: int) -> None:
        """Take zeros, as many as ``bytes_for`` says."""
        rows = np.frombuffer(memory, np.uint8).reshape(2, size, ROOM)
        self._own = list(rows[:, rank])
        self._brought = {dtype: list(rows.view(dtype)) for dtype in map(np.dtype, (np.float32, np.float64))}
        self._turn = 0

    @staticmethod
    def bytes_for(members: int) -> int:
        """Return how much memory it takes."""
        return 2 * members * ROOM

    @staticmethod
    def has_room(items: int, dtype: np.dtype) -> bool:
        """Whether so many numbers can be brought."""
        return items * dtype.itemsize <= ROOM

    def contribute(self, array: np.ndarray) -> None:
        """Let the others have float32 or float64 numbers once all have met."""
        self._own[self._turn][: array.nbytes] = array.reshape(-1).view(np.uint8)

    def withdraw(self) -> None:
        """Bring zeros."""
        self._own[self._turn].fill(0)

    def reduce_sum(self, array: np.ndarray) -> None:
        """Replace numbers, as many and of the kind that all have brought, by their sums, once all have met.

        All get the same bits.
        """
        brought = self._brought[array.dtype][self._turn]
        array[...] = np.add.reduce(brought[:, : array.size]).reshape(array.shape)
        self._turn = 1 - self._turn


def shared_sum(comm: MPI.Comm) -> SharedSum | None:
    """Return what the members of a communicator add up by; None where they have no memory in common. All call it."""
    memory = shared_memory(comm, SharedSum.bytes_for(comm.size)) if comm.size > 1 else None
    return None if memory is None else SharedSum(memory, comm.rank, comm.size)
