"""Numbers and names formatted for messages."""

import difflib
import math
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any


def compact(value: float) -> str:
    """Return a count in at most five characters: 999, 12.3k, 4.56M."""
    if abs(value) < 1000:
        return f"{value:.0f}"
    for unit in ("k", "M", "G", "T"):
        value /= 1000
        if abs(value) < 999.5 or unit == "T":
            digits = 2 if abs(value) < 9.995 and unit != "k" else 1 if abs(value) < 99.95 else 0
            return f"{value:.{digits}f}{unit}"
    raise AssertionError


def number(value: float) -> str:
    """Return a result with three or four digits, and its sign where it is informative."""
    if not math.isfinite(value):
        return str(value)
    size = abs(value)
    return f"{value:.2f}" if size < 100 else f"{value:.1f}" if size < 10_000 else compact(value)


def duration(seconds: float) -> str:
    """Return a time as m:ss, h:mm:ss or 3 d 4 h."""
    whole = round(seconds)
    if whole >= 2 * 86400:
        return f"{whole // 86400} d {whole % 86400 // 3600} h"
    minutes, hours = whole // 60 % 60, whole // 3600
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def count_of(number: int, noun: str, plural: str | None = None) -> str:
    """Return for example ``1 node`` or ``2,000 nodes``; ``plural`` is the plural unless it is ``noun`` with an s."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def ranges(numbers: Iterable[int], dash: str = "-") -> str:
    """Return for example ``1-5, 7`` for the numbers 1, 2, 3, 4, 5 and 7."""
    runs = []
    for _, run in groupby(enumerate(sorted(numbers)), key=lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        runs.append(str(members[0]) if len(members) == 1 else f"{members[0]}{dash}{members[-1]}")
    return ", ".join(runs)


def percentages(counts: Sequence[float]) -> str:
    """Return for example ``60% / 10% / 30%``, the share of each count in the total; empty if the total is zero."""
    total = sum(counts)
    return " / ".join(f"{count / total:.0%}" for count in counts) if total else ""


def nearest(name: Any, valid: Iterable[str]) -> list[str]:
    """Return the valid name most similar to ``name`` in a list, or an empty list."""
    return difflib.get_close_matches(str(name), list(valid), n=1)


def suggestion(name: Any, valid: Iterable[str]) -> str:
    """Return `` (did you mean 'x'?)`` for the most similar valid name, or an empty string if none is similar."""
    return "".join(f" (did you mean {close!r}?)" for close in nearest(name, valid))


def did_you_mean(name: Any, valid: Sequence[str]) -> str:
    """Return ``did you mean 'x'?`` for the most similar valid name, or all valid names if none is similar."""
    for close in nearest(name, valid):
        return f"did you mean {close!r}?"
    return f"expected one of {', '.join(valid)}" if valid else "expected no keys here"
