"""The ranks of a run as the page draws them: where they are, how they spend their time, and what they wait for."""

import json
import sqlite3
from typing import Any

import numpy as np

from arena.records.run_directory import RunDirectory

KINDS = ("environment", "policy", "learning", "other", "waiting")
"""Kinds of time, in the order of ``arena.records.writers.rank_rows.RankRow``."""

LAG = ("lag/mean", "lag/greatest", "wait/learner", "wait/workers", "versions_per_second")
"""Metrics of players with learners apart."""

MAX_REPORT = 200_000
"""Characters of a hang report that are sent."""

RECENT = 20_000
"""Newest metrics among which those of ``LAG`` are searched."""


def read_machine(connection: sqlite3.Connection, run: RunDirectory) -> dict[str, Any]:
    """Return the ranks of the newest attempt as JSON values.

    Returns:
      ``ranks``: a row for each rank with its process id, as measured last, with ``mean``, the shares of its whole
        time; in a run that is too short for a measurement, its place in the plan only. ``history``: a series of mean
        shares and of the sums of memory and speed for each role and player. ``lag``: the newest lag of each player with
        learners apart. ``hang``: the hang report, if there is one.
    """
    (attempt,) = connection.execute("SELECT coalesce(max(attempt), 0) FROM runs").fetchone()
    (sample,) = connection.execute("SELECT max(sample) FROM ranks WHERE attempt = ?", (attempt,)).fetchone()
    return {
        "ranks": _with_processes(run, _planned(run) if sample is None else _measured(connection, attempt, sample)),
        "is_measured": sample is not None,
        "history": _history(connection, attempt),
        "lag": _lag(connection, attempt),
        "hang": _hang_report(run),
    }


def _measured(connection: sqlite3.Connection, attempt: int, sample: int) -> list[dict[str, Any]]:
    place, cost = ("time", "rank", "host", "role", "match", "seat", "player"), ("megabytes", "steps_per_second")
    names = (*place, *KINDS, *cost, "waits_for")
    query = f"SELECT {', '.join(names)} FROM ranks WHERE attempt = ? AND sample = ? ORDER BY rank"
    ranks = [dict(zip(names, row, strict=True)) for row in connection.execute(query, (attempt, sample)).fetchall()]
    means = ", ".join(f"avg({kind})" for kind in KINDS)
    query = f"SELECT rank, role, match, seat, {means} FROM ranks WHERE attempt = ? GROUP BY rank, role, match, seat"
    found = {tuple(row[:4]): row[4:] for row in connection.execute(query, (attempt,)).fetchall()}
    for rank in ranks:
        rank["mean"] = found[rank["rank"], rank["role"], rank["match"], rank["seat"]]
        rank["now"] = [rank.pop(kind) for kind in KINDS]
    return ranks


def _with_processes(run: RunDirectory, ranks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add the process id of each rank, None where it is not known."""
    try:
        processes = {each["rank"]: each.get("process") for each in json.loads(run.ranks.read_text("utf-8"))}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        processes = {}
    return [{**rank, "process": processes.get(rank["rank"])} for rank in ranks]


def _planned(run: RunDirectory) -> list[dict[str, Any]]:
    """Return the places of the ranks in the plan of the first round; none if it cannot be read."""
    try:
        plan = json.loads(run.plan.read_text("utf-8"))
        return [
            {name: each.get(name) for name in ("rank", "role", "match", "seat", "player")}
            | {"host": plan["hosts"][each["rank"]]}
            for each in plan["rounds"][0]["assignments"]
        ]
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return []


def _history(connection: sqlite3.Connection, attempt: int) -> list[dict[str, Any]]:
    query = (
        f"SELECT role, coalesce(player, ''), time, {', '.join(f'avg({kind})' for kind in KINDS)}, sum(megabytes), "
        "sum(steps_per_second) FROM ranks WHERE attempt = ? GROUP BY role, player, sample ORDER BY role, player, sample"
    )
    series: dict[tuple[str, str], list[tuple[float, ...]]] = {}
    for role, player, *values in connection.execute(query, (attempt,)).fetchall():
        series.setdefault((role, player), []).append(tuple(np.nan if value is None else value for value in values))
    history = []
    for (role, player), rows in series.items():
        table = np.array(rows, np.float64).T
        columns = dict(zip(("time", *KINDS, "megabytes", "speed"), table, strict=True))
        history.append({"role": role, "player": player or None, **columns})
    return history


def _lag(connection: sqlite3.Connection, attempt: int) -> list[dict[str, Any]]:
    query = (
        f"SELECT player, name, value FROM metrics WHERE rowid > (SELECT max(rowid) FROM metrics) - {RECENT} AND "
        f"attempt = ? AND name IN ({', '.join('?' * len(LAG))}) ORDER BY rowid"
    )
    newest: dict[str, dict[str, Any]] = {}
    for player, name, value in connection.execute(query, (attempt, *LAG)).fetchall():
        newest.setdefault(player, {"player": player})[name] = value
    return list(newest.values())


def _hang_report(run: RunDirectory) -> str | None:
    try:
        with open(run.hang_report, encoding="utf-8", errors="replace") as file:
            return file.read(MAX_REPORT)
    except OSError:
        return None
