"""An interrupted run loses nothing that a checkpoint holds, and goes on where it was."""

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from arena.launch.leftovers import in_use, segments
from arena.learning.weights import read_tensors
from benchmarks.determinism import descendants

from .launching import failed_to_start, player, run_arena, succeed, write_config

BUDGET = 40_000


def cartpole(**more):
    return {
        "steps": BUDGET,
        "checkpoint": {"every": 0.5, "keep": 2},
        "env": {"use": "gymnasium:CartPole-v1", "num_envs": 8},
        "policies": {"p": {"use": "ppo", "settings": {"horizon": 64, "epochs": 10}}},
        "matches": [{"seats": ["p"], "replicas": 2}],
        **more,
    }


def start(place, config, *arguments, under_mpirun=False):
    """Start a run and return once it has written a checkpoint."""
    path = write_config(place, config)
    line = [sys.executable, "-m", "arena.launch", str(path), *arguments]
    if under_mpirun:
        line = [os.path.join(os.path.dirname(sys.executable), "mpirun"), "--oversubscribe", "-n", "5", *line]
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        line,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **root},
        start_new_session=True,
    )
    checkpoints = place / "runs/run/checkpoints"
    known = {p.name for p in checkpoints.glob("[0-9]*")} if checkpoints.exists() else set()
    deadline = time.monotonic() + 150
    while not {p.parent.name for p in checkpoints.glob("*/manifest.json")} - known:
        if process.poll() is not None:
            said = process.communicate()
            assert under_mpirun and failed_to_start(said[1]), said
            return start(place, config, *arguments, under_mpirun=True)
        assert time.monotonic() < deadline, "no checkpoint was written"
        time.sleep(0.05)
    return process


def newest(place):
    checkpoints = place / "runs/run/checkpoints"
    number = max(int(path.parent.name) for path in checkpoints.glob("[0-9]*/manifest.json"))
    return checkpoints / str(number), json.loads((checkpoints / str(number) / "manifest.json").read_text())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_checkpoints_and_ends_with_zero_and_resume_finishes_the_budget(tmp_path, number):
    process = start(tmp_path, cartpole())
    process.send_signal(number)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 0, errors
    _, manifest = newest(tmp_path)
    assert 0 < manifest["round_steps"]["p"] < BUDGET
    assert not manifest["finished"]
    outcome = succeed(run_arena(tmp_path, cartpole(), "--resume"))
    _, after = newest(tmp_path)
    step = 2 * 8 * 64  # two workers, eight copies, one horizon
    assert BUDGET <= after["round_steps"]["p"] < BUDGET + step
    with sqlite3.connect(outcome.directory / "arena.sqlite") as database:
        attempts = database.execute("SELECT attempt, exit, resumed FROM runs").fetchall()
        updates = database.execute("SELECT count(DISTINCT updates), max(updates) FROM metrics").fetchone()
    assert [attempt[:2] for attempt in attempts] == [(1, 0), (2, 0)]
    assert json.loads(attempts[1][2]) == {"p": manifest["round_steps"]["p"]}
    assert updates[0] == updates[1] == after["updates"]["p"], "an update is missing from the records, or counted twice"


@pytest.mark.parametrize("in_worker", [False, True])
def test_policies_that_run_themselves_end_in_good_order_wherever_a_signal_meets_them(tmp_path, in_worker):
    """One worker hears of it from its environment, the other one from the first, in the midst of an average."""
    policy = {"use": player("behaviours:Averages"), "settings": {"updates": 10**9, "early": 10**9}}
    config = {**cartpole(), "policies": {"p": policy}}
    config["env"] = {"use": "gymnasium:CartPole-v1", "in_worker": in_worker}
    process = start(tmp_path, config)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 0, errors


def test_sigusr1_to_mpirun_itself_checkpoints_and_ends_with_zero(tmp_path):
    process = start(tmp_path, cartpole(), under_mpirun=True)
    process.send_signal(signal.SIGUSR1)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 0, errors


def test_what_a_batch_script_starts_goes_on_by_itself_and_says_whether_it_was_stopped(tmp_path):
    """One command for every attempt of a job: a fresh one, one after a signal, and one after the end."""
    options = ("--resume-or-start", "--stopped-code", "85")
    process = start(tmp_path, cartpole(), *options)
    process.send_signal(signal.SIGUSR1)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 85, errors
    _, manifest = newest(tmp_path)
    second = succeed(run_arena(tmp_path, cartpole(), *options))
    _, after = newest(tmp_path)
    assert after["round_steps"]["p"] >= BUDGET and after["updates"]["p"] > manifest["updates"]["p"]
    assert "resumed from checkpoint" in (second.directory / "log/arena.log").read_text()
    succeed(run_arena(tmp_path, cartpole(), *options))
    assert newest(tmp_path)[1]["updates"] == after["updates"]


def test_everything_killed_goes_on_from_the_newest_whole_checkpoint(tmp_path):
    process = start(tmp_path, cartpole(steps=2_000_000))
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=30)
    time.sleep(1)  # mpirun lives in a session of its own and ends when its parent is gone
    path, manifest = newest(tmp_path)
    steps = manifest["round_steps"]["p"]
    outcome = succeed(run_arena(tmp_path, cartpole(steps=steps + 5000), "--resume"))
    assert f"resumed from checkpoint {path}" in (outcome.directory / "log/arena.log").read_text()
    _, after = newest(tmp_path)
    assert after["round_steps"]["p"] >= steps + 5000


