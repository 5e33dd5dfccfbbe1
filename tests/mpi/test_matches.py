"""Common failures of matches: early resets and stops, odd actions, remaps, settings per match."""

import json
import re
import sqlite3

import pytest

from .launching import player, run_arena, succeed

pytestmark = pytest.mark.rooms("worker", "environment")

MIRROR = player("games:mirror")


def one_against_one(left, right):
    """Touchdown with one entity on each side."""
    return {
        "steps": 500,
        "env": {"use": "touchdown", "settings": {"team_size": 1, "max_steps": 40}},
        "policies": {"left": left, "right": right},
        "matches": [{"seats": ["left", "right"]}],
    }


def episodes(directory, where="1"):
    with sqlite3.connect(directory / "arena.sqlite") as database:
        return database.execute(f"SELECT length, truncated, cause FROM episodes WHERE {where}").fetchall()


def test_a_seat_that_resets_early_cuts_the_episode_for_all_and_nobody_hangs(tmp_path):
    config = one_against_one(
        {"use": player("behaviours:Restless")},
        {"use": player("behaviours:Steady"), "settings": {"expect_reset_by": 0}},
    )
    outcome = succeed(run_arena(tmp_path, config))
    assert "restless: done" in outcome.output
    cut = episodes(outcome.directory, "cause = 'reset_by:0'")
    assert len(cut) >= 4
    assert all(truncated and length == 3 for length, truncated, _ in cut)


@pytest.mark.parametrize("pinned", [True, False])
def test_a_seat_that_resets_a_vector_of_several_batches_blocks_nobody(tmp_path, pinned):
    """The other seat wants the records of all batches before it answers that its episodes are cut."""
    config = one_against_one({"use": player("behaviours:Restless")}, {"use": player("behaviours:SteadyVector")})
    config["env"] |= {"num_envs": 4, "batches": 2}
    config["pin_matches"] = pinned
    config["matches"][0]["replicas"] = 2
    outcome = succeed(run_arena(tmp_path, config))
    assert outcome.output.count("restless: done") == 2
    assert all(int(steps) >= 4 for steps in re.findall(r"steady: in (\d+) steps", outcome.output))
    cut = episodes(outcome.directory, "cause = 'reset_by:0'")
    assert len(cut) == 2 * 4 * 4  # matches, resets in mid-episode, copies


def test_an_early_reset_beside_a_built_in_policy(tmp_path):
    config = one_against_one({"use": player("behaviours:Restless")}, {"use": "ppo", "settings": {"horizon": 16}})
    outcome = succeed(run_arena(tmp_path, config))
    assert len(episodes(outcome.directory, "cause = 'reset_by:0'")) >= 4


def test_a_policy_that_stops_early_keeps_its_seat_until_the_match_is_over(tmp_path):
    config = one_against_one({"use": player("behaviours:Restless")}, {"use": player("behaviours:Steady")})
    outcome = succeed(run_arena(tmp_path, config))
    assert "it has no act, so random actions are played there" in (outcome.directory / "log/arena.log").read_text()


def test_actions_of_every_shape_arrive_as_they_were_sent(tmp_path):
    kinds = ["grid", "one", "plain", "several", "flags", "nested"]
    config = {
        "steps": 10_000,
        "env": {"use": MIRROR, "settings": {"kinds": kinds}},
        "policies": {f"p{i}": {"use": player("behaviours:Echo"), "settings": {"entities": [i]}} for i in range(6)},
        "matches": [{"seats": [f"p{i}" for i in range(6)]}],
    }
    assert succeed(run_arena(tmp_path, config)).output.count("echo of") == 6


def test_one_seat_may_hold_entities_with_different_spaces(tmp_path):
    config = {
        "steps": 10_000,
        "env": {"use": MIRROR, "settings": {"kinds": ["grid", "one", "nested", "grid"]}},
        "policies": {"all": {"use": player("behaviours:Echo"), "settings": {"entities": [0, 1, 2, 3]}}},
        "matches": [{"seats": [["all"] * 4]}],
    }
    assert "echo of [0, 1, 2, 3]" in succeed(run_arena(tmp_path, config)).output


