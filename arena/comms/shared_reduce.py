"""Averages and sums over a group that shares memory: each member reads the contributions of the others in place."""

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from arena.comms.mpi import MPI
from arena.system.shared_memory import MemoryName, find_memory, offer_memory, whole_pages

_T = TypeVar("_T")

_PIECE = 2**20
"""Numbers that are averaged in one pass: they stay in the caches between being written and read."""

_IN_PLACE = 4
"""Largest number of members that reduce in their own arrays: one more barrier, but fewer copies."""


_SMALL = 2**15
"""Numbers up to which every member averages all of them: that takes less time than a second barrier."""


class SharedAverage(Protocol):
    """One array of every member of a group, to be averaged again and again.

    Attributes:
      own: float32, this member's contribution, and afterwards the average.
    """

    own: np.ndarray

    def contribute(self, weight: float) -> None:
        """Make ``own`` visible to the other members after the next barrier, counted ``weight`` times."""

    def withdraw(self) -> None:
        """Contribute nothing to any average that follows."""

    def finish(self, barrier: Callable[[], None], *, reads_result: bool = True) -> float:
        """Average all contributions, once every member has arrived. All members get the same bits.

        Args:
          barrier: barrier that returns once every member has called it.
          reads_result: whether this member reads the result; False if it has withdrawn.

        Returns:
          The sum of the weights.
        """


class ReplicatedAverage:
    """The average of copies that all members have mapped: each member computes the whole average.

    There are two copies, used alternately: a member one average ahead does not overwrite values that others still read.
    No member is two ahead, since each average begins with a barrier.
    """

    def __init__(self, memory: memoryview, items: int, rank: int, size: int) -> None:
        """Lay out the memory: the members' weights, float64, twice, and their arrays, twice."""
        self.own = np.zeros(items, np.float32)
        self._rank, self._turn = rank, 0
        weights = memory[: 16 * size].cast("d")
        self._weights = [weights[:size], weights[size:]]
        rows = np.frombuffer(memory, np.float32, offset=whole_pages(16 * size)).reshape(2, size, -1)
        self._brought = [list(turn) for turn in rows[:, :, :items]]

    @staticmethod
    def bytes_for(members: int, items: int) -> int:
        """Return the bytes that it takes."""
        return whole_pages(16 * members) + 2 * members * whole_pages(4 * items)

    def contribute(self, weight: float) -> None:
        """See ``SharedAverage``."""
        self._brought[self._turn][self._rank][:] = self.own
        self._weights[self._turn][self._rank] = weight

    def withdraw(self) -> None:
        """See ``SharedAverage``."""
        self._weights[self._turn][self._rank] = 0.0

    def finish(self, barrier: Callable[[], None], *, reads_result: bool = True) -> float:
        """See ``SharedAverage``; no second barrier is needed."""
        weights, contributions = list(self._weights[self._turn]), self._brought[self._turn]
        self._turn = 1 - self._turn
        if not reads_result:
            self.withdraw()
        total = sum(weights)
        if reads_result and total:
            # An array with weight 0 may be left from an earlier average and hold NaN: skip it.
            shares = [weight / total for weight in weights if weight]
            _average(self.own, [part for part, weight in zip(contributions, weights, strict=True) if weight], shares)
        elif reads_result:
            self.own.fill(0.0)
        return total


class _Partition(NamedTuple):
    """The part of the average that one member computes.

    Attributes:
      mean: target of this part of the average.
      contributions: the same part of each member's array; if the mean overwrites its own part, that comes first.
      copied: (target, source) pairs to copy from the other members, or from the common average, afterwards.
    """

    mean: np.ndarray
    contributions: list[np.ndarray]
    copied: list[tuple[np.ndarray, np.ndarray]]


class PartitionedAverage:
    """The average of arrays that all members have mapped: each member computes a part of the average.

    With more than ``_IN_PLACE`` members the average lies there, too. The arrays are then free once all members have
    passed the barrier behind the computation, and the next average begins with a barrier that comes after all have
    copied this one.
    """

    def __init__(self, memory: memoryview, items: int, rank: int, size: int) -> None:
        """Lay out the memory: the members' weights, float64, their arrays, the average; each begins on a new page."""
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
        """Return the bytes that it takes."""
        return whole_pages(8 * members) + _rows(members) * whole_pages(4 * items)

    def contribute(self, weight: float) -> None:
        """See ``SharedAverage``."""
        self._weights[self._rank] = weight

    def withdraw(self) -> None:
        """See ``SharedAverage``."""
        self.contribute(0.0)
        self.own.fill(0.0)

    def finish(self, barrier: Callable[[], None], *, reads_result: bool = True) -> float:
        """See ``SharedAverage``."""
        weights = list(self._weights)
        total = sum(weights)
        shares = [weight / total for weight in weights] if total else weights
        if self._in_place:
            shares = _own_first(shares, self._rank)
        for piece in self._pieces:
            _average(piece.mean, piece.contributions, shares)
            barrier()
            for contribution, mean in piece.copied if reads_result else ():
                contribution[:] = mean
        if self._in_place:
            barrier()  # no member still reads what is written next
            if not reads_result:
                self.own.fill(0.0)  # multiplying by the weight of zero would not do: the average may be NaN
        return total


