"""Averages over a group whose members share memory: each reads what the others bring where it lies."""

import mmap
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np

from arena.comms.mpi import MPI

PLACE = Path("/dev/shm")

_PIECE = 2**20
"""Numbers that are averaged at once: they stay in the caches from when they are written until they are read."""

_WHOLE_UP_TO = 100_000
"""Numbers of two members up to which each works out all of them: they lie in the other core's cache, from which they
come slowly, but then without a second exchange. More have been written back to the cache that the cores share."""


class SharedAverage:
    """The numbers of every member of a group, in memory that all of them have mapped.

    Attributes:
      own: float32, what this member brings, and afterwards the average.
    """

    def __init__(self, memory: np.ndarray, items: int, rank: int, size: int) -> None:
        """Take the memory: the members' weights, float64, then their numbers, each from a page of its own on."""
        self._rank, self._size = rank, size
        self._weights = memory[: 8 * size].view(np.float64)
        self._numbers = [part.view(np.float32)[:items] for part in memory[_pages(8 * size) :].reshape(size, -1)]
        self.own = self._numbers[rank]
        self._whole = np.empty_like(self.own) if size == 2 and items <= _WHOLE_UP_TO else None

    def bring(self, weight: float) -> None:
        """Let the others have ``own`` once all have met, which then counts ``weight`` times."""
        self._weights[self._rank] = weight

    def withdraw(self) -> None:
        """Bring nothing to any average that follows."""
        self.bring(0.0)
        self.own.fill(0.0)

    def finish(self, meet: Callable[[], None], *, takes: bool = True) -> float:
        """Average what all have brought. All get the same bits.

        Args:
          meet: returns once every member has called it.
          takes: whether this member wants to have the result.

        Returns:
          The sum of the weights.
        """
        total = float(self._weights.sum())
        shares = (self._weights / total if total else self._weights).tolist()
        if self._whole is None:
            self._each_a_part(shares, meet, takes)
        else:
            self._each_all(self._whole, shares, meet, takes)
        return total

    def _each_a_part(self, shares: list[float], meet: Callable[[], None], takes: bool) -> None:
        """Average a part in place, and copy the others' parts."""
        size, rank = self._size, self._rank
        for start in range(0, self.own.size, _PIECE):
            length = min(_PIECE, self.own.size - start)
            edges = [start + length * place // size for place in range(size + 1)]
            parts = list(map(slice, edges, edges[1:]))
            result = self.own[parts[rank]]
            result *= self._sum(parts[rank], shares, result)
            meet()
            for place in range(size) if takes else ():
                if place != rank:
                    self.own[parts[place]] = self._numbers[place][parts[place]]
        meet()  # nobody still reads what is written next

    def _each_all(self, whole: np.ndarray, shares: list[float], meet: Callable[[], None], takes: bool) -> None:
        """Sum everything up aside, as the other does, and take it once nobody reads what it replaces."""
        scale = self._sum(slice(None), shares, whole)
        meet()
        if takes:
            np.multiply(whole, scale, out=self.own)

    def _sum(self, part: slice, shares: list[float], out: np.ndarray) -> float:
        """Write the sum of what all have brought into ``out``; return what makes it their average."""
        own, share = self.own[part], shares[self._rank]
        others = [place for place in range(self._size) if place != self._rank]
        if min(shares) == max(shares):  # then one multiplication will do
            for place in others:
                own = np.add(own, self._numbers[place][part], out=out)
            return share
        np.multiply(own, share, out=out)
        for place in others:
            out += self._numbers[place][part] * shares[place]
        return 1.0


def shared_average(comm: MPI.Comm, items: int) -> SharedAverage | None:
    """Return what the members of a communicator average by; None where they have no memory in common. All call it."""
    size = _pages(8 * comm.size) + comm.size * _pages(4 * items)
    path = PLACE / f"arena-{secrets.token_hex(8)}"
    memory = _mapped(path, size, make=True) if comm.rank == 0 else None
    try:
        found = comm.bcast(None if memory is None else path)
        if comm.rank != 0 and found is not None:
            memory = _mapped(found, size, make=False)
        everyone = comm.allreduce(memory is not None, MPI.LAND)
    finally:
        if comm.rank == 0:
            path.unlink(missing_ok=True)  # the memory stays until the last of them is gone
    return SharedAverage(memory, items, comm.rank, comm.size) if everyone and memory is not None else None


def _pages(size: int) -> int:
    """Return the bytes of the whole pages that hold so many."""
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE


def _mapped(path: Path, size: int, *, make: bool) -> np.ndarray | None:
    """Return a file as memory; None where that cannot be."""
    with suppress(OSError):
        file = os.open(path, os.O_RDWR | (os.O_CREAT | os.O_EXCL if make else 0), 0o600)
        try:
            if make:
                os.posix_fallocate(file, 0, size)  # where there is not enough, it fails now, and by no signal later
            return np.frombuffer(mmap.mmap(file, size), np.uint8)
        finally:
            os.close(file)
    return None
