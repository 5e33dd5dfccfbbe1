"""TensorBoard event files, one directory per player, written without torch."""

import importlib
import logging
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

FLUSH_EVERY = 5.0
"""Seconds between two flushes: each one waits for the disk."""

WARN_EVERY = 60.0
"""Seconds between two warnings about the same problem."""


def _tensorboard(module: str) -> Any:
    """Import a module of tensorboardX, which imports torch if that is installed, without torch.

    Torch serves it for tensors only, takes seconds to load, and must stay out of the root process.
    """
    if "torch" in sys.modules:
        return importlib.import_module(f"tensorboardX.{module}")
    sys.modules["torch"] = None  # type: ignore[assignment]  # makes `import torch` raise ImportError
    try:
        return importlib.import_module(f"tensorboardX.{module}")
    finally:
        del sys.modules["torch"]


class EventFiles:
    """Scalars of players in TensorBoard's format. Disk failures cause warnings and are never raised."""

    def __init__(self, directory: Path, attempt: int) -> None:
        """Write below ``directory/<player>/``.

        Args:
          directory: the run's ``tensorboard`` directory.
          attempt: number of this attempt of the run, so that its files have names of their own.
        """
        self._events = _tensorboard("event_file_writer")
        self._event = _tensorboard("proto.event_pb2")
        self._summary = _tensorboard("proto.summary_pb2")
        self._directory = directory
        self._attempt = attempt
        self._resumed_steps: Mapping[str, int] = {}
        self._writers: dict[str, Any] = {}
        self._dirty: set[str] = set()
        self._opened = 0
        self._next_flush = time.monotonic() + FLUSH_EVERY
        self._next_warning = 0.0

    def purge_after(self, resumed_steps: Mapping[str, int]) -> None:
        """Hide a player's values of an earlier attempt beyond these steps in TensorBoard; call it first."""
        self._resumed_steps = resumed_steps

    def scalars(self, player: str, values: Mapping[str, float], steps: int, at: float) -> None:
        """Write named values of a player at its ``steps``; ``at`` is Unix time."""
        summary = self._summary.Summary(
            value=[self._summary.Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        )
        try:
            self._writer(player).write_event(self._event.Event(wall_time=at, step=steps, summary=summary))
        except OSError as error:
            self._warn_once(player, error)
        else:
            self._dirty.add(player)

    def flush(self, force: bool = False) -> None:
        """Write buffered values to disk, at most every ``FLUSH_EVERY`` seconds unless forced."""
        now = time.monotonic()
        if not force and now < self._next_flush:
            return
        self._next_flush = now + FLUSH_EVERY
        for player in sorted(self._dirty):
            try:
                self._writers[player].flush()
            except OSError as error:
                self._warn_once(player, error)
        self._dirty.clear()

    def close(self) -> None:
        """Flush and close every file."""
        self.flush(force=True)
        for player in list(self._writers):
            try:
                self._writers.pop(player).close()
            except OSError as error:
                self._warn_once(player, error)

    def _writer(self, player: str) -> Any:
        if player not in self._writers:
            directory = self._directory / player
            directory.mkdir(parents=True, exist_ok=True)
            self._opened += 1
            suffix = f".{self._attempt}.{self._opened}"
            writer = self._events.EventsWriter(os.fspath(directory / "events"), suffix)
            if player in self._resumed_steps:
                steps = self._resumed_steps[player]
                start = self._event.SessionLog(status=self._event.SessionLog.START)
                writer.write_event(self._event.Event(wall_time=time.time(), step=steps, session_log=start))
            self._writers[player] = writer
        return self._writers[player]

    def _warn_once(self, player: str, error: OSError) -> None:
        # The file may end in half a record, which hides all that follows: continue in a new one.
        self._writers.pop(player, None)
        self._dirty.discard(player)
        if time.monotonic() >= self._next_warning:
            self._next_warning = time.monotonic() + WARN_EVERY
            logger.warning("TensorBoard files in %s cannot be written, training continues: %s", self._directory, error)
