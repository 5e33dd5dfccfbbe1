"""With ``fault_tolerance: ulfm`` ranks that die do not end a run, and one that fails for its own reason still does."""

import os
import signal
import sys
import time

import pytest

from arena.records.checkpoints import Checkpoints
from arena.records.readers.run import open_records
from benchmarks.determinism import manifests
from benchmarks.survival import BOUND, configuration, lose, roles
from benchmarks.tools.observing import Observed

from .launching import OPEN_MPI_AS_ROOT, player, run_arena, run_mpirun, succeed, write_config

pytestmark = pytest.mark.rooms("launch", "comms")

ENDLESS = 10**9
"""A budget that no run here comes to the end of."""


@pytest.mark.slow
@pytest.mark.tier("default")
def test_a_worker_an_environment_process_and_a_spare_die_and_the_others_go_on(tmp_path):
    """Twelve ranks that compare their weights after every update."""
    run = Observed(tmp_path, {**configuration(ENDLESS), "checkpoint": {"every": 600}, "records": {"plots": False}})
    try:
        run.wait_for_updates(3)
        assert sum(part.startswith("idle") for part in roles(run).values()) == 1
        losses = [lose(run, "worker", updates=3)]
        playing = [part for part in roles(run).values() if part.startswith(("worker", "environment"))]
        assert len(playing) == 11, "ten, of which the spare is one, and the dead one's last word"
        losses += [lose(run, role, updates=3) for role in ("environment", "idle")]
        assert run.stop() == 0, run.tail(60)
        assert [loss.ranks for loss in losses] == [11, 10, 9]
        # Measured by benchmarks.survival; here only that nobody waits for a timeout.
        assert all(loss.seconds is not None and loss.seconds < 10 * BOUND for loss in losses), losses
        for name, seen, updates in run.ask(
            "SELECT player, count(DISTINCT updates), max(updates) FROM metrics GROUP BY player"
        ):
            assert updates - seen <= 3, f"{name}: a death costs the records at most the reports that were under way"
        assert run.left_behind() == {}
        dead = run.ask("SELECT rank, role FROM faults WHERE what = 'died'")
        assert [role.split(" ")[0] for _, role in dead] == ["worker", "environment", "idle"]
    finally:
        run.end()


def test_others_outlive_a_worker_that_steps_its_own_environment(tmp_path):
    config = {
        "steps": ENDLESS,
        "fault_tolerance": "ulfm",
        "env": {"use": "gymnasium:CartPole-v1", "num_envs": 4, "in_worker": True},
        "policies": {"p": {"use": "ppo", "settings": {"horizon": 32}}},
        "matches": [{"seats": ["p"], "replicas": 3}],
        "verify_replicas": True,
    }
    run = Observed(tmp_path, config)
    try:
        run.wait_for_updates(3)
        lose(run, "worker", updates=3)
        assert run.stop() == 0, run.tail(60)
        (dead,) = run.ask("SELECT role FROM faults WHERE what = 'died'")
        assert dead[0].endswith("with its environment")
        assert run.left_behind() == {}
    finally:
        run.end()


def apart(steps, learners, **more):
    """Workers that step their own environments, and their learners."""
    return {
        "steps": steps,
        "fault_tolerance": "ulfm",
        "env": {"use": "gymnasium:CartPole-v1", "num_envs": 4, "in_worker": True},
        "policies": {"p": {"use": "ppo", "learners": learners, "max_lag": 2, "settings": {"horizon": 32}}},
        "matches": [{"seats": ["p"], "replicas": 4}],
        "verify_replicas": True,
        **more,
    }


def test_others_outlive_a_worker_and_one_of_its_learners(tmp_path):
    run = Observed(tmp_path, apart(ENDLESS, 2))
    try:
        run.wait_for_updates(3)
        lose(run, "worker", updates=3)
        lose(run, "learner", updates=3)
        assert run.stop() == 0, run.tail(60)
        roles_of_dead = sorted(role.split(" ")[0] for (role,) in run.ask("SELECT role FROM faults WHERE what = 'died'"))
        assert roles_of_dead == ["learner", "worker"]
        counts = dict(run.ask("SELECT name, value FROM metrics WHERE name LIKE 'experience/%'"))
        assert counts["experience/sent"] == counts["experience/learned"] + counts["experience/dropped"]
        assert run.left_behind() == {}
    finally:
        run.end()


