"""Numbers as people say them."""

from collections.abc import Iterable
from itertools import groupby


def count_of(number: int, what: str, many: str | None = None) -> str:
    """Return for example ``1 node`` or ``2,000 nodes``; ``many`` is the plural where it is not ``what`` and an s."""
    return f"{number:,} {what if number == 1 else many or what + 's'}"


def ranges(numbers: Iterable[int], dash: str = "-") -> str:
    """Return for example ``1-5, 7`` for the numbers 1, 2, 3, 4, 5 and 7."""
    runs = []
    for _, run in groupby(enumerate(sorted(numbers)), key=lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        runs.append(str(members[0]) if len(members) == 1 else f"{members[0]}{dash}{members[-1]}")
    return ", ".join(runs)
