"""The proxies are true Gymnasium and PettingZoo environments: they pass each library's checks, across processes."""

import pytest

from .launching import player, run_arena, succeed

pytestmark = pytest.mark.rooms("worker", "protocol")

ENVIRONMENTS = ["CartPole-v1", "Acrobot-v1", "MountainCarContinuous-v0", "Pendulum-v1", "Blackjack-v1", "Taxi-v4"]


def table(policy, rows):
    """A table with a match for each row of settings and keys of ``env``, each with a policy of its own."""
    return {
        "steps": 1_000_000,
        "env": {"use": "gymnasium:CartPole-v1"},
        "policies": {f"checker{i}": {"use": policy, "settings": settings} for i, (settings, _) in enumerate(rows)},
        "matches": [{"seats": [f"checker{i}"], "env": env} for i, (_, env) in enumerate(rows)],
        "records": {"output": "terminal"},
    }


@pytest.mark.tier("default")
def test_gymnasiums_check_env_passes_on_the_single_entity_proxy(tmp_path):
    """The proxy lives between two ranks of a run: one run has all environments."""
    rows = [({}, {"use": f"gymnasium:{name}", "num_envs": 1}) for name in ENVIRONMENTS]
    output = succeed(run_arena(tmp_path, table(player("conformance:ChecksGymnasium"), rows))).output
    assert output.count("check_env passed") == len(rows)


@pytest.mark.tier("default")
def test_the_vector_proxy_does_what_sync_vector_env_does(tmp_path):
    """In both modes of autoreset, with episodes that end and that are cut."""
    rows = []
    for name in ("CartPole-v1", "Blackjack-v1", "MountainCarContinuous-v0"):
        for mode in ("next_step", "same_step"):
            more = {"max_episode_steps": 50} if name == "MountainCarContinuous-v0" else {}
            settings = {"use": f"gymnasium:{name}", "mode": mode, "env_settings": more}
            env = {"use": f"gymnasium:{name}", "num_envs": 5, "autoreset": mode, "settings": more}
            rows.append((settings, env))
    output = succeed(run_arena(tmp_path, table(player("conformance:ComparesWithSyncVectorEnv"), rows))).output
    assert output.count("identical to SyncVectorEnv") == len(rows)


@pytest.mark.tier("default")
def test_pettingzoos_api_and_seed_tests_pass_on_the_several_entity_proxy(tmp_path):
    env = {"use": "pettingzoo:mpe2.simple_tag_v3", "num_envs": 2, "batches": 2}
    config = table(player("conformance:ChecksParallel"), [({}, env)])
    config["matches"][0]["seats"] = [["checker0"] * 4]
    output = succeed(run_arena(tmp_path, config)).output
    assert "parallel_api_test passed" in output
    assert "parallel_seed_test passed" in output