def test_a_player_whose_only_learner_dies_goes_on_from_the_last_checkpoint(tmp_path):
    """It also spends its budget: the runs above are stopped."""
    steps = 200_000
    # The next checkpoint is seconds away when the learner is killed, also on a busy machine.
    run = Observed(tmp_path, apart(steps, 1, checkpoint={"every": 3.0}))
    try:
        while not manifests(run.directory):
            assert run.process.poll() is None, run.tail()
            time.sleep(0.05)
        run.wait_for_updates(run.updates() + 2)  # which the checkpoint does not have
        lose(run, "learner", updates=3)
        assert run.wait(120) == 0, run.tail(60)
        log = (run.directory / "log/arena.log").read_text()
        assert "no rank has the state of p: it goes back from" in log
        assert "p is finished after 2" in log
        assert run.left_behind() == {}
    finally:
        run.end()


def test_the_roots_death_ends_the_run_and_what_was_checkpointed_goes_on(tmp_path):
    config = {
        "steps": ENDLESS,
        "fault_tolerance": "ulfm",
        "checkpoint": {"every": 0.2},
        "env": {"use": "gymnasium:CartPole-v1", "num_envs": 4},
        "policies": {"p": {"use": "ppo", "settings": {"horizon": 32}}},
        "matches": [{"seats": ["p"]}],
    }
    run = Observed(tmp_path, config)
    try:
        run.wait_for_updates(4)
        while not manifests(run.directory):
            assert run.process.poll() is None, run.tail()
            time.sleep(0.05)
        os.kill(run.pid_of("rank 0"), signal.SIGKILL)
        assert run.wait(60) not in (0, None), run.tail()
        assert "the root (rank 0) has died" in run.tail(200)
        assert run.left_behind() == {}
    finally:
        run.end()
    newest = Checkpoints(run.directory / "checkpoints").newest()
    assert newest is not None
    steps = max(newest.manifest["steps"].values()) + 2_000
    outcome = succeed(run_arena(tmp_path, {**config, "name": "run", "steps": steps}, "--resume"))
    with open_records(outcome.directory / "arena.sqlite") as connection:
        assert connection.execute("SELECT checkpoint FROM runs WHERE attempt = 2").fetchone() == (
            newest.manifest["number"],
        )


def test_a_policy_that_fails_still_ends_a_tolerant_run_with_its_message(tmp_path):
    config = {
        "steps": 400,
        "fault_tolerance": "ulfm",
        "env": {"use": "gymnasium:CartPole-v1"},
        "policies": {"p": {"use": player("behaviours:Raises")}},
        "matches": [{"seats": ["p"]}],
    }
    outcome = run_arena(tmp_path, config, timeout=60)
    assert outcome.code == 1
    assert "worker of player 'p' failed" in outcome.errors


def test_without_mpiruns_flag_a_run_says_that_it_will_not_outlive_a_rank(tmp_path):
    config = {
        "steps": 400,
        "fault_tolerance": "ulfm",
        "env": {"use": "gymnasium:CartPole-v1"},
        "policies": {"p": {"use": "random"}},
        "matches": [{"seats": ["p"]}],
    }
    path = write_config(tmp_path, config)
    mpirun = os.path.join(os.path.dirname(sys.executable), "mpirun")
    line = [mpirun, "--oversubscribe", "-n", "3", sys.executable, "-m", "arena.launch", str(path)]
    done = run_mpirun(line, timeout=60, env={**os.environ, **OPEN_MPI_AS_ROOT})
    assert done.returncode == 0, done.stderr
    assert "started without --with-ft ulfm" in done.stderr
