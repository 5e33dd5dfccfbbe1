"""Runs the arena as a user does, under real mpirun, on a configuration that a test writes."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from arena.launch.mpirun_output import FAILED_TO_START

OPEN_MPI_AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

OTHER_MPIS = ("mpich", "impi-rt")
"""The wheels of other MPIs than the one of ``.venv``, which ``launch/test-mpis.sh --install`` installs beside it."""

MPIS = Path(os.environ.get("ARENA_MPIS", Path(sys.prefix) / "mpis"))


def other_mpi(name: str) -> Path:
    """Return the ``bin`` folder of another MPI's environment, or skip the test."""
    place = MPIS / name / "bin"
    if not place.exists():
        pytest.skip(f"{name} is not installed: launch/test-mpis.sh --install")
    return place


PLAYERS = Path(__file__).parent / "players"
"""The policies that take part in these tests: each checks something from inside a worker and fails loudly."""


class Outcome(NamedTuple):
    """End of a run."""

    code: int
    output: str
    errors: str
    seconds: float
    directory: Path


def player(name: str) -> str:
    """Return the reference of a class in the players' folder, ``file:Class``."""
    file, _, cls = name.partition(":")
    return f"{PLAYERS / file}.py:{cls}"


def write_config(place: Path, config: dict[str, Any]) -> Path:
    """Write a configuration whose run directory lies beside it, and which draws no plots; return its path."""
    config = {"name": "run", "run_root": str(place / "runs"), **config}
    config["records"] = {"plots": False, **config.get("records", {})}
    path = place / "config.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    return path


def run_arena(place: Path, config: dict[str, Any], *arguments: str, timeout: float = 120) -> Outcome:
    """Run a configuration to its end, or fail after ``timeout`` seconds."""
    path = write_config(place, config)
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "arena.launch", str(path), *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
        cwd=place,
    )
    directory = Path(config.get("run_root", place / "runs")) / config.get("name", "run")
    return Outcome(done.returncode, done.stdout, done.stderr, time.monotonic() - began, directory)


TELLS = """
import os
from pathlib import Path


class Tells:
    def __init__(self, env, group, place):
        (Path(place) / f"worker-{{group.rank}}").write_text({expression})

    def run(self, steps):
        pass
"""


def tell_all(place: Path, expression: str) -> Path:
    """Write a configuration of two matches whose workers write what an expression is; return its path."""
    (place / "tells.py").write_text(TELLS.format(expression=expression))
    config = {
        "steps": 10,
        "env": {"use": "gymnasium:CartPole-v1"},
        "policies": {"player": {"use": f"{place / 'tells.py'}:Tells", "settings": {"place": str(place)}}},
        "matches": [{"seats": ["player"], "replicas": 2}],
    }
    return write_config(place, config)


def ask_workers(place: Path, expression: str) -> list[str]:
    """Return what an expression is in each of two workers, each with a match of its own."""
    path = tell_all(place, expression)
    succeed(run_arena(place, yaml.safe_load(path.read_text(encoding="utf-8"))))
    return [(place / f"worker-{worker}").read_text() for worker in range(2)]


def succeed(outcome: Outcome) -> Outcome:
    """Assert that a run succeeded, showing its output if it did not."""
    assert outcome.code == 0, f"exit code {outcome.code}\n{outcome.output[-4000:]}\n{outcome.errors[-6000:]}"
    return outcome


def run_mpirun(line: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run an mpirun of one's own; again where it could not even start, as ``arena.launch`` does with its own."""
    for _ in range(3):
        done = subprocess.run(line, capture_output=True, text=True, check=False, **options)
        if not failed_to_start(done.stderr):
            break
    return done


def failed_to_start(errors: str) -> bool:
    """Return whether Open MPI's mpirun failed as it does once in some hundred starts, on a busy machine."""
    return FAILED_TO_START.decode() in errors