@pytest.mark.tier("default")
def test_a_sparse_remap_gives_each_seat_its_own_entities(tmp_path):
    config = {
        "steps": 10_000,
        "env": {"use": MIRROR, "settings": {"kinds": ["plain", "grid", "one", "plain", "several"]}},
        "policies": {
            "a": {"use": player("behaviours:Echo"), "settings": {"entities": [4, 1]}},
            "b": {"use": player("behaviours:Echo"), "settings": {"entities": [3]}},
        },
        "matches": [{"seats": [["a", "a"], "b"], "entities": [4, 1, 3]}],
    }
    outcome = succeed(run_arena(tmp_path, config))
    assert "echo of [4, 1]" in outcome.output
    assert "echo of [3]" in outcome.output
    assert "nobody plays" in (outcome.directory / "log/arena.log").read_text()


@pytest.mark.tier("default")
def test_settings_of_a_match_reach_all_its_replicas_and_no_other_match(tmp_path):
    config = {
        "steps": 10_000,
        "env": {"use": MIRROR, "settings": {"kinds": ["plain"]}},
        "policies": {
            "seven": {"use": player("behaviours:Echo"), "settings": {"entities": [0], "mark": 7}},
            "none": {"use": player("behaviours:Echo"), "settings": {"entities": [0], "mark": 0}},
        },
        "matches": [
            {"seats": ["seven"], "replicas": 2, "env": {"settings": {"mark": 7}}},
            {"seats": ["none"], "replicas": 2},
        ],
    }
    output = succeed(run_arena(tmp_path, config)).output
    assert output.count("echo of [0] with mark 7") == 2
    assert output.count("echo of [0] with mark 0") == 2


@pytest.mark.tier("default")
def test_a_worker_that_raises_ends_the_whole_job_in_seconds_and_is_named(tmp_path):
    outcome = run_arena(tmp_path, one_against_one({"use": player("behaviours:Raises")}, {"use": "random"}))
    assert outcome.code not in (0, 2)
    assert outcome.seconds < 30  # far from any timeout, on a busy machine too
    assert outcome.errors.count("ZeroDivisionError: a planted mistake") == 1
    assert re.search(r"error: rank 2 on \S+, worker of player 'left' failed", outcome.errors)


def test_twenty_rounds_leak_no_communicators_and_streams_differ_between_workers(tmp_path):
    config = {
        "steps": 20,
        "env": {"use": "touchdown", "settings": {"team_size": 1, "max_steps": 40}},
        "policies": {"both": {"use": player("groups:Looks")}},
        "rounds": [{"matches": [{"seats": ["both", "both"]}], "repeat": 20}],
        "records": {"output": "terminal"},
    }
    outcome = succeed(run_arena(tmp_path, config, timeout=200))
    handles = [int(found) for found in re.findall(r"^communicator (\d+)", outcome.output, re.MULTILINE)]
    assert len(handles) == 40
    assert max(handles) - min(handles) <= 1, handles
    with sqlite3.connect(outcome.directory / "arena.sqlite") as database:
        assert database.execute("SELECT count(*) FROM rounds").fetchone() == (20,)


def test_only_workers_whose_policies_need_torch_load_it(tmp_path, monkeypatch):
    monkeypatch.setenv("ARENA_START", "spawn")  # forks share the pages of what their parent has loaded
    config = one_against_one({"use": "ppo", "settings": {"horizon": 16}}, {"use": "random"})
    outcome = succeed(run_arena(tmp_path, config))
    ranks = json.loads((outcome.directory / "log/ranks.json").read_text())
    assert [(rank["role"], rank["loaded_torch"]) for rank in ranks] == [
        ("root", False),
        ("environment", False),
        ("worker", True),
        ("worker", False),
    ]
