"""A main player with a bad phase in a run: its weights, its optimizer and its records are those of before."""

import sqlite3
import time

import numpy as np
import pytest

from arena.records.run_directory import RunDirectory, training_state_of
from arena.tensors.weights import read_tensors
from benchmarks.determinism import kill_everything

from .launching import player, run_arena, succeed
from .test_resume import newest, start

pytestmark = pytest.mark.rooms("league", "root", "group")

MAIN = "main_player_default_0"


def test_a_bad_phase_is_rolled_back_also_over_a_kill_and_a_resume(tmp_path):
    """Only a run shows that the ranks of a group load weights and optimizer of the snapshot that the root has named.

    Of six snapshots, those of the bad phase are a minority, also on a busy machine.
    """
    settings = {
        "marker": str(tmp_path / "worse"),
        "worse_after": 31,  # in the middle of a phase
        "entropy_coefficient": 0.01,
        "learning_rate": 1e-3,
        "learning_rate_schedule": "linear",
    }
    config = {
        "steps": 320_000,  # it learns to cross in 40,000, and gets worse after about 95,000
        "verify_replicas": True,
        "checkpoint": {"every": 0.3},
        "env": {"use": "touchdown", "settings": {"team_size": 1, "max_steps": 300}, "num_envs": 16},
        "policies": {"p": {"use": player("worse:Worse"), "settings": settings}},
        "league": {
            "episodes": 16,
            "publish_every": 0,
            "settings": {
                "categories": {"default": {"main_player": 1}},
                "players": {"main_player": {"one_phase_step": 20_000, "rollback": {"snapshots": 6, "games": 32}}},
            },
        },
    }
    process = start(tmp_path, config)
    while not (tmp_path / "worse-0").exists():
        assert process.poll() is None
        time.sleep(0.02)
    for _ in range(2):  # the first one may hold weights of before
        before, _ = newest(tmp_path)
        while newest(tmp_path)[0] == before and process.poll() is None:
            time.sleep(0.02)
    kill_everything(process)
    succeed(run_arena(tmp_path, config, "--resume"))

    run = RunDirectory(tmp_path / "runs", "run")
    with sqlite3.connect(run.database) as database:
        # A player may lose to later snapshots than that to which it is back, and that may be one of the bad phase, if
        # the phase ended before 32 bad games were reported: then it is rolled back once more.
        rollbacks = "SELECT steps, snapshot FROM rollbacks WHERE player = ? ORDER BY steps"
        *_, (at, snapshot) = database.execute(rollbacks, (MAIN,))
        (path,) = database.execute("SELECT path FROM league_players WHERE player = ?", (snapshot,)).fetchone()
        ((resets,),) = database.execute("SELECT count(*) FROM resets")
        rates = "SELECT value FROM metrics WHERE name = 'learning_rate' AND attempt = 2 ORDER BY updates"
        falling = np.diff([rate for (rate,) in database.execute(rates)])
    assert resets == 0 and 80_000 < at < 320_000
    log = run.arena_log.read_text("utf-8")
    assert f"{MAIN} has got worse: it took" in log and f"it is rolled back to {snapshot}" in log
    assert (falling <= 0).all(), "the learning rate goes on where it was"

    *_, last = run.snapshots(MAIN)
    for file in (run.path / path, last):
        assert np.abs(read_tensors(file)["policy_head.bias"]).max() < 100, "nothing of the bad phase is left"
    kept = sorted(int(file.stem) for file in (run.players / MAIN / "states").glob("*.safetensors"))
    assert len(kept) == 6, "only states that it may be rolled back to are kept"
    state = read_tensors(training_state_of(run.snapshot(MAIN, kept[-1])))
    assert state["adam.steps"] > 0 and np.abs(state["adam.second"]).max() > 0
