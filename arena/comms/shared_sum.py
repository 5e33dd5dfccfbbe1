"""Sums of few numbers over a group whose members share memory: each adds up what all have brought."""

import numpy as np

from arena.comms.mpi import MPI
from arena.comms.shared_memory import shared_memory

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

    def bring(self, array: np.ndarray) -> None:
        """Let the others have float32 or float64 numbers once all have met."""
        self._own[self._turn][: array.nbytes] = array.reshape(-1).view(np.uint8)

    def withdraw(self) -> None:
        """Bring zeros."""
        self._own[self._turn].fill(0)

    def add_up(self, array: np.ndarray) -> None:
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
