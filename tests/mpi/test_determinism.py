"""Deterministic runs end alike, bit for bit: in one go, killed and resumed, on other cores, on other ranks."""

import json
import random
import sys
import time

import pytest

from benchmarks.determinism import KINDS, fingerprint, finish, kill_everything, manifests, start

from .launching import player, run_arena, succeed, write_config

pytestmark = pytest.mark.rooms("records", "root", "worker")


SHORT = {
    "cartpole": {"steps": 5_000},
    "2v2": {"steps": 1_500},
    "dqn": {"steps": 1_600, "updates": 3},
    "sac": {"steps": 900, "updates": 3},
    "apart": {"steps": 1_500, "updates": 3},
    "teams": {"steps": 1_000, "updates": 5},
}
"""Shorter runs of each kind that write at least three checkpoints: steps, and updates between two checkpoints."""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="other kernels keep nobody to a core")
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.tier("default" if kind == "cartpole" else "all")) for kind in KINDS]
)
def test_it_ends_alike_however_often_it_is_killed_and_wherever_its_ranks_are(tmp_path, kind, keep_to_one_core):
    """Needs whole runs: killed, resumed on one core and unpinned, one ends as the undisturbed one."""
    short = SHORT[kind]
    config = {**KINDS[kind], "deterministic": True, "steps": short["steps"]}
    config["checkpoint"] = {**config["checkpoint"], "updates": short.get("updates", 2), "keep": 50}
    if kind == "cartpole":
        config["env"] = {**config["env"], "batches": 1}  # as a worker plays that steps its environment itself
    path = write_config(tmp_path, config)
    finish(start(path, "whole"))
    whole = tmp_path / "runs/whole"

    killed = tmp_path / "runs/killed"
    for number in (1, 2) if kind == "cartpole" else (1,):
        process = start(path, "killed")
        deadline = time.monotonic() + 60
        while len(manifests(killed)) < number:
            assert process.poll() is None and time.monotonic() < deadline, "it wrote no checkpoint"
            time.sleep(0.01)
        time.sleep(random.uniform(0.0, 0.3))
        kill_everything(process)
    with keep_to_one_core():
        finish(start(write_config(tmp_path, {**config, "pin_matches": False}), "killed"))
    assert "resumed from checkpoint" in (killed / "log/arena.log").read_text()
    assert fingerprint(killed) == fingerprint(whole)

    if kind in ("cartpole", "apart"):
        config["env"]["in_worker"] = True
        inside = succeed(run_arena(tmp_path, {**config, "name": "inside"})).directory
        assert fingerprint(inside) == fingerprint(whole)
        ranks = [len(json.loads((run / "log/ranks.json").read_text())) for run in (inside, whole)]
        assert ranks == {"cartpole": [3, 5], "apart": [6, 10]}[kind]


def test_a_policy_that_runs_itself_is_refused(tmp_path):
    config = {**KINDS["cartpole"], "deterministic": True, "policies": {"p": {"use": player("counts:CountsSteps")}}}
    outcome = run_arena(tmp_path, config)
    assert outcome.code == 2
    assert "deterministic: expected policies that separate act from learn" in outcome.errors
