"""Runs under MPICH and Intel MPI: whoever has one of them on a cluster runs the same commands.

Three ranks, since ranks of these libraries do not yield while they wait. ``launch/test-mpis.sh`` runs the quickstart.
"""

import signal
import subprocess
import time
from pathlib import Path

import pytest

from .launching import OTHER_MPIS, other_mpi

pytestmark = pytest.mark.rooms("launch", "comms")

CONFIGS = Path(__file__).parents[2] / "configs"


def start(mpi: str, place: Path, config: str, *overrides: str) -> subprocess.Popen[str]:
    """Start one of the configurations with the Python of another MPI."""
    path = CONFIGS / f"{config}.yaml"
    line = [str(other_mpi(mpi) / "python"), "-m", "arena.launch", str(path), "--set", f"run_root={place}"]
    for override in overrides:
        line += ["--set", override]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("mpi", OTHER_MPIS)
def test_a_run_comes_to_its_end_and_the_library_has_nothing_to_say(tmp_path: Path, mpi: str) -> None:
    """MPICH reports unfreed requests at the end: each of them is memory that a long run would lose."""
    said, errors = start(mpi, tmp_path, "cartpole", "steps=1_000").communicate(timeout=280)
    assert f"+ {other_mpi(mpi)}" in said, "its own mpirun"
    assert "100%" in said
    assert errors.strip() == ""
    assert (tmp_path / "cartpole" / "summary.json").is_file()


@pytest.mark.parametrize("mpi", OTHER_MPIS)
def test_a_signal_stops_it_in_order(tmp_path: Path, mpi: str) -> None:
    """Intel MPI's mpirun is a shell script that dies of the signal and leaves its ranks behind."""
    run = start(mpi, tmp_path, "cartpole", "steps=50_000_000", "checkpoint.every=0.5")
    until = time.monotonic() + 100
    while not list(tmp_path.glob("cartpole/checkpoints/*/manifest.json")):  # it learns
        assert run.poll() is None and time.monotonic() < until
        time.sleep(0.05)
    run.send_signal(signal.SIGTERM)
    said, errors = run.communicate(timeout=200)
    assert run.returncode == 0, said + errors
    assert list((tmp_path / "cartpole" / "checkpoints").iterdir())
