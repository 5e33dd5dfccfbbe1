"""Where the members of a group tell each other what they are about to do, and meet."""

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
    """Where members arrive with numbers, all of them equally many times; each sees the maxima of all numbers."""

    def arrive(self, numbers: Sequence[int] = ()) -> None:
        """Arrive with as many numbers as the rendezvous was made for, or with none only to meet."""

    def all_arrived(self) -> bool:
        """Whether every member has arrived as often as this one."""

    def maxima(self) -> list[int]:
        """Return the maxima of all members' numbers, position by position, until the next ``arrive``."""


class MpiRendezvous:
    """A rendezvous of members anywhere: a reduction without blocking."""

    def __init__(self, comm: MPI.Comm, width: int) -> None:
        """Take a communicator; each member arrives with ``width`` numbers."""
        self._comm = comm
        self._mine, self._theirs = np.empty((2, width), np.int64)
        self._request: MPI.Request = MPI.REQUEST_NULL

    def arrive(self, numbers: Sequence[int] = ()) -> None:
        """Send the numbers."""
        if numbers:
            self._mine[:] = numbers
            self._request = self._comm.Iallreduce(self._mine, self._theirs, MPI.MAX)
        else:
            self._request = self._comm.Ibarrier()

    def all_arrived(self) -> bool:
        """Whether it has come from everyone."""
        return self._request.Test()

    def maxima(self) -> list[int]:
        """Return what the reduction has left."""
        return self._theirs.tolist()


class SharedMemoryRendezvous:
    """A rendezvous in memory that all members have mapped: each writes its numbers, then how often it has arrived.

    Where members share cores, that takes half the time of a reduction, whose messages pass from one to the next.
    """

    def __init__(self, comm: MPI.Comm, memory: memoryview, width: int) -> None:
        """Take zeros: int64 counts of all members, then their numbers, twice."""
        self._size, self._place = comm.size, comm.rank
        self._format = Struct(f"{width}q")
        self._counts = memory[: _WORD * comm.size].cast("q")
        # A member that is ahead of another by one arrival leaves alone what that one still reads.
        middle = (len(memory) + len(self._counts) * _WORD) // 2
        self._numbers = [memory[_WORD * comm.size : middle], memory[middle:]]
        self._mine: tuple[int, ...] = ()
        self._posted = 0

    @staticmethod
    def bytes_for(members: int, width: int) -> int:
        """Return how much memory it takes."""
        return _WORD * members * (1 + 2 * width)

    def arrive(self, numbers: Sequence[int] = ()) -> None:
        """Write the numbers."""
        self._posted += 1
        if numbers:
            self._mine = tuple(numbers)
            self._format.pack_into(self._numbers[self._posted % 2], self._format.size * self._place, *numbers)
        keep_order()
        self._counts[self._place] = self._posted

    def all_arrived(self) -> bool:
        """Whether everyone has written."""
        if min(self._counts) < self._posted:
            return False
        keep_order()
        return True

    def maxima(self) -> list[int]:
        """Read what all have written, as a rule the same."""
        written = self._numbers[self._posted % 2]
        if written == self._format.pack(*self._mine) * self._size:
            return list(self._mine)
        return list(map(max, zip(*self._format.iter_unpack(written), strict=True)))


def make_rendezvous(comm: MPI.Comm, width: int) -> Rendezvous:
    """Return a rendezvous for the members of a communicator, in their memory where they have some. All call it."""
    memory = shared_memory(comm, SharedMemoryRendezvous.bytes_for(comm.size, width)) if comm.size > 1 else None
    return MpiRendezvous(comm, width) if memory is None else SharedMemoryRendezvous(comm, memory, width)
