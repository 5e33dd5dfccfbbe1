"""Sending a run's curves to a tracker, once or while the run goes on; the position is kept in the run directory."""

import fcntl
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from arena.common.errors import ConfigError, GivenUpError
from arena.common.files import write_text
from arena.config.yaml_source import read
from arena.records.lease import holder_of
from arena.records.readers.run import open_records, read_last_attempt, read_players
from arena.records.run_directory import RunDirectory
from arena.report.run_groups import leaves
from arena.trackers.clients import Client, Description, connect
from arena.trackers.points import Point, Points

Tracker = Literal["wandb", "mlflow", "trackio"]

POLL_EVERY = 2.0
"""Seconds between two looks at the records."""

FREE_WITHIN = 60.0
"""Seconds that the process of a killed run has to end, until the one of the resumed run gives up."""

SWEEP = "sweep.yaml"
"""File that the directory of a sweep has."""

BATCH = 500
"""Points that are sent before the position is stored."""


class Tracked:
    """A run in a tracker.

    ``trackers/<tracker>.json`` in the run directory holds its identity there and the position in the records.

    Attributes:
      sent: number of points that this object has sent.
    """

    def __init__(self, run: RunDirectory, tracker: Tracker) -> None:
        """Read the position; the tracker is contacted when there is something to send."""
        self._run, self._tracker = run, tracker
        self._path = run.trackers / f"{tracker}.json"
        stored: dict[str, Any] = json.loads(self._path.read_text("utf-8")) if self._path.is_file() else {}
        self._id: str | None = stored.get("id")
        self._number: int = stored.get("points", 0)
        self._points = Points(run, stored.get("position"))
        self._client: Client | None = None
        self.sent = 0

    def send_new(self) -> None:
        """Send what is new in the records.

        Raises:
          ConfigError: the records cannot be read, or the library is not installed.
        """
        batch: list[Point] = []
        start = json.dumps(self._points.state)
        for points in self._points.read():
            if self._client is None:
                self._client = connect(self._tracker, describe(self._run), self._id)
                self._id = self._client.id
                self._store(json.loads(start))  # so that the run is known there whatever happens next
            batch += points
            if len(batch) >= BATCH:
                self._send(self._client, batch)
                batch = []
        if batch and self._client is not None:
            self._send(self._client, batch)

    def _send(self, client: Client, batch: list[Point]) -> None:
        try:
            client.send(batch, self._number)
        except Exception as error:  # each library has errors of its own
            text = f"{self._tracker} did not take {len(batch)} points: {_text(error)}"
            raise GivenUpError(f"{self._run}: {text}") from error
        self._number += len(batch)
        self.sent += len(batch)
        self._store(self._points.state)

    def _store(self, position: dict[str, Any]) -> None:
        write_text(self._path, json.dumps({"id": self._id, "points": self._number, "position": position}) + "\n")

    def close(self) -> None:
        """Wait until the tracker has everything.

        Raises:
          GivenUpError: it did not take everything.
        """
        if self._client is not None:
            try:
                self._client.close()
            except Exception as error:  # each library has errors of its own
                raise GivenUpError(f"{self._run}: {self._tracker} did not end the run: {_text(error)}") from error


def _text(error: Exception) -> str:
    """Return an error of a library in one line."""
    return " ".join(str(error).split()) or type(error).__name__


def describe(run: RunDirectory) -> Description:
    """Return what a tracker shows of a run besides its curves.

    Raises:
      ConfigError: the configuration or the records cannot be read.
    """
    with open_records(run.database) as connection:
        players = list(read_players(connection))
    parent = run.path.resolve().parent
    group = parent.name if (parent / SWEEP).is_file() else None
    return Description(run.name, group, run.path, dict(leaves(read(run.config).data)), players)


def track(run: RunDirectory, tracker: Tracker, *, follow: bool = False) -> int:
    """Send the curves of a run to a tracker; return the number of points that were sent.

    Args:
      run: the run directory.
      tracker: name of the tracker.
      follow: whether to continue until the run, or its current attempt, has ended.

    Raises:
      ConfigError: the records cannot be read, the library is not installed, or another process sends this run.
      GivenUpError: points could not be sent; the next call sends them.
    """
    try:
        run.trackers.mkdir(exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{run.trackers}: expected a directory that can be written: {error.strerror}") from error
    with _alone(run.trackers / f"{tracker}.lock", f"{run}: another process sends it to {tracker} already"):
        tracked = Tracked(run, tracker)
        try:
            attempt = read_last_attempt(run.database)
            # A resumed run has a process of its own; an attempt that has ended has an exit code.
            while follow and attempt == read_last_attempt(run.database) and holder_of(run.path) is not None:
                tracked.send_new()
                time.sleep(POLL_EVERY)
            tracked.send_new()
        finally:
            tracked.close()
    return tracked.sent


@contextmanager
def _alone(path: Path, message: str) -> Iterator[None]:
    """Hold a lock during the block, so that no point is sent twice.

    Raises:
      ConfigError: another process holds it.
    """
    with open(path, "w", encoding="utf-8") as file:
        until = time.monotonic() + FREE_WITHIN
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise ConfigError(message) from None
                time.sleep(0.2)
        yield
