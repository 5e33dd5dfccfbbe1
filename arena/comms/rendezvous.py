"""Barriers that also reduce: the members of a group agree on their next collective."""

from collections.abc import Sequence
from struct import Struct
from typing import Protocol

import numpy as np

from arena.comms.mpi import MPI
from arena.comms.shared_reduce import shared_memory
from arena.system.shared_memory import keep_order

_WORD = 8
"""Bytes of an integer."""


class Rendezvous(Protocol):
    """A barrier that also reduces: every member contributes a vector and reads the element-wise maximum."""

    def arrive(self, numbers: Sequence[int] = ()) -> None:
        """Arrive with a vector of the rendezvous's width, or without one as in a plain barrier."""

    def all_arrived(self) -> bool:
        """Return whether every member has arrived as often as this one."""

    def maxima(self) -> list[int]:
        """Return the element-wise maxima over all members, valid until the next ``arrive``."""


class MpiRendezvous:
    """A rendezvous of members on any machines: a non-blocking reduction."""

    def __init__(self, comm: MPI.Comm, width: int) -> None:
        """Create a rendezvous over a communicator; each member arrives with ``width`` integers."""
        self._comm = comm
        self._mine, self._theirs = np.empty((2, width), np.int64)
        self._request: MPI.Request = MPI.REQUEST_NULL

    def arrive(self, numbers: Sequence[int] = ()) -> None:
        """Start the reduction."""
        if numbers:
            self._mine[:] = numbers
            self._request = self._comm.Iallreduce(self._mine, self._theirs, MPI.MAX)
        else:
            self._request = self._comm.Ibarrier()

    def all_arrived(self) -> bool:
        """Return whether the reduction is complete."""
        return self._request.Test()

    def maxima(self) -> list[int]:
        """Return the result of the reduction."""
        return self._theirs.tolist()


class SharedMemoryRendezvous:
    """A rendezvous in memory that all members have mapped: each writes its vector, then its number of arrivals.

    Where members share cores, this takes half the time of a reduction, in which messages pass from one to the next.
    """

    def __init__(self, comm: MPI.Comm, memory: memoryview, width: int) -> None:
        """Lay out zeroed memory: int64 arrival counts of all members, then their vectors, twice."""
        self._size, self._place = comm.size, comm.rank
        self._format = Struct(f"{width}q")
        self._counts = memory[: _WORD * comm.size].cast("q")
        # Two sets of vectors: a member one arrival ahead does not overwrite values that another member still reads.
        middle = (len(memory) + len(self._counts) * _WORD) // 2
        self._numbers = [memory[_WORD * comm.size : middle], memory[middle:]]
        self._mine: tuple[int, ...] = ()
        self._posted = 0

    @staticmethod
    def bytes_for(members: int, width: int) -> int:
        """Return the bytes that it takes."""
        return _WORD * members * (1 + 2 * width)

    def arrive(self, numbers: Sequence[int] = ()) -> None:
        """Write the vector, then the count."""
        self._posted += 1
        if numbers:
            self._mine = tuple(numbers)
            self._format.pack_into(self._numbers[self._posted % 2], self._format.size * self._place, *numbers)
        keep_order()
        self._counts[self._place] = self._posted

    def all_arrived(self) -> bool:
        """Return whether every member has written."""
        if min(self._counts) < self._posted:
            return False
        keep_order()
        return True

    def maxima(self) -> list[int]:
        """Read the vectors of all members, which are equal as a rule."""
        written = self._numbers[self._posted % 2]
        if written == self._format.pack(*self._mine) * self._size:
            return list(self._mine)
        return list(map(max, zip(*self._format.iter_unpack(written), strict=True)))


def make_rendezvous(comm: MPI.Comm, width: int) -> Rendezvous:
    """Return a rendezvous for a communicator, in shared memory if the members have some. All members call it."""
    memory = shared_memory(comm, SharedMemoryRendezvous.bytes_for(comm.size, width)) if comm.size > 1 else None
    return MpiRendezvous(comm, width) if memory is None else SharedMemoryRendezvous(comm, memory, width)
