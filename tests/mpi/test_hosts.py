"""A run over several machines plays across the network; a machine that dies or falls silent ends it and is named."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .hosts import Hosts, several_hosts
from .launching import OPEN_MPI_AS_ROOT, run_mpirun, write_config

pytestmark = pytest.mark.rooms("launch", "comms")

BOUND = 30.0
"""Seconds within which the documentation promises that a run ends when a machine is lost."""

TWO_AGAINST_TWO = {
    "env": {"use": "touchdown", "settings": {"team_size": 2}, "num_envs": 8},
    "policies": {"blue": {"use": "ppo", "settings": {"horizon": 32}}, "red": {"use": "random"}},
    "matches": [{"seats": ["blue", "blue", "red", "red"]}],
}
ACROSS = ("--hosts", "host1:2,host2:2,host3:1,host4:1")
"""Six ranks, of which no host has room for the whole match."""


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    """Four hosts on one switch."""
    with several_hosts(tmp_path) as found:
        yield found


def start(hosts: Hosts, place: Path, steps: int, *arguments: str) -> subprocess.Popen[str]:
    """Start the 2v2 example from the first host."""
    path = write_config(place, {**TWO_AGAINST_TWO, "steps": steps, "run_root": str(place / "runs")})
    return subprocess.Popen(
        hosts.on("host1", sys.executable, "-m", "arena.launch", str(path), *ACROSS, *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**hosts.environment(), **OPEN_MPI_AS_ROOT, "OMP_NUM_THREADS": "1"},
    )


def await_learning(run: subprocess.Popen[str], place: Path) -> None:
    """Return once the ranks have played across the hosts."""
    until = time.monotonic() + 120
    while not list((place / "runs" / "run" / "checkpoints").glob("*")):
        assert run.poll() is None, run.communicate()[0]
        assert time.monotonic() < until, "no checkpoint in two minutes"
        time.sleep(0.2)


def end(run: subprocess.Popen[str], began: float) -> str:
    """Return the output of a run that must fail within the bound."""
    try:
        said, _ = run.communicate(timeout=3 * BOUND)
    finally:
        run.kill()
    took = time.monotonic() - began
    assert run.returncode not in (0, None), said
    assert took < BOUND, f"{took:.1f} s"
    return said


def gone(hosts: Hosts, *names: str) -> bool:
    """Return whether these hosts' ranks have ended, or do so in time."""
    until = time.monotonic() + BOUND
    while any(hosts.processes(name, "arena.launch") for name in names):
        if time.monotonic() > until:
            return False
        time.sleep(0.5)
    return True


def test_a_match_is_played_across_four_hosts(hosts: Hosts, tmp_path: Path) -> None:
    run = start(hosts, tmp_path, 3000)
    said, _ = run.communicate(timeout=200)
    assert run.returncode == 0, said
    plan = json.loads((tmp_path / "runs/run/plan.json").read_text("utf-8"))
    assert sorted(set(plan["hosts"])) == hosts.names
    assert len({a["node"] for a in plan["rounds"][0]["assignments"] if a["match"] == 0}) == 4


def test_the_doctor_measures_between_hosts(hosts: Hosts, tmp_path: Path) -> None:
    mpirun = Path(sys.executable).with_name("mpirun")
    line = [str(mpirun), "--host", "host1:2,host2:1", "--bind-to", "none", "-n", "3"]
    line = hosts.on("host1", *line, sys.executable, "-m", "arena.launch", "doctor", "--run-root", str(tmp_path))
    environment = {**hosts.environment(), **OPEN_MPI_AS_ROOT}
    said = run_mpirun(line, timeout=100, env=environment).stdout
    between = next(line for line in said.splitlines() if "between nodes" in line)
    assert "round trip" in between and "host1 and host2" in between
    apart = re.search(r"clocks +(\S+) ms apart", said)
    assert apart and float(apart[1]) < 100, f"they share one clock, which a busy machine reads late: {said}"


@pytest.mark.parametrize("fault", ["killed", "cut off"])
def test_a_host_that_is_lost_ends_the_run_and_is_named(hosts: Hosts, tmp_path: Path, fault: str) -> None:
    """Otherwise the other machines of an allocation would wait for it for as long as they are paid for."""
    run = start(hosts, tmp_path, 10_000_000, "--set", "checkpoint.every=1")
    await_learning(run, tmp_path)
    began = time.monotonic()
    (hosts.kill if fault == "killed" else hosts.cut)("host3")
    said = end(run, began)
    assert "host3" in said
    # Nobody goes on for nothing: neither the others, nor the lost one, which knows nothing of them.
    assert gone(hosts, *(name for name in hosts.names if fault == "cut off" or name != "host3"))
    assert "Traceback" not in said


def test_hosts_without_room_are_refused(tmp_path: Path) -> None:
    path = write_config(tmp_path, {**TWO_AGAINST_TWO, "steps": 10})
    for hosts, told in (("a:2,b:2", "expected room for 6 ranks, found 4"), ("a:2,b:x", "expected node1:32,node2:32")):
        line = [sys.executable, "-m", "arena.launch", str(path), "--hosts", hosts]
        done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False, env=dict(os.environ))
        assert done.returncode == 2
        assert told in done.stderr and "Traceback" not in done.stderr
