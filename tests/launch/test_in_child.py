"""Code of users changes nothing for the launcher, and whatever it does there becomes one sentence."""

import os
import subprocess
import sys
import time

import pytest

from arena.common.errors import ConfigError
from arena.launch.preflight.in_child import run_in_child

RUDE = """
import argparse, os, random, sys
import gymnasium
import numpy as np

argparse.ArgumentParser().parse_args()
print("loading levels ...")


class Rude(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32), gymnasium.spaces.Discrete(2)

    def __init__(self):
        os.chdir("/")
        os.environ["CUDA_VISIBLE_DEVICES"] = "7"
        sys.path.clear()
"""


def test_folder_variables_and_output_stay_in_the_child(capfd):
    before = os.getcwd(), dict(os.environ), list(sys.path), list(sys.argv)

    def work(announce):
        os.chdir("/")
        os.environ["X"] = "y"
        sys.path.clear()
        os.system("echo hello")
        return sys.argv[1:]

    assert run_in_child(work) == []
    assert (os.getcwd(), dict(os.environ), list(sys.path), list(sys.argv)) == before
    assert capfd.readouterr() == ("", "")


def raises(announce):
    announce("environment 'x'", 5.0, "env.start_timeout")
    raise FileNotFoundError("levels.bin")


def exits(announce):
    announce("environment 'x'", 5.0, "env.start_timeout")
    sys.exit("no display")


def ends(announce):
    announce("environment 'x'", 5.0, "env.start_timeout")
    print("cannot open the license", flush=True)
    os._exit(7)


def crashes(announce):
    import faulthandler

    announce("environment 'x'", 5.0, "env.start_timeout")
    faulthandler._sigsegv()


def hangs(announce):
    announce("environment 'x'", 0.5, "env.start_timeout")
    time.sleep(60)


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        (raises, r"^environment 'x': raised FileNotFoundError: levels.bin \(.*test_in_child.py, line \d+\)$"),
        (exits, r"^environment 'x': called exit\('no display'\)"),
        (ends, r"^environment 'x': ended .* by exit code 7; its last output: cannot open the license$"),
        (crashes, r"^environment 'x': ended .* by signal 11 \(SIGSEGV\) at .*test_in_child.py, line \d+$"),
        (
            hangs,
            r"^environment 'x': took longer than 0.5 s \(env.start_timeout\) at .*test_in_child.py, line \d+; raise",
        ),
    ],
)
def test_whatever_goes_wrong_in_there_is_one_sentence(work, expected):
    with pytest.raises(ConfigError, match=expected):
        run_in_child(work)


def test_a_dry_run_of_an_environment_that_takes_over_the_process(tmp_path):
    (tmp_path / "rude.py").write_text(RUDE)
    (tmp_path / "rude.yaml").write_text(
        "{name: rude, steps: 100, env: {use: 'rude.py:Rude'}, policies: {p: {use: ppo}}, matches: [{seats: [p]}]}"
    )
    line = [sys.executable, "-m", "arena.launch", "rude.yaml", "--dry-run"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "loading" not in done.stdout and "3 ranks: 1 root" in done.stdout
