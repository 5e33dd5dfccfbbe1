"""Films of a player while it trains: each is made by ``arena eval`` in a child process at low priority."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

from arena.config.run import RunConfig
from arena.protocol.messages import FilmRequest
from arena.records.run_directory import RunDirectory
from arena.records.writers.run import RecordWriter
from arena.system.launcher_env import without_mpi

PATIENCE = 1800.0
"""Seconds that a film may take: its process has what the ranks leave of the cores."""

CHILD = """
import os, sys
from pathlib import Path
from arena.system.output_file import OutputFile
from arena.system.processes import die_with_parent
die_with_parent()
OutputFile(Path(sys.argv.pop(1)), shared=True)
os.nice(19)
from arena.launch import main
sys.exit(main(sys.argv[1:]))
"""
"""The child: a run that is killed takes it along."""

LOG = "films.log"

LAST_WITHIN = 60.0
"""Seconds that a run which is over waits for the film in progress."""


class Films:
    """The root's side of films: one is made at a time, of the newest weights; older ones that wait are skipped."""

    def __init__(self, config: RunConfig, run: RunDirectory, records: RecordWriter) -> None:
        """Create it; no film is made before the first request."""
        assert config.records.films is not None
        self._section, self._run, self._records = config.records.films, run, records
        self._row = config.filmed_row()
        self._waiting: FilmRequest | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._made, self._partial, self._deadline = Path(), Path(), 0.0

    def add(self, request: FilmRequest) -> None:
        """Make a film of these weights, after the one in progress."""
        self._waiting = request

    def poll(self) -> None:
        """Conclude a film that is finished, and start the next one."""
        if self._child is not None and self._child.poll() is None and time.monotonic() > self._deadline:
            self._child.kill()
            self._child.wait()
        if self._child is not None and self._child.poll() is not None:
            self._conclude(self._child.returncode)
        if self._child is None and self._waiting is not None:
            request, self._waiting = self._waiting, None
            self._start(request)

    def _start(self, request: FilmRequest) -> None:
        row, seats = self._row
        name = f"{request.player}-{request.steps}.{self._section.format}"
        self._made, self._partial = self._run.films / name, self._run.films / f"part-{name}"
        players = [f"{request.player}@{request.steps}" if seat == request.player else seat for seat in seats]
        line = [sys.executable, "-c", CHILD, str(self._run.log / LOG), "eval", str(self._run.path), "--row", str(row)]
        line += ["--seats", ",".join(players), "--copies", "1", "--episodes", str(self._section.episodes)]
        line += ["--video-episodes", str(self._section.episodes), "--video", str(self._partial)]
        try:
            self._run.films.mkdir(exist_ok=True)
            self._log = self._log or open(self._run.log / LOG, "ab")  # noqa: SIM115 (until ``close``)
            self._child = subprocess.Popen(
                line,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                env={**without_mpi(os.environ), "OMP_NUM_THREADS": "1"},
            )
        except OSError as error:
            self._records.log_line("WARNING", f"the film {name} is skipped: {error}")
            return
        self._deadline = time.monotonic() + PATIENCE

    def _conclude(self, code: int) -> None:
        self._child = None
        try:
            if code == 0:
                self._partial.replace(self._made)
                self._records.log_line("INFO", f"film: {self._run.films.name}/{self._made.name}")
                return
            self._partial.unlink(missing_ok=True)
        except OSError as error:
            self._records.log_line("WARNING", f"the film {self._made.name} is skipped: {error}")
            return
        log = self._run.log / LOG
        self._records.log_line("WARNING", f"the film {self._made.name} has failed, training continues; see {log}")

    def give_up(self) -> None:
        """End the film in progress: the run has failed, and its processes must not outlive it."""
        self._waiting = None
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            self._child = None
            self._partial.unlink(missing_ok=True)

    def close(self) -> None:
        """Finish the film in progress and the newest one that waits, within a bound."""
        until = time.monotonic() + LAST_WITHIN
        self.poll()
        while self._child is not None and time.monotonic() < until:
            time.sleep(0.05)
            self.poll()
        if self._child is not None:
            self.give_up()
            self._records.log_line("WARNING", f"the film {self._made.name} is not finished: the run has ended")
        if self._log is not None:
            self._log.close()
            self._log = None
