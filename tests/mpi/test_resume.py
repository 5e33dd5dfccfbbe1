"""An interrupted run loses nothing that a checkpoint holds, and continues from there."""

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

from arena.launch.leftovers import PLACE
from arena.records.run_directory import RunDirectory
from arena.tensors.weights import read_tensors
from benchmarks.determinism import descendants, kill_everything, manifests

from .launching import failed_to_start, player, run_arena, run_mpirun, succeed, write_config

pytestmark = pytest.mark.rooms("records", "root", "launch")

ENDLESS = 10**9
"""A budget that no run here comes to the end of."""

STEP = 2 * 8 * 64
"""Steps of an update of ``cartpole``: two workers, eight copies, one horizon."""


def cartpole(steps=ENDLESS, **more):
    return {
        "steps": steps,
        "checkpoint": {"every": 0.5, "keep": 2},
        "env": {"use": "gymnasium:CartPole-v1", "num_envs": 8},
        "policies": {"p": {"use": "ppo", "settings": {"horizon": 64, "epochs": 10}}},
        "matches": [{"seats": ["p"], "replicas": 2}],
        **more,
    }


def start(place, config, *arguments, under_mpirun=False):
    """Start a run and return once it has written a checkpoint."""
    path = write_config(place, config)
    # With -u the launcher is no fork of the shared parent, and what it starts are its descendants.
    line = [sys.executable, "-u", "-m", "arena.launch", str(path), *arguments]
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
    known = set(manifests(place / "runs/run"))
    deadline = time.monotonic() + 150
    while not set(manifests(place / "runs/run")) - known:
        if process.poll() is not None:
            said = process.communicate()
            assert under_mpirun and failed_to_start(said[1]), said
            return start(place, config, *arguments, under_mpirun=True)
        assert time.monotonic() < deadline, "no checkpoint was written"
        time.sleep(0.05)
    return process


def newest(place):
    manifest = manifests(place / "runs/run")[-1]
    return manifest.parent, json.loads(manifest.read_text())


@pytest.mark.slow
@pytest.mark.tier("default")
def test_whatever_stops_a_run_it_goes_on_where_it_was_and_finishes_its_budget(tmp_path):
    """One run that is stopped in every way there is: no update is lost, and none is counted twice."""
    job = ("--resume-or-start", "--stopped-code", "85")  # what a batch script starts, the first time and later
    stops = [
        (signal.SIGINT, job, 85),
        (signal.SIGTERM, ("--resume",), 0),
        (signal.SIGHUP, ("--resume",), 0),
        (signal.SIGUSR1, ("--resume",), 0),
        (signal.SIGUSR1, ("--resume",), 0),
    ]
    stopped_at = []
    for attempt, (number, arguments, code) in enumerate(stops, 1):
        to_mpirun = attempt == len(stops)
        process = start(tmp_path, cartpole(), *arguments, under_mpirun=to_mpirun)
        process.send_signal(number)
        if number == signal.SIGHUP:  # a terminal that closes sends one, and its shell another
            time.sleep(0.01)
            process.send_signal(number)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == code, errors
        _, manifest = newest(tmp_path)
        assert not manifest["finished"]
        stopped_at.append(manifest["round_steps"]["p"])
    budget = stopped_at[-1] + 3_000
    outcome = succeed(run_arena(tmp_path, cartpole(steps=budget), *job))
    _, after = newest(tmp_path)
    assert after["finished"] and budget <= after["round_steps"]["p"] < budget + STEP
    assert "resumed from checkpoint" in (outcome.directory / "log/arena.log").read_text()
    with sqlite3.connect(outcome.directory / "arena.sqlite") as database:
        attempts = database.execute("SELECT attempt, exit, resumed FROM runs").fetchall()
        updates = database.execute("SELECT count(DISTINCT updates), max(updates) FROM metrics").fetchone()
    assert [attempt[:2] for attempt in attempts] == [(number, 0) for number in range(1, 7)]
    assert [json.loads(resumed)["p"] for _, _, resumed in attempts[1:]] == stopped_at
    assert updates[0] == updates[1] == after["updates"]["p"], "an update is missing from the records, or counted twice"

    # What is finished has nothing left to do, unless its budget grows.
    succeed(run_arena(tmp_path, cartpole(steps=budget), *job))
    assert newest(tmp_path)[1]["updates"] == after["updates"]
    succeed(run_arena(tmp_path, cartpole(steps=budget + 3_000), "--resume"))
    assert newest(tmp_path)[1]["updates"]["p"] > after["updates"]["p"]
    assert len(list((outcome.directory / "checkpoints").iterdir())) == 2, "only the last two are to be kept"


@pytest.mark.parametrize("in_worker", [False, True])
def test_policies_that_run_themselves_end_in_good_order_wherever_a_signal_meets_them(tmp_path, in_worker):
    """One worker learns of the signal from its environment, the other from the first one, during an average."""
    policy = {"use": player("groups:Averages"), "settings": {"updates": 10**9, "early": 10**9}}
    config = {**cartpole(), "policies": {"p": policy}}
    config["env"] = {"use": "gymnasium:CartPole-v1", "in_worker": in_worker}
    process = start(tmp_path, config)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors


