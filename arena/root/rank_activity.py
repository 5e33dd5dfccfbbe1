"""Activity of all ranks: how each has spent its time since the last measurement, at intervals, for the records."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from arena.plan.assignment import Assignment, Plan
from arena.records.writers.rank_rows import RankRow, RankRows
from arena.system.stack_dump import StackCollector

REPLY_WITHIN = 1.0
"""Seconds between a request and the reading of the replies: the root waits for none."""

OWN_KIND = {"environment": "environment", "worker": "policy", "runner": "policy", "learner": "learning"}
"""Role -> kind of the time that is neither waiting nor measured. Other roles wait in ways of their own (an event loop):
their busy time is their processor time."""


def shares_of_time(role: str, now: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, float]:
    """Return the shares of the time between two measurements: environment, policy, learning, other, and waiting."""
    seconds = max(now["seconds"] - before["seconds"], 1e-9)
    shares = dict.fromkeys(("environment", "policy", "learning", "other", "waiting"), 0.0)
    if role not in OWN_KIND:
        busy = min((now["processor"] - before["processor"]) / seconds, 1.0)
        shares["policy" if role in ("gateway", "evaluator") else "other"] = busy
        shares["waiting"] = 1.0 - busy
        return shares
    left = 1.0
    for kind in ("waiting", "learning", "environment"):
        shares[kind] = min(max((now[kind] - before[kind]) / seconds, 0.0), left)
        left -= shares[kind]
    shares[OWN_KIND[role]] += left
    return shares


class RankActivity:
    """Measures all ranks at the intervals of ``RankRows``."""

    def __init__(self, collector: StackCollector, rows: RankRows, own: Callable[[], dict[str, Any]]) -> None:
        """Start.

        Args:
          collector: requests the measurements of the other ranks.
          rows: the records.
          own: returns those of the root.
        """
        self._collector, self._rows, self._own = collector, rows, own
        self._plan: Plan | None = None
        self._hosts: Sequence[str] = ()
        self._origins: Sequence[int] = ()
        self._before: dict[int, dict[str, Any]] = {}
        self._steps: dict[int, int] = {}  # environment steps of each match since the last measurement
        self._began, self._next_request, self._replies_at = 0.0, 0.0, 0.0

    def begin_round(self, plan: Plan, hosts: Sequence[str], origins: Sequence[int]) -> None:
        """Begin a round, in which ranks have other roles; ``origins`` are the numbers of the ranks at the start."""
        self._plan, self._hosts, self._origins = plan, hosts, list(origins)
        self._before, self._steps, self._began, self._next_request = {}, {}, 0.0, 0.0

    def end(self) -> None:
        """End the measurements: the other ranks have ended."""
        self._plan = None

    def count(self, match: int, steps: int) -> None:
        """Count environment steps of a match."""
        self._steps[match] = self._steps.get(match, 0) + steps

    def update(self, now: float) -> None:
        """Request measurements when they are due, and record the replies; ``now`` is on the monotonic clock."""
        if self._plan is None:
            return
        if self._replies_at and now >= self._replies_at:
            self._replies_at = 0.0
            self._record({0: self._own(), **self._collector.received_activity()})
        elif not self._replies_at and now >= self._next_request:
            # At first at short intervals, which grow with the time that has passed: for runs of some seconds.
            self._began = self._began or now
            self._next_request = now + min(self._rows.interval, max(now - self._began, REPLY_WITHIN))
            self._replies_at = now + REPLY_WITHIN
            self._collector.request_activity()

    def _record(self, replies: Mapping[int, dict[str, Any]]) -> None:
        assert self._plan is not None
        rows = []
        for rank, origin in enumerate(self._origins):
            reply = replies.get(origin)
            if reply is None:
                continue
            before, self._before[origin] = self._before.get(origin), reply
            if before is not None:
                rows.append(self._row(self._plan.assignments[rank], reply, before))
        if rows:
            self._steps = {}
            self._rows.add(time.time(), rows)

    def _row(self, me: Assignment, now: Mapping[str, Any], before: Mapping[str, Any]) -> RankRow:
        steps = None
        if me.match is not None and (me.in_worker or me.role in ("environment", "runner", "gateway")):
            steps = self._steps.get(me.match, 0) / max(now["seconds"] - before["seconds"], 1e-9)
        return RankRow(
            me.rank,
            self._hosts[me.rank],
            me.role,
            me.match,
            me.seat,
            me.player,
            **shares_of_time(me.role, now, before),
            megabytes=now["megabytes"],
            steps_per_second=steps,
            waits_for=now["waits_for"] or None,
        )
