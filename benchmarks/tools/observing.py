"""Observation of runs from outside: their processes, the resources of these, and what outlives them."""

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from benchmarks.tools.measuring import ROOT

MARK = "ARENA_BENCHMARK_MARK"
"""Environment variable that every process of a run inherits."""

PLANT = f"{ROOT / 'benchmarks' / 'tools' / 'fault_injection.py'}:plant"


class Held(NamedTuple):
    """Resources of a group of processes.

    Attributes:
      megabytes: resident memory; a page that several processes share counts in each.
      descriptors: open files, sockets and pipes.
      processes: number of processes.
    """

    megabytes: float
    descriptors: int
    processes: int


class Observed:
    """A run of a configuration, under its own launcher.

    Attributes:
      directory: of the run.
      process: the launcher.
    """

    def __init__(self, place: Path, config: Mapping[str, Any], *arguments: str, name: str = "run") -> None:
        """Start the run; ``place`` gets its files."""
        self.mark = uuid.uuid4().hex
        self._files: set[Path] = set()
        self._log = place / f"{name}.log"
        path = place / f"{name}.yaml"
        path.write_text(yaml.safe_dump({"name": name, "run_root": str(place / "runs"), **config}), encoding="utf-8")
        self.directory = place / "runs" / name
        with self._log.open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "arena.launch", str(path), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "OMP_NUM_THREADS": "1", MARK: self.mark},
                cwd=place,
            )

    def processes(self) -> dict[int, str]:
        """Return the role of each process of the run that exists: launcher, mpirun, rank <n> or copy."""
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and (role := self._role(entry)) is not None:
                found[int(entry.name)] = role
        return found

    def _role(self, entry: Path) -> str | None:
        try:
            variables = dict(
                part.split("=", 1)
                for part in (entry / "environ").read_text(errors="replace").split("\0")
                if "=" in part
            )
            line = (entry / "cmdline").read_text(errors="replace")
        except OSError:
            return None
        if variables.get(MARK) != self.mark or not line:  # a process that is dead and not reaped has no command line
            return None
        if "arena.env_manager" in line:
            return "copy"
        if "OMPI_COMM_WORLD_RANK" in variables:
            return f"rank {variables['OMPI_COMM_WORLD_RANK']}"
        return "launcher" if int(entry.name) == self.process.pid else "mpirun"

    def pid_of(self, role: str) -> int:
        """Return the process of a role.

        Raises:
          LookupError: there is none.
        """
        found = [pid for pid, its in sorted(self.processes().items()) if its == role]
        if not found:
            raise LookupError(f"the run has no {role}: {self.tail()}")
        return found[0]

    def held(self) -> dict[str, Held]:
        """Return the resources of the processes of each role together."""
        totals: dict[str, Held] = {}
        for pid, role in self.processes().items():
            with contextlib.suppress(OSError, ValueError):
                megabytes = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
                descriptors = len(os.listdir(f"/proc/{pid}/fd"))
                old = totals.get(role, Held(0.0, 0, 0))
                totals[role] = Held(old[0] + megabytes, old[1] + descriptors, old[2] + 1)
        return totals

    def wait(self, timeout: float) -> int | None:
        """Return the exit code, None where the run is still there after so many seconds (it is ended then)."""
        until = time.monotonic() + timeout
        next_look = 0.0
        while (code := self.process.poll()) is None and time.monotonic() < until:
            if time.monotonic() > next_look:
                self.look_at_files()
                next_look = time.monotonic() + 2.0
            time.sleep(0.02)
        if code is None:
            self.end()
        return code

    def look_at_files(self) -> None:
        """Record the files in shared memory that the run's processes have mapped."""
        for pid in self.processes():
            with contextlib.suppress(OSError):
                lines = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
                self._files |= {Path(line[line.index("/dev/shm/") :]) for line in lines if "/dev/shm/" in line}

    def files_left(self) -> list[str]:
        """Return those of the recorded files that still exist."""
        return sorted(str(path) for path in self._files if path.exists())

    def stop(self, timeout: float = 120.0) -> int | None:
        """Make the run checkpoint and end; return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.wait(timeout)

    def end(self) -> None:
        """End all processes at once."""
        for pid in self.processes():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def left_behind(self, patience: float = 3.0) -> dict[int, str]:
        """Return the processes that outlive the launcher for so many seconds."""
        until = time.monotonic() + patience
        while (left := self.processes()) and time.monotonic() < until:
            time.sleep(0.1)
        return left

    def updates(self) -> int:
        """Return the number of updates in the records."""
        found = self.ask("SELECT max(updates) FROM metrics")
        return (found[0][0] or 0) if found else 0

    def ask(self, question: str) -> list[tuple]:
        """Return the rows of a query of the records; none while there are no records."""
        path = self.directory / "arena.sqlite"
        if not path.exists():
            return []
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5.0)) as records:
            try:
                return records.execute(question).fetchall()
            except sqlite3.Error:
                return []

    def wait_for_updates(self, number: int, timeout: float = 120.0) -> None:
        """Return once so many updates were made.

        Raises:
          TimeoutError: fewer updates were made in time.
        """
        until = time.monotonic() + timeout
        while self.updates() < number:
            if time.monotonic() > until or self.process.poll() is not None:
                raise TimeoutError(f"no update {number}: {self.tail()}")
            time.sleep(0.2)

    def tail(self, lines: int = 15) -> str:
        """Return the last lines that the run printed."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:])


def cartpole(steps: int, *, manager: str, wrapper: Mapping[str, Any] | None = None, **env: Any) -> dict[str, Any]:
    """Return a run of PPO on CartPole, with faults if ``wrapper`` has settings for ``plant``."""
    wrappers: Sequence[Any] = [] if wrapper is None else [{"use": PLANT, "settings": dict(wrapper)}]
    return {
        "steps": steps,
        "env": {"use": "gymnasium:CartPole-v1", "num_envs": 8, "manager": manager, "wrappers": list(wrappers), **env},
        "policies": {"p": {"use": "ppo", "settings": {"horizon": 64}}},
        "matches": [{"seats": ["p"]}],
        "checkpoint": {"every": 2.0},
        "records": {"tensorboard": False},
    }


def scratch(prefix: str) -> tempfile.TemporaryDirectory:
    """Return a place for runs, on the disk that temporary files have."""
    return tempfile.TemporaryDirectory(prefix=f"arena-{prefix}-", ignore_cleanup_errors=True)