def test_everything_killed_goes_on_from_the_newest_whole_checkpoint(tmp_path):
    """Beside it, before, neither a start nor a resume of the same run is taken; after, nothing is to be removed."""
    process = start(tmp_path, cartpole())
    line = [sys.executable, "-m", "arena.launch", str(tmp_path / "config.yaml")]
    under_mpirun = [os.path.join(os.path.dirname(sys.executable), "mpirun"), "--oversubscribe", "-n", "5", *line]
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    for refused in (line, [*line, "--resume"], [*under_mpirun, "--resume"]):
        done = run_mpirun(refused, timeout=60, env={**os.environ, **root})
        assert done.returncode == 2 and "run is being written by rank 0 on" in done.stderr, done.stderr
    kill_everything(process)
    path, manifest = newest(tmp_path)
    steps = manifest["round_steps"]["p"]
    outcome = succeed(run_arena(tmp_path, cartpole(steps=steps + 3_000), "--resume"))
    assert f"resumed from checkpoint {path}" in (outcome.directory / "log/arena.log").read_text()
    _, after = newest(tmp_path)
    assert after["round_steps"]["p"] >= steps + 3_000


def test_a_replay_goes_on_with_new_episodes_and_another_number_of_copies(tmp_path):
    """Episodes that were open when the run stopped have no outcome; a resumed run does not wait for one or invent one.

    Nor does it take a default in place of what it began with, where the file does not say.
    """
    settings = {"warmup": 200, "n_step": 4, "horizon": 8, "capacity": 2_000, "batch_size": 32, "ratio": 0.25}
    config = {**cartpole(1_500), "policies": {"p": {"use": "dqn", "settings": settings}}, "verify_replicas": True}
    succeed(run_arena(tmp_path, config))
    parts = [read_tensors(newest(tmp_path)[0] / f"p.{worker}.replay.safetensors") for worker in (0, 1)]
    assert [len(part["rows"]) for part in parts] == [int(part["appended"]) for part in parts]
    gradient_steps = int(read_tensors(newest(tmp_path)[0] / "p.safetensors")["gradient_steps"])
    assert abs(gradient_steps - 0.25 * 1_300) < 40
    del settings["ratio"]
    fewer = {**config, "steps": 3_000, "env": {**config["env"], "num_envs": 5}}
    outcome = succeed(run_arena(tmp_path, fewer, "--resume"))
    assert "as the file does not say otherwise: policies.p.settings.ratio=0.25" in outcome.output
    path, manifest = newest(tmp_path)
    steps = manifest["steps"]["p"]
    assert (
        abs(int(read_tensors(path / "p.safetensors")["gradient_steps"]) - gradient_steps - 0.25 * (steps - 1_500)) < 40
    )
    assert all(np.isfinite(array).all() for array in read_tensors(path / "p.safetensors").values())


@pytest.mark.tier("default")
def test_between_rounds_the_best_player_is_copied_over_the_others(tmp_path):
    settings = {"horizon": 32, "epochs": 1, "normalize_observations": False}
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
    final = {name: read_tensors(RunDirectory.existing(outcome.directory).snapshots(name)[-1]) for name in "abc"}
    for name in copies:
        for key, value in final[best].items():
            np.testing.assert_allclose(final[name][key], value, atol=1e-6)


def ranks_of(process):
    """Return the process ids of a run's ranks, by rank."""
    found = {}
    for pid in descendants(process.pid):
        with contextlib.suppress(OSError):
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            found.update({int(v[21:]): pid for v in variables if v.startswith(b"OMPI_COMM_WORLD_RANK=")})
    return found


@pytest.mark.tier("default")
def test_a_killed_rank_is_named_and_the_run_starts_again_by_itself(tmp_path):
    process = start(tmp_path, cartpole(steps=30_000), "--restarts", "1")
    os.kill(ranks_of(process)[2], signal.SIGSEGV)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert (
        "error: rank 2 on" in errors and "(worker of player 'p' on seat 0 of match 0) was killed by signal 11" in errors
    )
    assert "restart 1 of 1, from the newest checkpoint" in errors
    assert newest(tmp_path)[1]["round_steps"]["p"] >= 30_000
    with sqlite3.connect(tmp_path / "runs/run/arena.sqlite") as database:
        assert database.execute("SELECT count(*) FROM runs WHERE checkpoint IS NOT NULL").fetchone() == (1,)


@pytest.mark.parametrize("rank", [0, 1])
def test_whichever_rank_is_killed_the_run_ends_soon_and_leaves_nothing(tmp_path, rank):
    process = start(tmp_path, cartpole())
    ranks = ranks_of(process)
    os.kill(ranks[rank], signal.SIGKILL)
    _, errors = process.communicate(timeout=60)
    assert process.returncode not in (0, 2), errors
    part = "root" if rank == 0 else "environment process of match 0"
    assert f"({part}) was killed by signal 9 (SIGKILL); the last checkpoint stands: continue with --resume" in errors
    assert not [pid for pid in ranks.values() if Path(f"/proc/{pid}/exe").exists()]


def mapped(pid):
    """Return the files in shared memory by which a process exchanges messages with other ranks."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {Path(line[line.index(f"{PLACE}/") :]) for line in lines if f"{PLACE}/" in line and "sm_segment" in line}


def test_a_killed_mpirun_is_named_and_takes_all_ranks_along(tmp_path, monkeypatch):
    monkeypatch.setenv("ARENA_START", "spawn")  # the processes below mpirun are the ranks themselves
    process = start(tmp_path, cartpole())
    ranks = ranks_of(process)
    files = set().union(*(mapped(pid) for pid in ranks.values()))
    assert files, "there is nothing to be left behind: what does Open MPI call its segments now?"
    (folder,) = {path.parent for path in files}
    assert folder.parent == PLACE, "the files of two runs may have the same names"
    (mpirun,) = [pid for pid in descendants(process.pid)[1:] if pid not in ranks.values()]
    os.kill(mpirun, signal.SIGKILL)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 137
    assert "error: mpirun was killed by signal 9 (SIGKILL), and with it all ranks" in errors
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{pid}/exe").exists() for pid in ranks.values()):
        assert time.monotonic() < deadline, "ranks outlive their mpirun"
        time.sleep(0.05)
    assert not folder.exists()
