"""Contestants that are processes: runs of the arena, programs under mpirun, and peers in interpreters of their own."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from arena.launch import mpirun
from benchmarks.tools.measuring import ROOT, MissingPeerError

MISSING = 3
"""Exit code of a peer's program where the peer is not installed (see ``benchmarks.peers.output``)."""

FAILED_TO_START = "exit code 213"
"""Text with which mpirun ends, now and then on a busy machine, before it has started any rank."""

TIMEOUT = 900
RESULT = "ARENA_BENCHMARK_RESULT"
"""Environment variable: the file into which a program writes its figures as JSON."""


def run(
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
    *,
    timeout: float = TIMEOUT,
    tells: bool = True,
) -> dict[str, Any]:
    """Run a program that writes its figures into the file of ``RESULT``; return them (none unless it ``tells``).

    Where several processes write a line each, figures that are rates (steps per second) add up; of the others the first
    counts.

    Raises:
      MissingPeerError: a package is missing, or the program fails or takes too long.
    """
    with tempfile.TemporaryDirectory(prefix="arena-benchmark-") as place:
        result = Path(place) / "figures.json"
        with (Path(place) / "log").open("w+", encoding="utf-8", errors="replace") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {}), RESULT: str(result)},
                start_new_session=True,
            )
            try:
                code = process.wait(timeout)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                _end(process)
            log.seek(0)
            lines = [line for line in log.read().splitlines() if line.strip()]
        if code == 0 and not tells:
            return {}
        if code == 0 and result.is_file():
            return _together([json.loads(line) for line in result.read_text("utf-8").splitlines()])
    last = lines[-1] if lines else "it said nothing"
    if code == MISSING:
        raise MissingPeerError(last)
    raise MissingPeerError(f"no answer in {timeout:.0f} s" if code is None else f"exit code {code}: {last[:200]}")


def _together(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    rates = {name for line in lines for name in line if name.endswith("/s")}
    return {**lines[0], **{name: sum(line.get(name, 0.0) for line in lines) for name in rates}}


def _end(process: subprocess.Popen) -> None:
    """End a program's remaining processes and their children: some peers leave servers running."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # nothing was left
    process.wait()


def run_peer(pythons: Sequence[str], module: str, *arguments: object, timeout: float = TIMEOUT) -> dict[str, Any]:
    """Measure a peer in the first interpreter that has it.

    Raises:
      MissingPeerError: none has it, or it failed.
    """
    reasons = []
    for python in pythons:
        try:
            return run([python, "-m", f"benchmarks.peers.{module}", *map(str, arguments)], timeout=timeout)
        except MissingPeerError as reason:
            reasons.append(str(reason))
    raise MissingPeerError("; ".join(dict.fromkeys(reasons)))


def run_mpi(ranks: int, module: str, *arguments: object, timeout: float = TIMEOUT) -> dict[str, Any]:
    """Measure a program of ours on ``ranks`` MPI processes."""
    path = mpirun.find_mpirun()
    *line, _ = mpirun.command(path, ranks, [])  # the last word is the arena's own module
    for tries_left in (2, 1, 0):
        try:
            return run([*line, module, *map(str, arguments)], mpirun.environment(path), timeout=timeout)
        except MissingPeerError as reason:
            if not tries_left or not str(reason).startswith(FAILED_TO_START):
                raise
    raise AssertionError("the last try returns or raises")


def run_arena(config: Mapping[str, Any], *, timeout: float = TIMEOUT, tells: bool = True) -> dict[str, Any]:
    """Run a configuration, one of whose policies writes its figures (see ``benchmarks.ours``) if it ``tells``."""
    with tempfile.TemporaryDirectory(prefix="arena-benchmark-") as place:
        path = Path(place) / "config.yaml"
        quiet = {"records": {"tensorboard": False}, "run_root": place}
        path.write_text(yaml.safe_dump({"name": "run", **quiet, **config}, sort_keys=False), encoding="utf-8")
        return run([sys.executable, "-m", "arena.launch", str(path)], timeout=timeout, tells=tells)