def _own_first(of_members: list[_T], rank: int) -> list[_T]:
    return [of_members[rank], *of_members[:rank], *of_members[rank + 1 :]]


def _rows(members: int) -> int:
    return members if members <= _IN_PLACE else members + 1


def _piece(rows: np.ndarray, rank: int, size: int, *, in_place: bool) -> _Partition:
    """Lay out one member's part of all rows: of the members, then of the average if it is stored apart."""
    edges = [rows.shape[1] * place // size for place in range(size + 1)]
    parts = list(map(slice, edges, edges[1:]))
    own = rows[rank]
    contributions = [row[parts[rank]] for row in rows[:size]]
    if in_place:
        copied = [(own[part], rows[place, part]) for place, part in enumerate(parts) if place != rank]
        return _Partition(own[parts[rank]], _own_first(contributions, rank), copied)
    mean = rows[size]
    return _Partition(mean[parts[rank]], contributions, [(own, mean)])


def _average(mean: np.ndarray, contributions: list[np.ndarray], shares: list[float]) -> None:
    """Average contributions; ``mean`` may be the first of them."""
    first, *others = contributions
    if min(shares) == max(shares):  # one multiplication suffices
        for theirs in others:
            np.add(first, theirs, out=mean)
            first = mean
        np.multiply(first, shares[0], out=mean)
        return
    np.multiply(first, shares[0], out=mean)
    for theirs, share in zip(others, shares[1:], strict=True):
        np.add(mean, theirs * share, out=mean)


def shared_memory(comm: MPI.Comm, size: int) -> memoryview | None:
    """Return this many zero bytes of shared memory; None if the members share none. All members call it."""
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
    """Return the shared average of a communicator; None if the members share no memory. All members call it."""
    kind = ReplicatedAverage if items <= _SMALL else PartitionedAverage
    memory = shared_memory(comm, kind.bytes_for(comm.size, items))
    return None if memory is None else kind(memory, items, comm.rank, comm.size)


ROOM = 4096
"""Bytes that one member can contribute."""


class SharedSum:
    """The sum of small arrays of all members, with two buffers used alternately.

    A member one sum ahead does not overwrite values that others still read; none is two ahead, since a barrier
    separates contribution and reduction.
    """

    def __init__(self, memory: memoryview, rank: int, size: int) -> None:
        """Lay out zeroed memory of at least ``bytes_for`` bytes."""
        rows = np.frombuffer(memory, np.uint8).reshape(2, size, ROOM)
        self._own = list(rows[:, rank])
        self._brought = {dtype: list(rows.view(dtype)) for dtype in map(np.dtype, (np.float32, np.float64))}
        self._turn = 0

    @staticmethod
    def bytes_for(members: int) -> int:
        """Return the bytes that it takes."""
        return 2 * members * ROOM

    @staticmethod
    def has_room(items: int, dtype: np.dtype) -> bool:
        """Return whether this many numbers fit."""
        return items * dtype.itemsize <= ROOM

    def contribute(self, array: np.ndarray) -> None:
        """Make float32 or float64 numbers visible to the other members after the next barrier."""
        self._own[self._turn][: array.nbytes] = array.reshape(-1).view(np.uint8)

    def withdraw(self) -> None:
        """Contribute zeros."""
        self._own[self._turn].fill(0)

    def reduce_sum(self, array: np.ndarray) -> None:
        """Replace an array by the sum of all contributions (of its length and dtype), after the barrier.

        All members get the same bits.
        """
        contributions = self._brought[array.dtype][self._turn]
        array[...] = np.add.reduce(contributions[:, : array.size]).reshape(array.shape)
        self._turn = 1 - self._turn


def shared_sum(comm: MPI.Comm) -> SharedSum | None:
    """Return the shared sum of a communicator; None if the members share no memory. All members call it."""
    memory = shared_memory(comm, SharedSum.bytes_for(comm.size)) if comm.size > 1 else None
    return None if memory is None else SharedSum(memory, comm.rank, comm.size)
