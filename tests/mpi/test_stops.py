"""Every stop has a bound, whatever code of a user is doing when it comes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.determinism import descendants

from .launching import write_config

pytestmark = pytest.mark.rooms("launch", "root")

SLOW = """
import sys, time
import gymnasium
import numpy as np


def busy(here):
    if here and "mpi4py" in sys.modules:  # in a rank, not while the launcher looks at the spaces
        (Path(PLACE) / "busy").touch()
        while True:
            pass


class Slow(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32), gymnasium.spaces.Discrete(2)

    def __init__(self, where):
        self.where, self.resets = where, 0
        busy(where == "constructor")

    def reset(self, *, seed=None, options=None):
        self.t = 0
        self.resets += 1
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self.t += 1
        busy(self.where == "step" and self.resets > 20)
        return np.zeros(3, np.float32), 1.0, self.t >= 10, False, {}
"""


def start(place, where, *arguments):
    """Start a run and return once its environment blocks."""
    (place / "slow.py").write_text(f"from pathlib import Path\nPLACE = {str(place)!r}\n{SLOW}")
    config = {
        "steps": 10**9,
        "env": {"use": f"{place / 'slow.py'}:Slow", "settings": {"where": where}, "num_envs": 2},
        "policies": {"p": {"use": "ppo", "settings": {"horizon": 32}}},
        "matches": [{"seats": ["p"]}],
        "waits": {"stop_after": 1.0},
    }
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "arena.launch", str(write_config(place, config)), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    until = time.monotonic() + 60
    while not (place / "busy").exists():
        assert process.poll() is None and time.monotonic() < until, process.communicate()
        time.sleep(0.05)
    return process


def seconds_of(process: int) -> float:
    """Return the processor time of a process."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize(("where", "saved"), [("constructor", 0), ("step", 1)])
def test_an_orderly_stop_does_not_wait_for_an_environment_that_never_comes_back(tmp_path, where, saved):
    """Under mpirun, since the bound is about a rank that does not come back. What was learned before is saved."""
    process = start(tmp_path, where)
    ranks = json.loads((tmp_path / "runs/run/log/ranks.json").read_text())
    assert [each["role"] for each in ranks] == ["root", "environment", "worker"]
    busiest = max(ranks, key=lambda each: seconds_of(each["process"]) if each["rank"] else 0.0)
    assert busiest["role"] == "environment" or where == "step", "the process that is stuck in a user's loop"
    began = time.monotonic()
    process.terminate()
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 0 and time.monotonic() - began < 15, output
    assert "rank 1 (environment process of match 0) has not come back from its environment for 1 s (" in output
    assert "slow.py, line 12)" in output
    assert len(list((tmp_path / "runs/run/checkpoints").glob("*/manifest.json"))) == saved


@pytest.mark.parametrize("way", ["fork", "spawn"])
def test_nothing_outlives_a_killed_launcher_while_an_environment_is_busy(tmp_path, way):
    """Under mpirun, since it is the kernel that ends a rank which polls nothing."""
    process = start(tmp_path, "constructor", "--start", way)
    ranks = descendants(process.pid)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=30)
    until = time.monotonic() + 10
    while left := [pid for pid in ranks if is_running(pid)]:
        assert time.monotonic() < until, left
        time.sleep(0.1)


def is_running(process: int) -> bool:
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_signal_before_the_run_has_begun_ends_it_without_a_word_of_a_killed_rank(tmp_path):
    config = {
        "steps": 10**9,
        "env": {"use": "gymnasium:CartPole-v1"},
        "policies": {"p": {"use": "ppo"}},
        "matches": [{"seats": ["p"]}],
    }
    line = [sys.executable, "-u", "-m", "arena.launch", str(write_config(tmp_path, config)), "--stopped-code", "85"]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline().startswith("+ ")
    process.terminate()
    _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (85, "stopped before the run began\n")
