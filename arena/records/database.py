"""The SQLite file of a run: its tables, and writes that are batched, retried and never fatal."""

import contextlib
import logging
import sqlite3
import time
from collections import deque
from pathlib import Path

from arena.common.errors import ConfigError

logger = logging.getLogger(__name__)

SCHEMA_VERSION = 10

SCHEMA = """
CREATE TABLE runs (                      -- one row for each attempt: the first start, and every resume
    attempt INTEGER PRIMARY KEY, name TEXT NOT NULL, started REAL NOT NULL, ended REAL, host TEXT NOT NULL,
    version TEXT NOT NULL, ranks INTEGER NOT NULL, checkpoint INTEGER, resumed TEXT, exit INTEGER);
CREATE TABLE players (player TEXT PRIMARY KEY, "use" TEXT NOT NULL, color TEXT NOT NULL, learns INTEGER NOT NULL,
    budget INTEGER);
CREATE TABLE rounds (attempt INTEGER NOT NULL, round INTEGER NOT NULL, started REAL NOT NULL, ended REAL, copies TEXT,
    PRIMARY KEY (attempt, round));
CREATE TABLE episodes (id INTEGER PRIMARY KEY, attempt INTEGER NOT NULL, round INTEGER NOT NULL, match INTEGER NOT NULL,
    copy INTEGER NOT NULL, ended_at REAL NOT NULL, length INTEGER NOT NULL, seconds REAL NOT NULL,
    truncated INTEGER NOT NULL, cause TEXT,
    job INTEGER,                         -- of the league, where it was played for one
    counted INTEGER NOT NULL);           -- in the league's payoff; removed for an attempt that was cut short
CREATE TABLE episode_entities (episode INTEGER NOT NULL, entity INTEGER NOT NULL, player TEXT NOT NULL,
    return REAL, length INTEGER NOT NULL, outcome TEXT, steps INTEGER NOT NULL,
    metrics TEXT,                        -- what the environment measured: JSON, numbers by name
    PRIMARY KEY (episode, entity)) WITHOUT ROWID;
CREATE TABLE metrics (attempt INTEGER NOT NULL, player TEXT NOT NULL, steps INTEGER NOT NULL, updates INTEGER NOT NULL,
    time REAL NOT NULL, name TEXT NOT NULL, value REAL,
    call INTEGER,                        -- of group.log with this name, by a policy that runs itself
    workers INTEGER NOT NULL DEFAULT 1); -- that made this call; value is the mean over them
CREATE UNIQUE INDEX calls ON metrics (attempt, player, name, call) WHERE call IS NOT NULL;
CREATE TABLE faults (attempt INTEGER NOT NULL, time REAL NOT NULL, rank INTEGER, host TEXT, role TEXT,
    what TEXT NOT NULL);
CREATE TABLE evaluations (               -- of learning players while they train
    attempt INTEGER NOT NULL, player TEXT NOT NULL, steps INTEGER NOT NULL, time REAL NOT NULL,
    episodes INTEGER NOT NULL, mean REAL NOT NULL, deviation REAL NOT NULL, least REAL NOT NULL, greatest REAL NOT NULL,
    seconds REAL NOT NULL,
    snapshot TEXT NOT NULL,              -- the weights file, relative to the run directory; it may be gone
    others TEXT NOT NULL);               -- JSON: other learning player -> steps of its weights
CREATE TABLE jobs (id INTEGER PRIMARY KEY, attempt INTEGER NOT NULL, match INTEGER NOT NULL, started REAL NOT NULL,
    ended REAL, job TEXT NOT NULL, result TEXT);
CREATE TABLE league_players (player TEXT PRIMARY KEY, type TEXT NOT NULL, category TEXT NOT NULL, parent TEXT,
    active INTEGER NOT NULL, steps INTEGER NOT NULL, path TEXT NOT NULL, created REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE payoff (                    -- as home sees it; counts decay
    home TEXT NOT NULL, away TEXT NOT NULL, wins REAL NOT NULL, draws REAL NOT NULL, losses REAL NOT NULL,
    games REAL NOT NULL, home_return REAL, PRIMARY KEY (home, away)) WITHOUT ROWID;
CREATE TABLE game_totals (               -- as home sees them: all games, of the weights that each player has now
    home TEXT NOT NULL, away TEXT NOT NULL, wins REAL NOT NULL, draws REAL NOT NULL, losses REAL NOT NULL,
    games REAL NOT NULL, home_return REAL,
    payoff_games REAL NOT NULL,          -- number of games of one weight, as uncertain as those of the payoff
    PRIMARY KEY (home, away)) WITHOUT ROWID;
CREATE TABLE ratings (                   -- mu and sigma of openskill; the newest row of a player counts
    time REAL NOT NULL, player TEXT NOT NULL, steps INTEGER NOT NULL, games INTEGER NOT NULL, mu REAL NOT NULL,
    sigma REAL NOT NULL, elo REAL NOT NULL);
CREATE TABLE ranks (                     -- activity of each rank in an interval; shares of its time add up to one
    attempt INTEGER NOT NULL, sample INTEGER NOT NULL, time REAL NOT NULL, rank INTEGER NOT NULL, host TEXT NOT NULL,
    role TEXT NOT NULL, match INTEGER, seat INTEGER, player TEXT, environment REAL NOT NULL, policy REAL NOT NULL,
    learning REAL NOT NULL, other REAL NOT NULL, waiting REAL NOT NULL, megabytes REAL NOT NULL,
    steps_per_second REAL, waits_for TEXT);
CREATE TABLE resets (                    -- of league players to their first weights, by mutation or order of the league
    attempt INTEGER NOT NULL, time REAL NOT NULL, player TEXT NOT NULL, steps INTEGER NOT NULL);
CREATE TABLE rollbacks (                 -- of league players that had got worse, to a snapshot of their own
    attempt INTEGER NOT NULL, time REAL NOT NULL, player TEXT NOT NULL, steps INTEGER NOT NULL, snapshot TEXT NOT NULL);
CREATE TABLE concerns (                  -- signs that a player does not learn; ended is NULL while they hold
    attempt INTEGER NOT NULL, time REAL NOT NULL, player TEXT NOT NULL, kind TEXT NOT NULL, text TEXT NOT NULL,
    ended REAL);
"""

