"""Reader of a run's records: each player's episodes and metrics, along the attempts that led to the final state."""

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from arena.common.errors import ConfigError
from arena.records.database import MIGRATIONS, SCHEMA_VERSION, migrate, version_of
from arena.records.player_statistics import PlayerInfo
from arena.records.run_directory import RunDirectory

NO_FAULT = "(episodes.cause IS NULL OR episodes.cause NOT LIKE 'fault%')"


FIRST_TO_ADD_ONLY = 5
"""Earliest version since which migrations only create tables: a reader creates them for itself, without a copy."""


class Series(NamedTuple):
    """One player's values in the order of its steps; all arrays are ``[N]``.

    Attributes:
      steps: the player's transition steps at that time.
      times: Unix time.
      values: returns (mean over the player's entities in an episode), or a metric.
    """

    steps: np.ndarray
    times: np.ndarray
    values: np.ndarray


@contextmanager
def open_records(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the records of a run, which may be running, for reading.

    Raises:
      ConfigError: there are none, or they cannot be read.
    """
    if not path.is_file():
        raise ConfigError(f"{path}: expected the records of a run, found no such file")
    try:
        with (
            closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=5)) as connection,
            closing(sqlite3.connect(":memory:")) as copy,
        ):
            version = version_of(connection)
            if version in range(FIRST_TO_ADD_ONLY, SCHEMA_VERSION):
                for number in range(version, SCHEMA_VERSION):
                    connection.executescript(MIGRATIONS[number].replace("CREATE TABLE", "CREATE TEMPORARY TABLE"))
                yield connection
            elif version in MIGRATIONS:
                # A reader does not change the file: an earlier version is upgraded in memory.
                connection.backup(copy)
                migrate(copy, path)
                yield copy
            else:
                migrate(connection, path)  # refuses an unknown version, and changes nothing in the current one
                yield connection
    except sqlite3.DatabaseError as error:
        raise ConfigError(f"{path}: expected the records of a run, found: {error}") from error


class Attempt(NamedTuple):
    """One start of a run: the first one, or a resume.

    Attributes:
      number: from 1.
      started, ended: Unix times; ``ended`` is None while it runs, or if it was killed.
      host: machine of the root.
      ranks: number of ranks.
      checkpoint: number of the checkpoint that it continued from; None for a fresh start.
      exit_code: exit code of the root; None while it runs, or if it was killed.
    """

    number: int
    started: float
    ended: float | None
    host: str
    ranks: int
    checkpoint: int | None
    exit_code: int | None


def read_attempts(path: Path) -> list[Attempt]:
    """Return the attempts of a run in order; empty before the first.

    Raises:
      ConfigError: the records cannot be read.
    """
    if not path.is_file():
        return []
    with open_records(path) as connection:
        query = "SELECT attempt, started, ended, host, ranks, checkpoint, exit FROM runs ORDER BY attempt"
        try:
            return [Attempt(*row) for row in connection.execute(query)]
        except sqlite3.DatabaseError as error:
            raise ConfigError(f"{path}: expected the records of a run, found: {error}") from error


def read_last_attempt(path: Path) -> tuple[int, int | None]:
    """Return (number, exit code) of a run's last attempt; (0, None) before the first, and no code while it runs.

    Raises:
      ConfigError: the records cannot be read.
    """
    attempts = read_attempts(path)
    return (attempts[-1].number, attempts[-1].exit_code) if attempts else (0, None)


def part_of_rank(run: RunDirectory, rank: int) -> str:
    """Return a short description of a rank's role in the last round; an empty string if unknown."""
    from arena.plan.assignment import Assignment, describe_part  # slow to import, and rarely needed

    try:
        with open_records(run.database) as connection:
            number = connection.execute("SELECT round FROM rounds ORDER BY attempt DESC, round DESC LIMIT 1").fetchone()
        played = json.loads(run.plan.read_text("utf-8"))["rounds"][number[0] if number else 0]
        return describe_part(Assignment(**played["assignments"][rank]))
    except (ConfigError, OSError, ValueError, LookupError, TypeError, sqlite3.Error):
        return "root" if rank == 0 else ""


def read_concerns(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    """Return the signs that players do not learn which hold in the newest attempt: player and text of each."""
    newest = "SELECT max(attempt) FROM runs"
    query = f"SELECT player, text FROM concerns WHERE ended IS NULL AND attempt = ({newest}) ORDER BY time"
    return connection.execute(query).fetchall()


def read_players(connection: sqlite3.Connection) -> dict[str, PlayerInfo]:
    """Return the players in the order of the configuration."""
    rows = connection.execute('SELECT player, "use", color, learns, budget FROM players ORDER BY rowid')
    return {player: PlayerInfo(use, color, bool(learns), budget) for player, use, color, learns, budget in rows}


def read_returns(connection: sqlite3.Connection) -> dict[str, Series]:
    """Return the returns of each player's episodes, without those cut by a fault."""
    rows = connection.execute(
        "SELECT player, '', attempt, steps, ended_at, avg(return) "
        f"FROM episode_entities JOIN episodes ON episodes.id = episode WHERE {NO_FAULT} "
        "GROUP BY episode, player ORDER BY episode"
    )
    return {player: series for (player, _), series in _series(connection, rows).items()}


def read_metrics(connection: sqlite3.Connection) -> dict[str, dict[str, Series]]:
    """Return each player's metrics by name."""
    rows = connection.execute("SELECT player, name, attempt, steps, time, value FROM metrics ORDER BY rowid")
    by_player: dict[str, dict[str, Series]] = {}
    for (player, name), series in _series(connection, rows).items():
        by_player.setdefault(player, {})[name] = series
    return by_player


class EvaluationSeries(NamedTuple):
    """One player's evaluations in the order of its steps; all arrays are ``[N]``.

    Attributes:
      steps: transition steps that the weights have learned from.
      times: Unix time.
      episodes: number of episodes.
      mean, deviation, least, greatest: of their returns.
      seconds: duration.
    """

    steps: np.ndarray
    times: np.ndarray
    episodes: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray
    least: np.ndarray
    greatest: np.ndarray
    seconds: np.ndarray


def read_evaluations(connection: sqlite3.Connection) -> dict[str, EvaluationSeries]:
    """Return the evaluations of each player while it trained, without those superseded by a resumed run."""
    skipped = superseded_steps(connection)
    names = "steps, time, episodes, mean, deviation, least, greatest, seconds"
    rows: dict[str, list[tuple]] = {}
    for attempt, player, *values in connection.execute(
        f"SELECT attempt, player, {names} FROM evaluations ORDER BY steps"
    ):
        if values[0] <= skipped.get((attempt, player), values[0]):
            rows.setdefault(player, []).append(tuple(values))
    return {player: EvaluationSeries(*np.array(values, np.float64).T) for player, values in rows.items()}


def _series(connection: sqlite3.Connection, rows: Iterable[tuple]) -> dict[tuple[str, str], Series]:
    """Collect rows (player, name, attempt, steps, time, value), without those superseded by a resumed run."""
    left_behind = superseded_steps(connection)
    columns: dict[tuple[str, str], tuple[list, list, list]] = {}
    for player, name, attempt, steps, at, value in rows:
        if value is None or steps > left_behind.get((attempt, player), steps):
            continue
        lists = columns.setdefault((player, name), ([], [], []))
        for column, item in zip(lists, (steps, at, value), strict=True):
            column.append(item)
    series_of = {key: Series(*(np.array(column, np.float64) for column in lists)) for key, lists in columns.items()}
    # Reports of several matches or workers are not in the order of steps.
    orders = {key: np.argsort(series.steps, kind="stable") for key, series in series_of.items()}
    return {key: Series(*(column[orders[key]] for column in series)) for key, series in series_of.items()}


def superseded_steps(connection: sqlite3.Connection) -> dict[tuple[int, str], int]:
    """Return (attempt, player) -> the steps from which the run continued.

    Rows after these steps were replayed by the resumed run and are ignored.
    """
    limits: dict[tuple[int, str], int] = {}
    for attempt, resumed in connection.execute("SELECT attempt, resumed FROM runs WHERE resumed IS NOT NULL"):
        for player, steps in json.loads(resumed).items():
            for earlier in range(1, attempt):
                limits[earlier, player] = min(limits.get((earlier, player), steps), steps)
    return limits


def stored_outcome(stored: str | None) -> str | float | None:
    """Return a stored outcome as the environment reported it: a word, or a rank."""
    try:
        return float(stored) if stored is not None else None
    except ValueError:
        return stored
