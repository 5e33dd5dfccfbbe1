"""Where the time of each rank goes, as the page shows it: wrong shares would send a user to the wrong bottleneck."""

import sqlite3
import time
from itertools import pairwise

import pytest

from arena.common.waiting import Waiter
from arena.records.database import Database
from arena.records.writers.rank_rows import MAX_SAMPLES, RankRow, RankRows
from arena.root.rank_activity import shares_of_time
from arena.system.measurements import measure

BEFORE = {"seconds": 0.0, "processor": 0.0, "waiting": 0.0, "environment": 0.0, "learning": 0.0}


@pytest.mark.parametrize(
    ("role", "measured", "shares"),
    [
        ("environment", {"waiting": 7.0}, {"environment": 0.3, "waiting": 0.7}),
        ("worker", {"waiting": 2.0, "learning": 5.0}, {"policy": 0.3, "learning": 0.5, "waiting": 0.2}),
        ("runner", {"environment": 6.0, "waiting": 1.0}, {"environment": 0.6, "policy": 0.3, "waiting": 0.1}),
        ("learner", {"waiting": 4.0, "learning": 5.0}, {"learning": 0.6, "waiting": 0.4}),
        ("gateway", {"processor": 2.5}, {"policy": 0.25, "waiting": 0.75}),
        ("root", {"processor": 30.0}, {"other": 1.0}),
        ("worker", {"waiting": 10.5, "learning": 1.0}, {"waiting": 1.0}),
    ],
)
def test_time_that_is_neither_waiting_nor_measured_belongs_to_the_role(role, measured, shares):
    found = shares_of_time(role, BEFORE | {"seconds": 10.0} | measured, BEFORE)
    assert {kind: round(share, 6) for kind, share in found.items() if share} == shares


def test_waits_of_every_length_are_counted_also_while_they_last():
    seen = []
    waiter = Waiter(spin=0.01, yielding=0.01, max_sleep=0.001, warn_after=60, abort_after=60, on_warn=print)

    def wait(seconds):
        until = time.perf_counter() + seconds
        waiter.until(lambda: seen.append(waiter.activity.waiting) or time.perf_counter() > until, lambda: "the clock")

    for seconds in (0.005, 0.015, 0.2):
        wait(seconds)
    assert waiter.activity.waiting == pytest.approx(0.22, rel=0.3)
    assert any(0.1 < seconds < 0.2 for seconds in seen), "during the last one"
    with waiter.activity.counted_as_learning():
        wait(0.1)
    assert waiter.activity.learning < 0.05
    assert measure(waiter.activity, waiter.current_wait)["waiting"] == waiter.activity.waiting


def test_a_run_of_weeks_keeps_a_bounded_number_of_evenly_spaced_measurements(tmp_path):
    database = Database(tmp_path / "arena.sqlite")
    rows, now = RankRows(database, 1), 0.0
    for _ in range(2 * MAX_SAMPLES):
        now += rows.interval
        rows.add(now, [RankRow(1, "node1", "worker", 0, 0, "blue", 0.0, 0.5, 0.5, 0.0, 0.0, 200.0, None, None)])
        database.flush(force=True)
    database.close()
    with sqlite3.connect(tmp_path / "arena.sqlite") as connection:
        times = [at for (at,) in connection.execute("SELECT time FROM ranks WHERE attempt = 1 ORDER BY sample")]
    assert MAX_SAMPLES // 2 <= len(times) < MAX_SAMPLES
    assert len({round(b - a) for a, b in pairwise(times)}) == 1
