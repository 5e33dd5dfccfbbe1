"""One run as the page reads it: an open connection to its records, and what has been read of them so far."""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from arena.common.errors import ConfigError
from arena.page.league import LeagueReader
from arena.page.series.cache import CurveCache
from arena.page.series.curves import Curves
from arena.records.readers.run import (
    FIRST_TO_ADD_ONLY,
    Attempt,
    open_records,
    read_concerns,
    read_evaluations,
    read_players,
)
from arena.records.run_directory import RunDirectory

SHOWN_FAULTS = 500
"""Number of faults that are sent: the newest ones."""


class Source:
    """Reads one run directory; all calls come from one thread.

    Attributes:
      run: the run directory.
      curves: its curves, as far as they have been read.
      players_stamp: number of the current result of ``players``.
      leagues: the reader of its league.
    """

    def __init__(self, run: RunDirectory) -> None:
        """Prepare to read; nothing is opened yet."""
        self.run = run
        self.curves = Curves()
        self.leagues = LeagueReader()
        self._cache = CurveCache(run.database)
        self._open = contextlib.ExitStack()
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, ...] = ()
        self._players: dict[str, dict[str, Any]] = {}
        self._players_version: tuple[int, int] | None = None
        self.players_stamp = 0

    @contextlib.contextmanager
    def records(self) -> Iterator[sqlite3.Connection]:
        """Give the open connection to the records, without a transaction.

        A file that was replaced is opened again.

        Raises:
          ConfigError: there are none, or they cannot be read; the message is for the page.
        """
        try:
            identity = self._identity()
            if self._connection is None or identity != self._file:
                self.close()
                if not self._file:
                    self._cache.load(self.curves)
                self.leagues = LeagueReader()
                self._connection = self._open.enter_context(open_records(self.run.database))
                self._connection.execute("SELECT count(*) FROM runs").fetchone()  # detects a damaged file
                self._file = identity
            yield self._connection
        except (OSError, sqlite3.Error) as error:
            self.close()
            raise ConfigError(f"{self.run.database.name}: expected the records of a run, found: {error}") from error
        except ConfigError as error:
            self.close()
            raise ConfigError(str(error).replace(str(self.run.database), self.run.database.name)) from error

    def _identity(self) -> tuple[int, ...]:
        """Return numbers that change when the open connection no longer shows the file."""
        if not self.run.database.is_file():
            raise ConfigError(f"{self.run.database.name}: expected the records of a run, found no such file")
        stat = self.run.database.stat()
        with open(self.run.database, "rb") as file:
            file.seek(60)  # of the version in the header of an SQLite file: a resume upgrades it
            version = int.from_bytes(file.read(4), "big")
        changed = stat.st_mtime_ns if version < FIRST_TO_ADD_ONLY else 0  # those are read from a copy
        return (stat.st_dev, stat.st_ino, version, changed)

    def close(self) -> None:
        """Close the records; keep what has been read of them."""
        self._cache.save(self.curves)
        self._connection = None
        with contextlib.suppress(ConfigError, sqlite3.Error):
            self._open.close()

    def read_next(self) -> bool:
        """Read the next rows of the curves; return whether there are more.

        Raises:
          ConfigError: the records cannot be read.
        """
        with self.records() as connection:
            has_more = self.curves.update(connection)
        if not has_more:
            self._cache.save(self.curves)
        return has_more

    def players(self) -> dict[str, dict[str, Any]]:
        """Return the players in the order of the configuration.

        Raises:
          ConfigError: the records cannot be read.
        """
        with self.records() as connection:
            query = "SELECT (SELECT count(*) FROM players), (SELECT count(*) FROM runs)"
            version = connection.execute(query).fetchone()  # an attempt writes its players when it begins
            if version != self._players_version:
                self._players = {name: info._asdict() for name, info in read_players(connection).items()}
                self._players_version = version
                self.players_stamp += 1
        return self._players

    def attempts(self) -> list[Attempt]:
        """Return the attempts of the run in order.

        Raises:
          ConfigError: the records cannot be read.
        """
        query = "SELECT attempt, started, ended, host, ranks, checkpoint, exit FROM runs ORDER BY attempt"
        with self.records() as connection:
            return [Attempt(*row) for row in connection.execute(query).fetchall()]

    def concerns(self) -> list[dict[str, str]]:
        """Return the signs that players do not learn which hold in the newest attempt: ``player`` and ``text`` of each.

        Raises:
          ConfigError: the records cannot be read.
        """
        with self.records() as connection:
            return [{"player": player, "text": text} for player, text in read_concerns(connection)]

    def faults(self, limit: int = SHOWN_FAULTS) -> list[dict[str, Any]]:
        """Return the newest faults, the oldest of them first.

        Raises:
          ConfigError: the records cannot be read.
        """
        columns = ("attempt", "time", "rank", "host", "role", "what")
        query = f"SELECT {', '.join(columns)} FROM faults ORDER BY rowid DESC LIMIT ?"
        with self.records() as connection:
            rows = connection.execute(query, (limit,)).fetchall()
        return [dict(zip(columns, row, strict=True)) for row in reversed(rows)]

    def league(self) -> dict[str, Any] | None:
        """Return the league, or the pairs of a table of matches; None if no two players have met.

        Raises:
          ConfigError: the records cannot be read.
        """
        with self.records() as connection:
            return self.leagues.read(connection, self.curves.pairs)

    def evaluations(self) -> dict[str, dict[str, Any]]:
        """Return the evaluations of each player while it trained, as columns.

        Raises:
          ConfigError: the records cannot be read.
        """
        with self.records() as connection:
            return {player: series._asdict() for player, series in read_evaluations(connection).items()}


def name_of(path: Path) -> str:
    """Return the name of a run for the page: the last part of its path."""
    return path.name or path.resolve().name
