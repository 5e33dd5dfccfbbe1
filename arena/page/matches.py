"""The matches of a run as the page draws them: their seats, ranks, speed, episodes and jobs."""

import json
import sqlite3
from collections.abc import Iterable
from typing import Any, NamedTuple

from arena.page.configuration import load_yaml
from arena.records.run_directory import RunDirectory

_COUNT = """
    SELECT round, match, count(*), count(CASE WHEN cause LIKE 'fault%' THEN 1 END), sum(length), min(ended_at),
        max(ended_at)
    FROM episodes WHERE id > ? AND id <= ? GROUP BY round, match
"""


class Count(NamedTuple):
    """Episodes of one match in one round.

    Attributes:
      episodes: number of episodes.
      faults: number of those that a fault has ended.
      steps: environment steps of all.
      first, last: Unix times of the first and the last end of an episode.
    """

    episodes: int
    faults: int
    steps: int
    first: float
    last: float


class MatchCounts:
    """Counts the episodes of each match, range by range of their ids, in any order."""

    def __init__(self, counts: Iterable[tuple[int, int, list]] = ()) -> None:
        """Start empty, or with a result of ``state``."""
        self._counts = {(int(number), int(match)): Count(*count) for number, match, count in counts}

    def add(self, connection: sqlite3.Connection, rows: tuple[int, int]) -> None:
        """Count the episodes after the first id up to the second one."""
        for number, match, *values in connection.execute(_COUNT, rows).fetchall():
            new, old = Count(*values), self._counts.get((number, match))
            if old is not None:
                new = Count(
                    old.episodes + new.episodes,
                    old.faults + new.faults,
                    old.steps + new.steps,
                    min(old.first, new.first),
                    max(old.last, new.last),
                )
            self._counts[number, match] = new

    def of(self, number: int, match: int) -> Count | None:
        """Return the count of a match in a round; None without episodes."""
        return self._counts.get((number, match))

    def state(self) -> list[tuple[int, int, Count]]:
        """Return the state as JSON values."""
        return [(*key, count) for key, count in self._counts.items()]


def read_matches(connection: sqlite3.Connection, run: RunDirectory, counts: MatchCounts) -> dict[str, Any]:
    """Return the matches of the current round as JSON values, ``matches`` and ``round``; none without a plan."""
    (attempt,) = connection.execute("SELECT coalesce(max(attempt), 0) FROM runs").fetchone()
    query = "SELECT coalesce(max(round), 0) FROM rounds WHERE attempt = ?"
    (number,) = connection.execute(query, (attempt,)).fetchone()
    try:
        plan = json.loads(run.plan.read_text("utf-8"))
        planned = plan["rounds"][number]
        matches = [_match(match, planned["assignments"], plan["hosts"]) for match in planned["matches"]]
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return {"round": number, "matches": []}
    speeds = _speeds(connection, attempt)
    jobs = _running_jobs(connection, attempt)
    environments = _environments(run)
    for match in matches:
        count = counts.of(number, match["match"])
        match["environment"] = environments.get(match.pop("row"), environments.get(-1))
        match["job"] = jobs.get(match["match"])
        match["speed"] = speeds.get(match["match"])
        if count is not None:
            match |= {"episodes": count.episodes, "faults": count.faults, "length": count.steps / count.episodes}
            match["ended_at"] = count.last
            if match["speed"] is None and count.last > count.first:
                match["speed"] = count.steps / (count.last - count.first)
    return {"round": number, "matches": matches}


def _match(match: dict[str, Any], assignments: list[dict[str, Any]], hosts: list[str]) -> dict[str, Any]:
    own = [each for each in assignments if each["match"] == match["index"]]
    return {
        "match": match["index"],
        "row": match["row"],
        "replica": match["replica"],
        "seats": [{"player": seat["player"], "entities": len(seat["entities"])} for seat in match["seats"]],
        "ranks": [each["rank"] for each in own],
        "hosts": sorted({hosts[each["rank"]] for each in own}),
        "episodes": 0,
        "faults": 0,
    }


def _environments(run: RunDirectory) -> dict[int, str]:
    """Return the environment of each row of the table, as "name x copies"; -1 is that of the file."""
    try:
        config = load_yaml(run.config)
        base = config.get("env") or {}
        rows = config.get("matches") or []
        found = {at: base | (row.get("env") or {}) for at, row in enumerate(rows)} | {-1: base}
        return {
            at: f"{env['use']} x{env['copies']} in all" if env.get("copies") else f"{env['use']} x{env['num_envs']}"
            for at, env in found.items()
        }
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return {}


def _speeds(connection: sqlite3.Connection, attempt: int) -> dict[int, float]:
    """Return the environment steps per second of each match, as measured last."""
    query = (
        "SELECT match, steps_per_second FROM ranks WHERE attempt = ? AND steps_per_second IS NOT NULL "
        "AND sample = (SELECT max(sample) FROM ranks WHERE attempt = ?)"
    )
    return dict(connection.execute(query, (attempt, attempt)).fetchall())


def _running_jobs(connection: sqlite3.Connection, attempt: int) -> dict[int, dict[str, Any]]:
    """Return the job that each match of a league plays: its id, sides and start."""
    running: dict[int, dict[str, Any]] = {}
    query = "SELECT id, match, started, job FROM jobs WHERE attempt = ? AND ended IS NULL ORDER BY id DESC LIMIT 1000"
    for number, match, started, text in connection.execute(query, (attempt,)).fetchall():
        try:
            sides = [[str(name) for name in side] for side in json.loads(text)["sides"]]
        except (ValueError, LookupError, TypeError):
            continue
        running[match] = {"id": number, "started": started, "sides": sides}  # the oldest one is played first
    return running
