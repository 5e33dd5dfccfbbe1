"""The rows of a table that are still to be read: new ones first, and those of a long past spread over all of it."""

from collections.abc import Iterable

CHUNK = 10_000
"""Rows of one reading: some 50 ms, in which the root of the run cannot write."""


class Backlog:
    """Ranges of row numbers, in the order in which they are to be read.

    A range of many rows is read in the order of van der Corput's sequence: after any number of chunks, those that have
    been read are spread evenly, so that a curve soon shows its whole course, and then becomes finer.

    Attributes:
      end: number of the last row that is known.
    """

    def __init__(self, end: int = 0, ranges: Iterable[tuple[int, int]] = ()) -> None:
        """Start after row ``end``, or with the ``ranges`` of a result of ``ranges``."""
        self.end = end
        self._ranges = [(int(first), int(last)) for first, last in reversed(list(ranges))]

    def extend(self, end: int) -> None:
        """Add the rows up to ``end``."""
        if end <= self.end:
            return
        chunks = [(first, min(first + CHUNK, end)) for first in range(self.end, end, CHUNK)]
        self._ranges.extend(reversed([chunks[at] for at in spread(len(chunks))]))
        self.end = end

    def pop(self) -> tuple[int, int] | None:
        """Return the next range: the rows after its first number up to its second one; None if all are read."""
        return self._ranges.pop() if self._ranges else None

    def ranges(self) -> list[tuple[int, int]]:
        """Return what is still to be read, in order."""
        return self._ranges[::-1]

    def rows(self) -> int:
        """Return the number of rows that are still to be read."""
        return sum(last - first for first, last in self._ranges)


def spread(count: int) -> list[int]:
    """Return the numbers below ``count``, ordered by their reversed bits."""
    bits = max(count - 1, 1).bit_length()
    return sorted(range(count), key=lambda number: int(f"{number:0{bits}b}"[::-1], 2))