def test_only_the_last_checkpoints_are_kept(tmp_path):
    succeed(run_arena(tmp_path, cartpole(checkpoint={"every": 0.2, "keep": 2})))
    assert len(list((tmp_path / "runs/run/checkpoints").iterdir())) == 2


def test_a_finished_run_resumes_to_nothing_and_to_more_with_a_larger_budget(tmp_path):
    succeed(run_arena(tmp_path, cartpole(steps=3000)))
    _, first = newest(tmp_path)
    succeed(run_arena(tmp_path, cartpole(steps=3000), "--resume"))
    _, second = newest(tmp_path)
    assert second["updates"] == first["updates"]
    succeed(run_arena(tmp_path, cartpole(steps=6000), "--resume"))
    _, third = newest(tmp_path)
    assert third["updates"]["p"] > first["updates"]["p"]


def test_between_rounds_the_best_player_is_copied_over_the_others(tmp_path):
    settings = {"horizon": 32, "epochs": 1}
    config = {
        "steps": 2000,
        "env": {"use": "gymnasium:CartPole-v1", "num_envs": 4},
        "policies": {
            "a": {"use": "ppo", "settings": settings},
            "b": {"use": "ppo", "settings": settings},
            "c": {"use": "ppo", "settings": {**settings, "learning_rate": 1e-12}},
        },
        "rounds": [
            {"matches": [{"seats": [name]} for name in "abc"], "copy": {"others": "best"}},
            # In the second round nobody learns anything to speak of: what they play with is what they were given.
            {"matches": [{"seats": [name]} for name in "abc"], "steps": 1},
        ],
    }
    for name in "ab":
        config["policies"][name]["settings"] = {**settings, "learning_rate": 1e-12}
    outcome = succeed(run_arena(tmp_path, config))
    with sqlite3.connect(outcome.directory / "arena.sqlite") as database:
        copies = json.loads(database.execute("SELECT copies FROM rounds WHERE round = 1").fetchone()[0])
    assert len(copies) == 2
    best = set(copies.values()).pop()
    final = {name: read_tensors(max((outcome.directory / "players" / name).iterdir(), key=_steps)) for name in "abc"}
    for name in copies:
        for key, value in final[best].items():
            np.testing.assert_allclose(final[name][key], value, atol=1e-6)


def _steps(path):
    return int(path.stem)


def ranks_of(process):
    """Return the process ids of a run's ranks, by rank."""
    found = {}
    for pid in descendants(process.pid):
        with contextlib.suppress(OSError):
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            found.update({int(v[21:]): pid for v in variables if v.startswith(b"OMPI_COMM_WORLD_RANK=")})
    return found


def test_a_killed_rank_is_named_and_the_run_starts_again_by_itself(tmp_path):
    process = start(tmp_path, cartpole(), "--restarts", "1")
    os.kill(ranks_of(process)[2], signal.SIGSEGV)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert (
        "error: rank 2 on" in errors and "(worker of player 'p' on seat 0 of match 0) was killed by signal 11" in errors
    )
    assert "restart 1 of 1, from the newest checkpoint" in errors
    assert newest(tmp_path)[1]["round_steps"]["p"] >= BUDGET
    with sqlite3.connect(tmp_path / "runs/run/arena.sqlite") as database:
        assert database.execute("SELECT count(*) FROM runs WHERE checkpoint IS NOT NULL").fetchone() == (1,)


@pytest.mark.parametrize("rank", [0, 1])
def test_whichever_rank_is_killed_the_run_ends_soon_and_leaves_nothing(tmp_path, rank):
    process = start(tmp_path, cartpole(steps=2_000_000))
    ranks = ranks_of(process)
    os.kill(ranks[rank], signal.SIGKILL)
    _, errors = process.communicate(timeout=20)
    assert process.returncode not in (0, 2), errors
    part = "root" if rank == 0 else "environment process of match 0"
    assert f"({part}) was killed by signal 9 (SIGKILL); the last checkpoint stands: go on with --resume" in errors
    assert not [pid for pid in ranks.values() if Path(f"/proc/{pid}/exe").exists()]


def maps(pid, path):
    return str(path) in Path(f"/proc/{pid}/maps").read_text()


def test_a_killed_mpirun_is_named_and_takes_all_ranks_along(tmp_path):
    process = start(tmp_path, cartpole(steps=2_000_000))
    ranks = ranks_of(process)
    files = [path for path in segments() & in_use() if any(maps(pid, path) for pid in ranks.values())]
    assert files, "there is nothing to be left behind: what does Open MPI call its segments now?"
    (mpirun,) = [pid for pid in descendants(process.pid)[1:] if pid not in ranks.values()]
    os.kill(mpirun, signal.SIGKILL)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 137
    assert "error: mpirun was killed by signal 9 (SIGKILL), and with it all ranks" in errors
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{pid}/exe").exists() for pid in ranks.values()):
        assert time.monotonic() < deadline, "ranks outlive their mpirun"
        time.sleep(0.05)
    assert not [path for path in files if path.exists()]
