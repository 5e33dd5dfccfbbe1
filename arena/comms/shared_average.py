"""Averages over a group whose members share memory: each reads what the others bring where it lies."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from arena.comms.mpi import MPI
from arena.comms.shared_memory import shared_memory, whole_pages

_PIECE = 2**20
"""Numbers that are averaged at once: they stay in the caches from when they are written until they are read."""


class _Piece(NamedTuple):
    """Numbers of which a member averages a part.

    Attributes:
      own: all of them, of this member.
      mean: their average, which all members work out together.
      part: the part of the average that this member works out.
      brought: the same part of what each member brings.
    """

    own: np.ndarray
    mean: np.ndarray
    part: np.ndarray
    brought: list[np.ndarray]


class SharedAverage:
    """The numbers of every member of a group, and their average, in memory that all of them have mapped.

    The average lies apart from what it is of: so nobody reads a member's numbers any more once all have met behind
    working it out, and who is late in taking it loses nothing, since the next one begins with a meeting.

    Attributes:
      own: float32, what this member brings, and afterwards the average.
    """

    def __init__(self, memory: memoryview, items: int, rank: int, size: int) -> None:
        """Take the memory: the members' weights, float64, their numbers and the average, each from a new page on."""
        self._rank = rank
        self._weights = memory[: 8 * size].cast("d")
        *numbers, mean = np.frombuffer(memory, np.float32, offset=whole_pages(8 * size)).reshape(size + 1, -1)[
            :, :items
        ]
        self.own = numbers[rank]
        self._pieces = list(_pieces(numbers, mean, rank))

    @staticmethod
    def bytes_for(members: int, items: int) -> int:
        """Return how much memory it takes."""
        return whole_pages(8 * members) + (members + 1) * whole_pages(4 * items)

    def bring(self, weight: float) -> None:
        """Let the others have ``own`` once all have met, which then counts ``weight`` times."""
        self._weights[self._rank] = weight

    def withdraw(self) -> None:
        """Bring nothing to any average that follows."""
        self.bring(0.0)
        self.own.fill(0.0)  # not even times its weight of zero: what is not finite would stay so

    def finish(self, meet: Callable[[], None], *, takes: bool = True) -> float:
        """Average what all have brought. All get the same bits.

        Args:
          meet: returns once every member has called it.
          takes: whether this member wants to have the result.

        Returns:
          The sum of the weights.
        """
        weights = list(self._weights)
        total = sum(weights)
        shares = [weight / total for weight in weights] if total else weights
        for piece in self._pieces:
            _average(piece, shares)
            meet()
            if takes:
                piece.own[:] = piece.mean
        return total


def _pieces(numbers: list[np.ndarray], mean: np.ndarray, rank: int) -> Iterator[_Piece]:
    size = len(numbers)
    for start in range(0, mean.size, _PIECE):
        piece = slice(start, start + _PIECE)
        length = mean[piece].size
        part = slice(start + length * rank // size, start + length * (rank + 1) // size)
        yield _Piece(numbers[rank][piece], mean[piece], mean[part], [each[part] for each in numbers])


def _average(piece: _Piece, shares: list[float]) -> None:
    """Average the member's part."""
    part, (first, *others) = piece.part, piece.brought
    if min(shares) == max(shares):  # then one multiplication will do
        for i, theirs in enumerate(others):
            np.add(part if i else first, theirs, out=part)
        np.multiply(part, shares[0], out=part)
        return
    np.multiply(first, shares[0], out=part)
    for theirs, share in zip(others, shares[1:], strict=True):
        np.add(part, theirs * share, out=part)


def shared_average(comm: MPI.Comm, items: int) -> SharedAverage | None:
    """Return what the members of a communicator average by; None where they have no memory in common. All call it."""
    memory = shared_memory(comm, SharedAverage.bytes_for(comm.size, items))
    return None if memory is None else SharedAverage(memory, items, comm.rank, comm.size)
