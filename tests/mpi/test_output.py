"""The output of a run is text, also through a pipe; that of a failed run ends with its error."""

import os
import re
import subprocess
import sys

import pytest

from .launching import run_arena, succeed, write_config

pytestmark = pytest.mark.rooms("launch", "report", "group")

HUGE = """
import gymnasium
import numpy as np


class Huge(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32), gymnasium.spaces.Discrete(2)

    def __init__(self, size):
        self.size = size

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.zeros(3, np.float32), self.size * self.np_random.random(), self.t >= 10, False, {}
"""

PRINTS = """
import os
import sys


class Prints(Huge):
    steps = 0

    def __init__(self, size):
        import threading, time
        super().__init__(size)
        print("ready")
        threading.Thread(target=time.sleep, args=(1000,), name="simulator").start()

    def step(self, action):
        Prints.steps += 1
        print("step", Prints.steps)
        sys.stderr.write("x" * 200 + "\\n")
        return super().step(action)


class Crashes(Huge):
    def step(self, action):
        print("about to fail")
        os.abort()
"""


def configuration(place, size):
    (place / "huge.py").write_text(HUGE)
    return {
        "steps": 500,
        "env": {"use": f"{place / 'huge.py'}:Huge", "settings": {"size": size}},
        "policies": {"p": {"use": "ppo", "settings": {"horizon": 32, "normalize_rewards": False}}},
        "matches": [{"seats": ["p"]}],
    }


@pytest.mark.tier("default")
def test_a_pipe_gets_plain_text_and_the_first_lines_of_what_ranks_print(tmp_path):
    """Under mpirun, since libraries of each rank write at its end, and the root shows what other ranks print.

    The environment leaves a thread that runs on, which must not hold its rank.
    """
    config = configuration(tmp_path, 1.0)
    config["steps"] = 1_500
    (tmp_path / "huge.py").write_text(HUGE + PRINTS)
    config["env"]["use"] = f"{tmp_path / 'huge.py'}:Prints"
    outcome = succeed(run_arena(tmp_path, config, timeout=60))
    text = outcome.output + outcome.errors
    assert not set("\x1b\x00") & set(text) and len(text) < 5_000
    shown = [line for line in text.splitlines() if line.startswith("(rank 1, environment process of match 0) ")]
    assert len(shown) == 11 and shown[0].endswith(") ready") and shown[1].endswith(") step 1")
    assert shown[-1].endswith(") what else it prints is in runs/run/log/rank-00001.out")
    assert "warning: a thread is left running at the end: 'simulator'" in outcome.errors
    printed = (tmp_path / "runs/run/log/rank-00001.out").read_text().splitlines()
    assert printed[:2] == ["ready", "step 1"] and len(printed) >= 2 * 1_500
    assert not (tmp_path / "runs/run/log/rank-00002.out").exists()


def test_what_a_rank_printed_before_it_crashed_is_part_of_the_error(tmp_path):
    """Under mpirun, which alone reports that a rank was killed."""
    config = configuration(tmp_path, 1.0)
    (tmp_path / "huge.py").write_text(HUGE + PRINTS)
    config["env"]["use"] = f"{tmp_path / 'huge.py'}:Crashes"
    lines = run_arena(tmp_path, config).errors.splitlines()
    assert lines[-1].startswith("error: rank 1 on ") and "was killed by signal 6 (SIGABRT)" in lines[-1]
    at = lines.index("the last lines of runs/run/log/rank-00001.out:")
    assert lines[at + 1 : at + 3] == ["  about to fail", "  Fatal Python error: Aborted"]
    assert lines[at + 3].endswith(" in step")


def test_numbers_that_are_not_finite_end_a_run_with_their_cause_in_one_sentence(tmp_path):
    outcome = run_arena(tmp_path, configuration(tmp_path, 1e30))
    assert outcome.code == 1
    assert "\x00" not in outcome.errors and "Traceback" not in outcome.output + outcome.errors
    last = outcome.errors.splitlines()[-1]
    assert last.startswith("error: rank 2 on ") and "player 'p': update 1: loss/value is not finite; " in last
    assert re.search(r"largest reward (\d(\.\d+)?e\+29|1e\+30), ", last), last
    assert "learning rate 0.0003: scale the rewards down, for example normalize_rewards: true" in last


def test_a_full_disk_is_named_at_the_end_with_what_could_not_be_written(tmp_path):
    """Under mpirun, since root and workers write into one directory."""
    place = tmp_path / "small"
    place.mkdir()
    config = {
        "steps": 3_000,
        "run_root": str(place),
        "env": {"use": "gymnasium:CartPole-v1", "num_envs": 4},
        "policies": {"p": {"use": "ppo", "settings": {"hidden": [256, 256]}}},
        "matches": [{"seats": ["p"]}],
    }
    start = f"exec {sys.executable} -m arena.launch {write_config(tmp_path, config)}"
    mount = f"mount -t tmpfs -o size=300k tmpfs {place} && {start}"
    done = subprocess.run(
        ["unshare", "--mount", "bash", "-c", mount],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={name: value for name, value in os.environ.items() if name != "ARENA_PARENT"},  # which is outside of it
    )
    if "unshare failed" in done.stderr or "mount:" in done.stderr:
        pytest.skip("this user may not mount a file system")
    assert done.returncode == 1, done.stderr
    last = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert any("no space left on device while writing " in line and "the weights of p after " in line for line in last)
    assert "a machine was lost" not in done.stderr


def test_a_run_needs_neither_utf8_nor_a_home_nor_a_wide_terminal(tmp_path):
    """Under mpirun, since Open MPI does not start without HOME, and each rank has streams of its own."""
    config = {**configuration(tmp_path, 1.0), "evaluate": {"every": 250, "episodes": 2}}
    environment = {name: value for name, value in os.environ.items() if name not in ("HOME", "ARENA_TERMINAL")}
    narrow = {"PYTHONIOENCODING": "ascii", "TERM": "dumb", "COLUMNS": "40"}
    done = subprocess.run(
        [sys.executable, "-m", "arena.launch", str(write_config(tmp_path, config))],
        capture_output=True,
        timeout=60,
        check=False,
        env={**environment, **narrow},
    )
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.isascii() and b"  * p " in done.stdout and b" +- " in done.stdout
