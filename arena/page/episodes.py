"""Episodes of a run as the page draws them: the newest, best, worst and faulty ones, and how they are distributed."""

import json
import sqlite3
from collections import Counter
from typing import Any

import numpy as np

NEWEST = 5_000
"""Newest episodes from which the best and the worst are chosen, and which the histograms show."""

FAULTY_AMONG = 100_000
"""Newest episodes among which faulty ones are searched."""

SHOWN = 50
"""Episodes of one answer."""

BINS = 40
"""Bars of a histogram."""

ORDERS = ("newest", "best", "worst", "faulty")

_LIST = """
    SELECT id, attempt, match, copy, ended_at, episodes.length, seconds, truncated, cause, job, player, return, outcome,
        steps, metrics
    FROM episodes JOIN episode_entities ON id = episode WHERE id IN ({}) ORDER BY id, entity
"""


def read_episodes(connection: sqlite3.Connection, player: str, order: str, before: int | None) -> dict[str, Any]:
    """Return episodes of a player as JSON values.

    Args:
      connection: the open records.
      player: name of the player; empty for those of all players, without a distribution.
      order: one of ``ORDERS``.
      before: id before which the newest episodes are wanted, for more of them.

    Returns:
      ``episodes``, each with the entities of all players; ``newest``, the id of the newest one; and ``distribution`` of
      the player's newest episodes: histograms of return and length, shares of outcomes, and means of what the
      environment measured.

    Raises:
      LookupError: there is no such order.
    """
    if order not in ORDERS:
        raise LookupError(f"order: expected {', '.join(ORDERS)}, found {order!r}")
    (newest,) = connection.execute("SELECT coalesce(max(id), 0) FROM episodes").fetchone()
    recent = _recent(connection, player, newest) if player else {}
    if order == "faulty":
        query = "SELECT id FROM episodes WHERE id > ? AND cause LIKE 'fault%' ORDER BY id DESC LIMIT ?"
        chosen = [number for (number,) in connection.execute(query, (newest - FAULTY_AMONG, SHOWN)).fetchall()]
    elif order == "newest" or not player:
        end = newest + 1 if before is None else before
        chosen = list(range(end - 1, max(end - 1 - SHOWN, 0), -1))
    else:
        sign = -1 if order == "best" else 1
        finite = [number for number in recent if np.isfinite(recent[number][0])]
        chosen = sorted(finite, key=lambda number: (sign * recent[number][0], -number))[:SHOWN]
    found = {episode["id"]: episode for episode in _episodes(connection, chosen)}
    return {
        "newest": newest,
        "episodes": [found[number] for number in chosen if number in found],
        "distribution": _distribution(recent) if recent else None,
    }


def _recent(connection: sqlite3.Connection, player: str, newest: int) -> dict[int, tuple[Any, ...]]:
    """Return the player's newest episodes without faults: id -> (mean return, length, outcome, metrics)."""
    query = (
        "SELECT id, return, episodes.length, outcome, metrics FROM episodes JOIN episode_entities ON id = episode "
        "WHERE id > ? AND player = ? AND (cause IS NULL OR cause NOT LIKE 'fault%')"
    )
    rows: dict[int, list[tuple]] = {}
    for number, *values in connection.execute(query, (newest - NEWEST, player)).fetchall():
        rows.setdefault(number, []).append(tuple(values))
    recent = {}
    for number, entities in rows.items():
        returns = [total for total, *_ in entities if total is not None]
        mean = sum(returns) / len(returns) if returns else float("nan")
        recent[number] = (mean, entities[0][1], entities[0][2], [_metrics(each[3]) for each in entities])
    return recent


def _metrics(text: str | None) -> dict[str, Any]:
    try:
        found = json.loads(text) if text else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _distribution(recent: dict[int, tuple[Any, ...]]) -> dict[str, Any]:
    returns, lengths, outcomes, metrics = zip(*recent.values(), strict=True)
    values: dict[str, list[float]] = {}
    for entities in metrics:
        for entity in entities:
            for name, value in entity.items():
                if isinstance(value, (int, float)):
                    values.setdefault(str(name), []).append(float(value))
    return {
        "episodes": len(recent),
        "return": _histogram(np.array(returns, np.float64)),
        "length": _histogram(np.array(lengths, np.float64)),
        "outcomes": Counter("none" if outcome is None else str(outcome) for outcome in outcomes).most_common(12),
        "metrics": {
            name: {"mean": float(np.mean(each)), **_histogram(np.array(each))} for name, each in sorted(values.items())
        },
    }


def _histogram(values: np.ndarray) -> dict[str, Any]:
    """Return the counts of bars of equal width, and the edges of the first and the last one."""
    values = values[np.isfinite(values)]
    if not len(values):
        return {"counts": [], "low": None, "high": None}
    low, high = float(values.min()), float(values.max())
    bins = min(BINS, max(len(np.unique(values)), 1))
    counts, edges = np.histogram(values, bins, (low, high) if high > low else (low - 0.5, high + 0.5))
    return {"counts": counts.tolist(), "low": float(edges[0]), "high": float(edges[-1])}


def _episodes(connection: sqlite3.Connection, numbers: list[int]) -> list[dict[str, Any]]:
    episodes: dict[int, dict[str, Any]] = {}
    query = _LIST.format(", ".join("?" * len(numbers)))
    names = ("id", "attempt", "match", "copy", "ended_at", "length", "seconds", "truncated", "cause", "job")
    for row in connection.execute(query, numbers).fetchall():
        episode = episodes.setdefault(row[0], dict(zip(names, row[:10], strict=True)) | {"entities": []})
        player, total, outcome, steps, metrics = row[10:]
        episode["entities"].append(
            {"player": player, "return": total, "outcome": outcome, "steps": steps, "metrics": _metrics(metrics)}
        )
    return list(episodes.values())
