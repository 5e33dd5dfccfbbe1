"""A worker that steps its match's environment itself: the same play and the same learning, on one rank less."""

import sqlite3
from pathlib import Path

import pytest

from .launching import player, run_arena, succeed

pytestmark = pytest.mark.rooms("worker", "environment")

PLANT = f"{Path(__file__).parents[2] / 'benchmarks' / 'tools' / 'fault_injection.py'}:plant"


def cartpole(policy, **env):
    """One match of one seat."""
    return {
        "steps": 3_000,
        "env": {"use": "gymnasium:CartPole-v1", "num_envs": 4, "in_worker": True, **env},
        "policies": {"p": policy},
        "matches": [{"seats": ["p"]}],
    }


@pytest.mark.parametrize("autoreset", ["next_step", "same_step"])
def test_a_vector_proxy_is_gymnasium_s_own_vector(tmp_path, autoreset):
    settings = {"use": "gymnasium:CartPole-v1", "mode": autoreset}
    policy = {"use": player("conformance:ComparesWithSyncVectorEnv"), "settings": settings}
    outcome = succeed(run_arena(tmp_path, cartpole(policy, autoreset=autoreset)))
    assert "identical to SyncVectorEnv" in outcome.output


def test_other_proxies_keep_to_their_libraries_checks(tmp_path):
    config = cartpole({"use": player("conformance:ChecksGymnasium")}, num_envs=1)
    assert "check_env passed" in succeed(run_arena(tmp_path, config)).output
    config = cartpole({"use": player("conformance:ChecksParallel")}, use="pettingzoo:mpe2.simple_tag_v3", num_envs=1)
    config["matches"] = [{"seats": [["p"] * 4]}]
    assert "parallel_api_test passed" in succeed(run_arena(tmp_path, {**config, "name": "parallel"})).output


@pytest.mark.tier("default")
def test_a_copy_that_raises_is_replaced(tmp_path):
    faults = {"use": PLANT, "settings": {"tickets": str(tmp_path / "tickets"), "faults": [["raise", 30], ["nan", 60]]}}
    outcome = succeed(run_arena(tmp_path, cartpole({"use": "ppo"}, wrappers=[faults])))
    with sqlite3.connect(outcome.directory / "arena.sqlite") as database:
        causes = database.execute("SELECT cause FROM episodes WHERE cause IS NOT NULL ORDER BY cause").fetchall()
    assert [cause.partition(" ")[0].startswith("fault:") for (cause,) in causes] == [True, True]


def test_an_environment_that_cannot_be_made_is_the_user_s_mistake(tmp_path):
    outcome = run_arena(tmp_path, cartpole({"use": "ppo"}, settings={"nonsense": 1}))
    assert outcome.code == 2
    assert "nonsense" in outcome.errors
    assert "Traceback" not in outcome.errors


def test_a_policy_that_steps_in_another_thread_is_told_so(tmp_path):
    outcome = run_arena(tmp_path, cartpole({"use": player("behaviours:StepsElsewhere")}, num_envs=1))
    assert outcome.code == 2
    assert "env.in_worker: expected a policy that steps in the main thread, found another one" in outcome.errors


def test_what_the_environment_raises_is_not_lost_on_a_policy_that_goes_on(tmp_path):
    faults = {"use": PLANT, "settings": {"tickets": str(tmp_path / "tickets"), "faults": [["raise", 3]]}}
    config = cartpole({"use": player("behaviours:Swallows")}, wrappers=[faults], max_retry=0, num_envs=1)
    outcome = run_arena(tmp_path, config)
    assert outcome.code == 1
    assert "planted" in outcome.errors
    assert "HangError" not in outcome.errors


def test_who_hangs_with_python_s_lock_ends_the_run_with_its_stack(tmp_path):
    wrapper = {"use": player("games:HoldsTheLock")}
    config = cartpole({"use": "ppo"}, wrappers=[wrapper])
    config["waits"] = {"warn_after": 2, "abort_after": 4}
    outcome = run_arena(tmp_path, config)
    assert outcome.code not in (0, 2)
    assert "in step" in outcome.errors, "the stack shows where"
    assert outcome.seconds < 60


@pytest.mark.parametrize("hangs", ["environment", "policy"])
def test_who_hangs_is_interrupted_and_shown(tmp_path, hangs):
    faults = {"use": PLANT, "settings": {"tickets": str(tmp_path / "tickets"), "faults": [["hang", 30]]}}
    config = cartpole({"use": "ppo"}, wrappers=[faults])
    if hangs == "policy":
        config = cartpole({"use": player("behaviours:Dreams")})
    config["waits"] = {"warn_after": 2, "abort_after": 4}
    outcome = run_arena(tmp_path, config)
    assert outcome.code == 1
    assert f"HangError: waited 4 s for the {hangs} of this rank" in outcome.errors
    assert "time.sleep(" in outcome.errors, "the stack shows where"
    assert (outcome.directory / "log/hang-report.txt").is_file()
    assert outcome.seconds < 60
