"""Sweeps under real mpirun: several runs at a time, each once, whatever ends the sweep."""

import os
import signal
import subprocess
import sys
import time

import pytest
import yaml

import arena
from arena.records.lease import Lease

pytestmark = pytest.mark.rooms("sweeps")

POLE = {
    "steps": 3000,
    "env": {"use": "gymnasium:CartPole-v1", "num_envs": 2, "in_worker": True},
    "policies": {"solo": {"use": "ppo", "settings": {"hidden": [8], "horizon": 64}}},
    "matches": [{"seats": ["solo"]}],
    "records": {"plots": False, "tensorboard": False},
}


def start(folder, *arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "arena.launch", "sweep", "sweep.yaml", *arguments],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def wait_for(process, text):
    """Read lines of output until one has this text."""
    for line in process.stdout:
        if text in line:
            return line
    raise AssertionError(process.stderr.read())


@pytest.mark.tier("default")
def test_a_killed_sweep_runs_what_is_missing_once(tmp_path):
    """A grid of 2 x 3 runs; SIGKILL meets one that has finished and others that run: no cheaper way to have both."""
    (tmp_path / "pole.yaml").write_text(yaml.safe_dump({"name": "pole", **POLE}))
    sweep = {"run": "pole.yaml", "seeds": [1, 2, 3], "grid": {"policies.solo.settings.gamma": [0.9, 0.99]}}
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(sweep))
    with start(tmp_path, "--parallel", "2") as process:
        wait_for(process, "finished in")
        time.sleep(0.5)
        process.send_signal(signal.SIGKILL)
    root = tmp_path / "runs" / "sweep"
    with start(tmp_path, "--parallel", "2") as process:
        output, errors = process.communicate(timeout=150)
    assert process.returncode == 0, output + errors
    runs = [arena.Run(path.parent) for path in sorted(root.glob("*/config.yaml"))]
    assert len(runs) == 6 and all(run.finished for run in runs), output
    attempts = [[attempt.exit_code for attempt in run.attempts] for run in runs]
    assert all(codes[-1] == 0 and len(codes) <= 2 for codes in attempts), attempts
    assert sum(len(codes) == 1 for codes in attempts) >= 4, "at most the two that ran were started again"
    assert "finished in" in output and f"compare them: arena compare {root.relative_to(tmp_path)}" in output
    with start(tmp_path) as process:
        output, _ = process.communicate(timeout=60)
    assert "6 runs, 0 to run" in output and process.returncode == 0


def test_a_sweep_from_python(tmp_path, monkeypatch):
    """Its keys are those of the file; only a run shows that the ranks find the configuration."""
    monkeypatch.chdir(tmp_path)
    lines = []
    result = arena.sweep({"name": "two", "run": {"name": "pole", **POLE}, "seeds": [1, 2]}, log=lines.append, steps=500)
    assert (str(result.path), result.finished, result.failed) == ("runs/two", 2, {})
    assert lines[0].startswith("runs/two: 2 runs, 2 to run") and len(lines) == 5
    compared = arena.compare(result.path)
    assert compared.table["seeds"].tolist() == [2] and compared.table["group"].tolist() == [""]


def test_a_run_that_another_process_has_begun_at_the_same_time_is_waited_for(tmp_path, monkeypatch):
    """Only a run that is refused by its own check shows it: for the sweep, nobody held the directory at either look."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("arena.sweeps.children.holder_of", lambda _: None)
    monkeypatch.setattr("arena.sweeps.grid.HELD_FOR", 0.1)
    directory = tmp_path / "runs" / "one" / "seed-1"
    directory.mkdir(parents=True)
    lease, lines = Lease.take(directory), []

    def log(line):
        lines.append(line)
        if "written by rank 0" in line:
            lease.release()

    result = arena.sweep({"name": "one", "run": {"name": "pole", **POLE}, "seeds": [1]}, log=log, steps=500)
    assert (result.finished, result.failed) == (1, {}), lines
    assert f"seed-1: written by rank 0 on {os.uname().nodename} (process {os.getpid()}, since 20" in lines[2], lines


def test_a_failed_run_does_not_end_the_others_and_an_interrupt_stops_in_order(tmp_path):
    """From Python: the failure of one run, then the stop of the other, which leaves a checkpoint."""
    (tmp_path / "broken.py").write_text(
        "from arena.policies.on_policy.ppo import PPO\n"
        "class Broken(PPO):\n    def learn(self, *_, **__):\n        raise RuntimeError('it broke')\n"
    )
    policy = {"use": "ppo", "settings": {"hidden": [8], "horizon": 64}}
    config = {"name": "pole", **POLE, "steps": 10**8, "policies": {"solo": policy}}
    (tmp_path / "pole.yaml").write_text(yaml.safe_dump(config))
    grid = {"policies.solo.use": ["broken.py:Broken", "ppo"]}
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump({"run": "pole.yaml", "grid": grid}))
    with start(tmp_path, "--parallel", "2") as process:
        assert "use-broken.py-Broken: failed with exit code 1: " in wait_for(process, "failed")
        run = tmp_path / "runs" / "sweep" / "use-ppo"
        until = time.monotonic() + 60
        while not (run / "log").exists() and time.monotonic() < until:
            time.sleep(0.1)
        time.sleep(1.0)
        for _ in range(2):  # a terminal that closes, and its shell
            os.kill(process.pid, signal.SIGHUP)
            time.sleep(0.1)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and "it continues with what is missing: arena sweep sweep.yaml" in errors
    assert arena.Run(run).exit_code == 0 and list((run / "checkpoints").glob("*/manifest.json"))
