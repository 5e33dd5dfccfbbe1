"""A user's mistake gives one clear message, exit code 2 and no traceback, before any learning."""

import os
import subprocess
import sys

import pytest

from .launching import OPEN_MPI_AS_ROOT, player, run_arena, run_mpirun, write_config

pytestmark = pytest.mark.rooms("config", "launch")

GOOD = {
    "steps": 200,
    "env": {"use": "touchdown", "settings": {"team_size": 1, "max_steps": 40}},
    "policies": {"blue": {"use": "ppo", "settings": {"horizon": 16}}, "red": {"use": "random"}},
    "matches": [{"seats": ["blue", "red"]}],
}


def changed(**changes):
    return {**GOOD, **changes}


def learns_from_replay(use, **settings):
    return {"blue": {"use": use, "settings": {"warmup": 50, **settings}}, "red": {"use": "random"}}


OWN = {"blue": {"use": player("behaviours:Restless")}, "red": {"use": "random"}}
CASES = {
    "unknown key": (changed(polices={}), ["polices", "did you mean 'policies'"]),
    "unknown setting": (
        changed(policies={"blue": {"use": "ppo", "settings": {"learning_rat": 1}}, "red": {"use": "random"}}),
        ["config.yaml:", "policies.blue.settings.learning_rat", "learning_rate"],
    ),
    "wrong type": (changed(steps="many"), ["steps", "expected", "many"]),
    "unknown environment": (changed(env={"use": "touchdwn"}), ["touchdwn", "did you mean 'touchdown'"]),
    "unknown gymnasium id": (changed(env={"use": "gymnasium:CartPol-v1"}), ["CartPol-v1", "CartPole-v1"]),
    "unknown policy": (
        changed(policies={"blue": {"use": "pppo"}, "red": {"use": "random"}}),
        ["pppo", "did you mean 'ppo'"],
    ),
    "missing package": (
        changed(env={"use": player("wants_a_package:make")}),
        ["a_package_that_is_not_there", "pip install a_package_that_is_not_there"],
    ),
    "seat naming no policy": (changed(matches=[{"seats": ["blue", "rde"]}]), ["rde", "did you mean 'red'"]),
    "entity out of range": (
        changed(matches=[{"seats": ["blue", "red"], "entities": [0, 7]}]),
        ["entity 7 is out of range", "2 entities"],
    ),
    "too many seats": (
        changed(matches=[{"seats": ["blue", "red", "red"]}]),
        ["seats play 3 entities", "has 2 (blue_0, red_0)"],
    ),
    "action space": (
        changed(env={"use": player("wants_a_package:odd_space")}, matches=[{"seats": ["blue"]}]),
        ["action", "Text"],
    ),
    "a policy that runs itself in a deterministic run": (
        changed(deterministic=True, policies=OWN),
        ["deterministic", "separate act from learn", "a loop of its own"],
    ),
    "a policy that runs itself beside copies that may be late": (
        changed(env={**GOOD["env"], "num_envs": 2, "manager": "subprocess", "wait_timeout": 0.1}, policies=OWN),
        ["env.wait_timeout", "separate act from learn", "a loop of its own"],
    ),
    "a copy that is to be left alone in a serial manager": (
        changed(env={**GOOD["env"], "wait_timeout": 0.1}),
        ["env.wait_timeout", "expected manager: subprocess"],
    ),
    "td3 for discrete actions": (
        changed(policies=learns_from_replay("td3")),
        ["entity 'blue_0': td3 expects a Box", "found Discrete(5)", "use dqn (Discrete) or ppo"],
    ),
    "dqn for continuous actions": (
        changed(
            env={"use": "touchdown", "settings": {"team_size": 1, "actions": "continuous"}},
            policies=learns_from_replay("dqn"),
        ),
        ["entity 'blue_0': dqn expects a Discrete", "found Box(", "use sac, td3 or ppo"],
    ),
    "a replay that no memory holds": (
        changed(policies=learns_from_replay("dqn", capacity=10**12)),
        ["policies.blue.settings.capacity", "of this machine, found", "lower capacity"],
    ),
    "a warm-up that lasts for ever": (
        changed(policies=learns_from_replay("dqn", warmup=200)),
        ["policies.blue.settings.warmup", "less than the budget of 200 steps", "found 200"],
    ),
    "a warm-up beyond the replay": (
        changed(policies=learns_from_replay("dqn", warmup=100, capacity=80)),
        ["policies.blue.settings", "a warmup of at most the capacity of 80 transitions, found 100"],
    ),
    "a setting of one's own policy": (
        changed(
            policies={
                "blue": {"use": player("behaviours:Restless"), "settings": {"speed": 3}},
                "red": {"use": "random"},
            }
        ),
        ["policies.blue.settings", "speed"],
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.tier("default")
def test_one_clear_message(tmp_path, case):
    config, told = CASES[case]
    outcome = run_arena(tmp_path, config, timeout=60)
    assert outcome.code == 2, outcome.errors
    assert "Traceback" not in outcome.errors + outcome.output
    for words in told:
        assert words in outcome.errors, outcome.errors
    assert "MPI_ABORT" not in outcome.errors
    assert not outcome.directory.exists(), "a refused run leaves nothing behind"


def under_mpirun(place, config, ranks):
    """Start as on a cluster, with a number of ranks of one's own."""
    mpirun = os.path.join(os.path.dirname(sys.executable), "mpirun")
    line = [mpirun, "--oversubscribe", "-n", str(ranks), sys.executable, "-m", "arena.launch"]
    environment = {**os.environ, **OPEN_MPI_AS_ROOT}
    return run_mpirun([*line, str(write_config(place, config))], timeout=60, env=environment)


@pytest.mark.tier("default")
def test_too_few_ranks_name_the_number_that_is_needed(tmp_path):
    done = under_mpirun(tmp_path, GOOD, 3)
    assert done.returncode == 2
    assert done.stderr.count("needs 4 ranks") == 1
    assert "mpirun -n 4" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_wrong_key_under_mpirun_is_told_once(tmp_path):
    done = under_mpirun(tmp_path, changed(polices={}), 4)
    assert done.returncode == 2
    assert done.stderr.count("polices") == 1
    assert "Traceback" not in done.stderr


def test_a_policy_that_cannot_take_the_action_space(tmp_path):
    config = changed(
        env={"use": "gymnasium:CartPole-v1"},
        policies={"blue": {"use": "sb3", "settings": {"algorithm": "SAC"}}},
        matches=[{"seats": ["blue"]}],
    )
    outcome = run_arena(tmp_path, config, timeout=60)
    assert outcome.code == 2, outcome.errors
    assert "SAC" in outcome.errors
    assert "Discrete" in outcome.errors
    assert "Traceback" not in outcome.errors


@pytest.mark.tier("default")
def test_a_run_that_exists_is_not_overwritten(tmp_path):
    assert run_arena(tmp_path, GOOD).code == 0
    outcome = run_arena(tmp_path, GOOD)
    assert outcome.code == 2
    assert "--resume" in outcome.errors
    assert "Traceback" not in outcome.errors


def test_an_unwritable_run_directory(tmp_path):
    (tmp_path / "runs").write_text("a file in the way")
    outcome = run_arena(tmp_path, GOOD)
    assert outcome.code == 2
    assert "run_root" in outcome.errors
    assert "Traceback" not in outcome.errors


def test_tasks_of_a_bare_srun_do_not_start_an_mpirun_each(tmp_path):
    path = write_config(tmp_path, GOOD)
    done = subprocess.run(
        [sys.executable, "-m", "arena.launch", str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "SLURM_STEP_NUM_TASKS": "6"},
    )
    assert done.returncode == 2
    assert "srun has started 6 tasks that are not connected" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()


def test_under_an_mpirun_of_ones_own_the_checks_are_made_too(tmp_path):
    """The launcher's checks, before any rank takes memory and before there is a run directory."""
    done = under_mpirun(tmp_path, changed(env={**GOOD["env"], "num_envs": 100_000_000}), 4)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("expected a run that fits into the ") == 1
    assert not (tmp_path / "runs").exists()