MIGRATIONS = {
    2: "".join(
        f"ALTER TABLE {table} RENAME COLUMN life TO attempt; "
        for table in ("runs", "rounds", "episodes", "metrics", "faults", "jobs")
    ),
    3: "ALTER TABLE metrics ADD COLUMN call INTEGER; "
    "ALTER TABLE metrics ADD COLUMN workers INTEGER NOT NULL DEFAULT 1; "
    "CREATE UNIQUE INDEX calls ON metrics (attempt, player, name, call) WHERE call IS NOT NULL;",
    4: "ALTER TABLE episode_entities ADD COLUMN metrics TEXT;",
    5: "CREATE TABLE evaluations (attempt INTEGER NOT NULL, player TEXT NOT NULL, steps INTEGER NOT NULL, "
    "time REAL NOT NULL, episodes INTEGER NOT NULL, mean REAL NOT NULL, deviation REAL NOT NULL, least REAL NOT NULL, "
    "greatest REAL NOT NULL, seconds REAL NOT NULL, snapshot TEXT NOT NULL);",
    6: "CREATE TABLE ranks (attempt INTEGER NOT NULL, sample INTEGER NOT NULL, time REAL NOT NULL, "
    "rank INTEGER NOT NULL, host TEXT NOT NULL, role TEXT NOT NULL, match INTEGER, seat INTEGER, player TEXT, "
    "environment REAL NOT NULL, policy REAL NOT NULL, learning REAL NOT NULL, other REAL NOT NULL, "
    "waiting REAL NOT NULL, megabytes REAL NOT NULL, steps_per_second REAL, waits_for TEXT); "
    "CREATE TABLE resets (attempt INTEGER NOT NULL, time REAL NOT NULL, player TEXT NOT NULL, "
    "steps INTEGER NOT NULL);",
    7: "CREATE TABLE rollbacks (attempt INTEGER NOT NULL, time REAL NOT NULL, player TEXT NOT NULL, "
    "steps INTEGER NOT NULL, snapshot TEXT NOT NULL); "
    "CREATE TABLE concerns (attempt INTEGER NOT NULL, time REAL NOT NULL, player TEXT NOT NULL, kind TEXT NOT NULL, "
    "text TEXT NOT NULL, ended REAL);",
    8: "CREATE TABLE game_totals (home TEXT NOT NULL, away TEXT NOT NULL, wins REAL NOT NULL, draws REAL NOT NULL, "
    "losses REAL NOT NULL, games REAL NOT NULL, home_return REAL, payoff_games REAL NOT NULL, "
    "PRIMARY KEY (home, away)) WITHOUT ROWID;",
    9: "ALTER TABLE evaluations ADD COLUMN others TEXT NOT NULL DEFAULT '{}';",
}
"""Version of records -> statements that upgrade it to the next version."""

FLUSH_EVERY = 1.0
"""Seconds between two transactions: each one waits for the disk."""

RETRY_EVERY = 5.0
"""Seconds until a failed transaction is tried again."""

WARN_EVERY = 60.0
"""Seconds between two warnings about the same problem."""

LOCK_TIMEOUT = 0.25
"""Seconds that a transaction waits for a reader: the root has other work."""

OPEN_TIMEOUT = 5.0
"""Seconds that opening waits for a reader."""

MAX_WAITING = 200_000
"""Rows kept in memory (some 60 MB) while the disk is full; beyond them the oldest are dropped."""


def version_of(connection: sqlite3.Connection) -> int:
    """Return the version of the records in a file, 0 for an empty one."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Upgrade records of an earlier version to the current one; those of the current one stay unchanged.

    Raises:
      ConfigError: their version is unknown; the message names ``path``.
    """
    version = stored = version_of(connection)
    while version in MIGRATIONS:
        connection.executescript(f"BEGIN IMMEDIATE; {MIGRATIONS[version]} PRAGMA user_version = {version + 1}; COMMIT;")
        version += 1
    if version != SCHEMA_VERSION:
        raise ConfigError(
            f"{path}: expected records of version {SCHEMA_VERSION}, found version {stored}; use the arena that made "
            "them, or start a run under another name (--set name=...)"
        )


