"""The proxies are true Gymnasium and PettingZoo environments: each library's own checks say so, across processes."""

import pytest

from .launching import player, run_arena, succeed

pytestmark = pytest.mark.rooms("worker", "protocol")

ENVIRONMENTS = ["CartPole-v1", "Acrobot-v1", "MountainCarContinuous-v0", "Pendulum-v1", "Blackjack-v1", "Taxi-v4"]


def table(use, policy, policy_settings=None, num_envs=1, **env):
    return {
        "steps": 1000,
        "env": {"use": use, "num_envs": num_envs, **env},
        "policies": {"checker": {"use": policy, "settings": policy_settings or {}}},
        "matches": [{"seats": ["checker"]}],
    }


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_gymnasiums_check_env_passes_on_the_single_entity_proxy(tmp_path, name):
    outcome = run_arena(tmp_path, table(f"gymnasium:{name}", player("conformance:ChecksGymnasium")))
    assert "check_env passed" in succeed(outcome).output


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
@pytest.mark.parametrize("name", ["CartPole-v1", "Blackjack-v1", "MountainCarContinuous-v0"])
def test_the_vector_proxy_does_what_sync_vector_env_does(tmp_path, name, mode):
    settings = {"use": f"gymnasium:{name}", "mode": mode}
    if name == "MountainCarContinuous-v0":
        settings["env_settings"] = {"max_episode_steps": 50}
    config = table(
        f"gymnasium:{name}",
        player("conformance:ComparesWithSyncVectorEnv"),
        settings,
        num_envs=5,
        autoreset=mode,
        settings=settings.get("env_settings", {}),
    )
    assert "identical to SyncVectorEnv" in succeed(run_arena(tmp_path, config)).output


def test_pettingzoos_api_and_seed_tests_pass_on_the_several_entity_proxy(tmp_path):
    config = table("pettingzoo:mpe2.simple_tag_v3", player("conformance:ChecksParallel"), num_envs=2, batches=2)
    config["matches"] = [{"seats": [["checker"] * 4]}]
    output = succeed(run_arena(tmp_path, config)).output
    assert "parallel_api_test passed" in output
    assert "parallel_seed_test passed" in output
