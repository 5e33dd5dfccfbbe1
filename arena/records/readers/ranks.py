"""Reader of what the ranks did."""

import sqlite3

from arena.plan.idle_cores import BusyRank


def read_busy_ranks(connection: sqlite3.Connection) -> list[BusyRank]:
    """Return the activity of each rank in the newest attempt, in rank order; empty if it was too short to measure.

    Measurements count by their intervals. A rank that has had several roles counts in its last one.
    """
    query = (
        "SELECT sample, time, rank, role, match, seat, player, 1 - waiting FROM ranks "
        "WHERE attempt = (SELECT max(attempt) FROM runs) ORDER BY sample"
    )
    latest: dict[int, tuple] = {}
    sums: dict[tuple, tuple[float, float]] = {}
    times: dict[int, float] = {}
    for sample, time, rank, *place, busy in connection.execute(query).fetchall():
        seconds = max(time - times.get(sample - 1, time - 1.0), 0.0)
        times[sample] = time
        key = latest[rank] = (rank, *place)
        total, whole = sums.get(key, (0.0, 0.0))
        sums[key] = total + busy * seconds, whole + seconds
    return [BusyRank._make((*key, sums[key][0] / max(sums[key][1], 1e-9))) for _, key in sorted(latest.items())]
