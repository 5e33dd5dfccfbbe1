"""The processes that send a run's curves to experiment trackers: ``arena track``, which may die without harm."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence

from arena.records.run_directory import RunDirectory
from arena.records.writers.run import RecordWriter
from arena.system.launcher_env import without_mpi

RESTART_AFTER = 60.0
"""Seconds after which a process that has failed is started again: the network may be back."""

ENDED_WITHIN = 60.0
"""Seconds that a run which is over waits until everything is sent."""


class Trackers:
    """The root's side: starts a process for each tracker, and starts it again after it has failed."""

    def __init__(self, trackers: Sequence[str], run: RunDirectory, records: RecordWriter) -> None:
        """Start the processes."""
        self._run, self._records = run, records
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._due = dict.fromkeys(trackers, 0.0)
        self.poll()

    def poll(self) -> None:
        """Log processes that have ended, and start those that are due."""
        now = time.monotonic()
        for tracker, child in list(self._children.items()):
            if child.poll() is None:
                continue
            del self._children[tracker]
            self._due[tracker] = now + RESTART_AFTER
            self._records.log_line(
                "WARNING",
                f"the process that sends to {tracker} has ended with code {child.returncode}, training continues; it "
                f"is started again in {RESTART_AFTER:g} s; see {self._log(tracker)}",
            )
        for tracker, due in self._due.items():
            if tracker not in self._children and now >= due:
                self._start(tracker)

    def _log(self, tracker: str) -> str:
        return str(self._run.log / f"{tracker}.log")

    def _start(self, tracker: str) -> None:
        line = [sys.executable, "-m", "arena.launch", "track", str(self._run.path), "--to", tracker]
        try:
            with open(self._log(tracker), "ab") as log:
                self._children[tracker] = subprocess.Popen(
                    [*line, "--follow", "--child"],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**without_mpi(os.environ), "OMP_NUM_THREADS": "1"},
                    # It outlives a run that is killed by some seconds, to finish what the library has in memory.
                    start_new_session=True,
                )
        except OSError as error:
            self._due[tracker] = time.monotonic() + RESTART_AFTER
            self._records.log_line("WARNING", f"the process that sends to {tracker} cannot be started: {error}")

    def close(self) -> list[str]:
        """Wait until everything is sent, within a bound; to be called when the records are closed.

        Returns:
          A sentence for each tracker that does not have everything.
        """
        until = time.monotonic() + ENDED_WITHIN
        lines = []
        for tracker in self._due:
            child = self._children.get(tracker)
            try:
                code = None if child is None else child.wait(max(until - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                assert child is not None
                child.kill()
                child.wait()
                code = None
            if code != 0:
                lines.append(
                    f"{tracker} does not have all curves; send the rest: arena track {self._run} --to {tracker}"
                )
        return lines
