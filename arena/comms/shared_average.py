"""Averages over a group whose members share memory: each reads what the others bring where it lies."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from arena.comms.mpi import MPI
from arena.comms.shared_memory import shared_memory, whole_pages

_PIECE = 2**20
"""Numbers that are averaged at once: they stay in the caches from when they are written until they are read."""


class _Piece(NamedTuple):
    """Numbers of which a member averages a part, and takes the rest from the others, who average theirs.

    Attributes:
      part: its part of what it brings, and then of the average.
      others: the same part of what the others bring, each with its place.
      taken: its other parts, each with the place in memory where another member averages it.
    """

    part: np.ndarray
    others: list[tuple[int, np.ndarray]]
    taken: list[tuple[np.ndarray, np.ndarray]]


class SharedAverage:
    """The numbers of every member of a group, in memory that all of them have mapped.

    Attributes:
      own: float32, what this member brings, and afterwards the average.
    """

    def __init__(self, memory: memoryview, items: int, rank: int, size: int) -> None:
        """Take the memory: the members' weights, float64, then their numbers, each from a page of its own on."""
        self._rank = rank
        self._weights = memory[: 8 * size].cast("d")
        parts = np.frombuffer(memory, np.float32, offset=whole_pages(8 * size)).reshape(size, -1)
        numbers = [part[:items] for part in parts]
        self.own = numbers[rank]
        self._pieces = [_piece(numbers, rank, start, min(_PIECE, items - start)) for start in range(0, items, _PIECE)]

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
        weights = list(self._weights)
        total = sum(weights)
        shares = [weight / total for weight in weights] if total else weights
        for piece in self._pieces:
            _average(piece, shares[self._rank], shares)
            meet()
            for mine, theirs in piece.taken if takes else ():
                mine[:] = theirs
        meet()  # nobody still reads what is written next
        for piece in () if takes else self._pieces:
            piece.part.fill(0.0)  # nothing again, not even times its weight of zero: the average may be NaN
        return total


def _piece(numbers: list[np.ndarray], rank: int, start: int, length: int) -> _Piece:
    size = len(numbers)
    edges = [start + length * place // size for place in range(size + 1)]
    parts = list(map(slice, edges, edges[1:]))
    others = [place for place in range(size) if place != rank]
    return _Piece(
        numbers[rank][parts[rank]],
        [(place, numbers[place][parts[rank]]) for place in others],
        [(numbers[rank][parts[place]], numbers[place][parts[place]]) for place in others],
    )


def _average(piece: _Piece, own_share: float, shares: list[float]) -> None:
    """Average the member's part in place."""
    part = piece.part
    if min(shares) == max(shares):  # then one multiplication will do
        for _, theirs in piece.others:
            np.add(part, theirs, out=part)
        np.multiply(part, own_share, out=part)
        return
    np.multiply(part, own_share, out=part)
    for place, theirs in piece.others:
        np.add(part, theirs * shares[place], out=part)


def shared_average(comm: MPI.Comm, items: int) -> SharedAverage | None:
    """Return what the members of a communicator average by; None where they have no memory in common. All call it."""
    memory = shared_memory(comm, whole_pages(8 * comm.size) + comm.size * whole_pages(4 * items))
    return None if memory is None else SharedAverage(memory, items, comm.rank, comm.size)