class Database:
    """Buffered writes to the database file; only the root process has one.

    The journal mode TRUNCATE and plain locks work on file systems that several machines share, where WAL does not.

    Attributes:
      path: path of the file.
      aside: path to which a damaged file was moved; None if it was whole.
    """

    def __init__(self, path: Path) -> None:
        """Open the file, or create it.

        A damaged file is moved aside: records of the past are no reason not to train.

        Raises:
          ConfigError: another version of the arena made the file, or it cannot be opened.
        """
        self.path = path
        self._waiting: deque[tuple[str, tuple]] = deque()
        self._next_flush = 0.0
        self._next_warning = 0.0
        self._dropped = 0
        self.aside: Path | None = None
        try:
            self._connection: sqlite3.Connection | None = self._open(OPEN_TIMEOUT)
            self._check(self._connection)
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):  # locked or no space: the file is not at fault
                raise ConfigError(f"{path}: expected to open the records, found: {error}; is it in use?") from error
            aside = path.with_name(f"{path.stem}.damaged-{time.time_ns()}{path.suffix}")
            path.rename(aside)
            self.aside = aside
            logger.warning("the records %s are damaged (%s): moved to %s, new records are started", path, error, aside)
            self._connection = self._open(OPEN_TIMEOUT)

    def _open(self, timeout: float) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=timeout, isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode = TRUNCATE")
            if version_of(connection) == 0:
                connection.executescript(f"BEGIN IMMEDIATE; {SCHEMA} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;")
            else:
                migrate(connection, self.path)
                connection.execute("SELECT count(*) FROM runs").fetchone()  # detects a damaged file
            connection.execute(f"PRAGMA busy_timeout = {int(1000 * LOCK_TIMEOUT)}")
        except BaseException:
            connection.close()
            raise
        return connection

    @staticmethod
    def _check(connection: sqlite3.Connection) -> None:
        """Check every page: a truncated or torn one would reject all rows later on.

        Raises:
          DatabaseError: the file is damaged.
        """
        (message,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if message != "ok":
            connection.close()
            raise sqlite3.DatabaseError(message)

    def highest(self, column: str, table: str) -> int:
        """Return the greatest value of an integer column, 0 if there is none."""
        assert self._connection is not None
        return self._connection.execute(f"SELECT coalesce(max({column}), 0) FROM {table}").fetchone()[0]

    def rows(self, query: str, values: tuple = ()) -> list[tuple]:
        """Return the rows of a query, without those that are still queued."""
        assert self._connection is not None
        return self._connection.execute(query, values).fetchall()

    def add(self, sql: str, row: tuple) -> None:
        """Queue a statement with its values for the next transaction."""
        if len(self._waiting) >= MAX_WAITING:
            self._waiting.popleft()
            self._dropped += 1
        self._waiting.append((sql, row))

    def flush(self, force: bool = False) -> bool:
        """Write the queue in one transaction, at most every ``FLUSH_EVERY`` seconds unless forced.

        Returns:
          Whether the queue is empty. Rows that could not be written are kept and tried again later.
        """
        now = time.monotonic()
        if not force and now < self._next_flush:
            return not self._waiting
        self._next_flush = now + FLUSH_EVERY
        if not self._waiting:
            return True
        try:
            self._write()
        except sqlite3.Error as error:
            self._next_flush = now + RETRY_EVERY
            self._warn(error)
            return False
        self._waiting.clear()
        if self._dropped:
            logger.warning("the records %s can be written again; %d rows were lost", self.path, self._dropped)
            self._dropped = 0
        return True

    def close(self, patience: float = 5.0) -> bool:
        """Write the queue, trying for ``patience`` seconds, and close the file; return whether all was written."""
        end = time.monotonic() + patience
        while not (written := self.flush(force=True)) and time.monotonic() < end:
            time.sleep(0.1)
        if not written:
            logger.warning("%d rows of the records %s could not be written", len(self._waiting), self.path)
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("PRAGMA journal_mode = DELETE")  # leaves no empty journal behind
            self._connection.close()
            self._connection = None
        return written

    def _write(self) -> None:
        if self._connection is None:
            self._connection = self._open(LOCK_TIMEOUT)
        by_statement: dict[str, list[tuple]] = {}
        for sql, row in self._waiting:
            by_statement.setdefault(sql, []).append(row)
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            for sql, rows in by_statement.items():
                self._connection.executemany(sql, rows)
            self._connection.execute("COMMIT")
        except sqlite3.Error:
            # Closing rolls back, even if the failure has left the connection unusable.
            self._connection.close()
            self._connection = None
            raise

    def _warn(self, error: sqlite3.Error) -> None:
        if time.monotonic() >= self._next_warning:
            self._next_warning = time.monotonic() + WARN_EVERY
            state = f"{len(self._waiting)} rows wait" + (f", {self._dropped} were dropped" if self._dropped else "")
            logger.warning("the records %s cannot be written, training continues (%s): %s", self.path, state, error)
