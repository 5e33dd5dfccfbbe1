"""A deterministic run that is killed and resumed ends with the weights and records of one that was not, bit for bit."""

import random
import time

import pytest

from benchmarks.determinism import KINDS, fingerprint, finish, kill_everything, start

from .launching import player, run_arena, write_config

pytestmark = pytest.mark.rooms("records", "root")


def checkpoints(run):
    return len(list((run / "checkpoints").glob("[0-9]*/manifest.json")))


@pytest.mark.parametrize("kind", KINDS)
def test_killed_twice_and_resumed_it_ends_as_in_one_go(tmp_path, kind):
    config = {**KINDS[kind], "deterministic": True, "steps": 5_000}
    config["checkpoint"] = {**config["checkpoint"], "keep": 50}
    path = write_config(tmp_path, config)
    finish(start(path, "whole"))
    run = tmp_path / "runs/killed"
    for number in (1, 2):
        process = start(path, "killed")
        deadline = time.monotonic() + 60
        while checkpoints(run) < number:
            assert process.poll() is None and time.monotonic() < deadline, "it wrote no checkpoint"
            time.sleep(0.01)
        time.sleep(random.uniform(0.0, 0.3))
        kill_everything(process)
    finish(start(path, "killed"))
    assert "resumed from checkpoint" in (run / "log/arena.log").read_text()
    assert fingerprint(run) == fingerprint(tmp_path / "runs/whole")


def test_a_policy_that_runs_itself_is_refused(tmp_path):
    config = {**KINDS["cartpole"], "deterministic": True, "policies": {"p": {"use": player("counts:CountsSteps")}}}
    outcome = run_arena(tmp_path, config)
    assert outcome.code == 2
    assert "deterministic: expected policies that separate act from learn" in outcome.errors
