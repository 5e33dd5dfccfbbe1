"""Bound of an orderly stop: an environment call that takes minutes does not keep a run from ending."""

import time
from collections.abc import Mapping

from arena.system.stack_dump import StackReport

POLL_EVERY = 1.0
"""Seconds between two queries of the ranks."""

WITHIN = 0.3
"""Seconds that ranks have to reply."""


class StopBound:
    """Finds the ranks that have been in one call of an environment ever since a stop was requested."""

    def __init__(self, seconds: float) -> None:
        """Allow each call ``seconds`` from now on."""
        self._seconds = seconds
        self._since: dict[int, tuple[int, float]] = {}  # rank -> its call, and the time when that was first reported
        self._next = 0.0

    def is_due(self) -> bool:
        """Return whether a query is due; True at most once in ``POLL_EVERY``."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + POLL_EVERY
        return True

    def find_stuck(self, ranks: range, reports: Mapping[int, StackReport]) -> dict[int, str]:
        """Return the ranks that have been in one call for too long, and where.

        Args:
          ranks: all ranks that can reply.
          reports: replies; a rank without one is in a call outside of Python, which counts as one call.
        """
        now, stuck = time.monotonic(), {}
        for rank in ranks:
            report = reports.get(rank)
            call, place = (-1, "") if report is None else (report.call, report.place)
            before, since = self._since.get(rank, (0, now))
            if call == 0 or call != before:
                self._since[rank] = call, now
            elif now - since > self._seconds:
                stuck[rank] = place or " (outside of Python)"
        return stuck
