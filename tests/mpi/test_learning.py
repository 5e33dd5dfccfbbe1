"""The gradient path: replicas stay the same, and many workers learn what one would learn from all their data."""

import json
import shutil
import sqlite3

import numpy as np
import pytest

from arena.config.resumed import load_stored_config
from arena.launch import main, mpirun
from arena.records.run_directory import RunDirectory
from arena.tensors.weights import read_tensors
from benchmarks.tools.trained import POLE, give_weights, make_run

from .launching import PLAYERS, player, run_arena, run_mpirun, succeed, write_config

pytestmark = pytest.mark.rooms("experience", "tensors", "worker", "comms")

QUICK = {"hidden": [16, 16], "horizon": 32, "epochs": 2, "minibatches": 2}


def four_workers(policy, settings=None, **more):
    """Six ranks: the root, one environment process, four workers of one player."""
    return {
        "steps": 3000,
        "env": {"use": "touchdown", "settings": {"team_size": 2}, "num_envs": 4},
        "policies": {"one": {"use": policy, "settings": settings or {}}},
        "matches": [{"seats": ["one"] * 4}],
        "records": {"output": "terminal"},
        **more,
    }


def test_weights_of_every_player_are_bit_identical_across_workers_after_every_update(tmp_path, capsys):
    """Both players have a memory, the second one for policy and value; then they play, and a frozen one with them."""
    config = four_workers("ppo", verify_replicas=True, steps=1_000)
    config["env"]["settings"]["team_size"] = 4
    config["policies"] = {
        "blue": {"use": "ppo", "settings": {**QUICK, "lstm": 8}},
        "red": {"use": "ppo", "settings": {**QUICK, "gru": 8, "shared": True}},
    }
    config["matches"] = [{"seats": ["blue"] * 4 + ["red"] * 4}]
    outcome = succeed(run_arena(tmp_path, config))
    assert " -n 10 " in outcome.output
    run = outcome.directory
    assert main(["eval", str(run), "--episodes", "1", "--seed", "1"]) == 0
    first = capsys.readouterr().out
    assert main(["eval", str(run), "--episodes", "1", "--seed", "1"]) == 0
    assert capsys.readouterr().out == first and "blue" in first

    # What a player has seen lies beside its weights, and agrees with a file made of them.
    assert main(["export", str(run), "red"]) == 0
    assert "equal actions 100.00 %" in capsys.readouterr().out
    newest = RunDirectory.existing(run).snapshots("red")[-1]
    config["policies"]["red"] |= {"frozen": True, "warm_start": str(newest)}
    config["steps"] = 500
    succeed(run_arena(tmp_path, {**config, "name": "opponent"}))
    config["policies"]["red"]["settings"] = {**QUICK, "gru": 8}
    refused = run_arena(tmp_path, {**config, "name": "refused"})
    assert refused.code != 0 and "Traceback" not in refused.errors
    assert "use the settings that they were trained with" in refused.errors


def test_a_replica_that_drifts_by_one_bit_ends_the_job_and_is_named(tmp_path):
    config = four_workers(player("updates:Diverges"), QUICK, verify_replicas=True)
    outcome = run_arena(tmp_path, config)
    assert outcome.code == 1
    assert "after update 1 the weights of workers [1] of 'one' differ from worker 0's" in outcome.errors


@pytest.mark.tier("default")
def test_one_update_of_many_workers_is_one_update_on_all_their_data(tmp_path):
    output = succeed(run_arena(tmp_path, four_workers(player("updates:OneUpdate")))).output
    assert output.count("one update of 4 workers differs by") == 4


FEW, MANY = 2, 600_000
"""Outputs of a network whose gradient each worker averages whole; in parts, and these in several pieces."""


@pytest.mark.parametrize(
    ("workers", "outputs", "machine"),
    [
        pytest.param(4, [FEW, MANY], "arena.launch", id="four workers"),
        pytest.param(2, [20_000], "arena.launch", id="two workers"),
        pytest.param(6, [20_000], "arena.launch", id="six workers, whose average lies apart from what they bring"),
        pytest.param(4, [FEW, MANY], "without_shared_memory.py", id="no shared memory"),
        pytest.param(2, [20_000], "without_shared_memory.py", id="two workers, no shared memory"),
        pytest.param(4, [MANY], "weakly_ordered.py", id="a fence with each message"),
    ],
)
def test_a_worker_that_stops_early_does_not_hold_up_its_group(tmp_path, workers, outputs, machine):
    config = four_workers(player("groups:Averages"), {"updates": 12, "early": 5, "outputs": outputs})
    config["env"] |= {"num_envs": 1, "settings": {"team_size": workers // 2}}
    config["matches"] = [{"seats": ["one"] * workers}]
    if machine == "arena.launch":
        output = succeed(run_arena(tmp_path, config)).output
    else:
        path = mpirun.find_mpirun()
        *line, _, _ = mpirun.command(path, 2 + workers, [])  # the last words are -m and the arena's own module
        line += [str(PLAYERS / machine), str(write_config(tmp_path, config))]
        done = run_mpirun(line, env=mpirun.environment(path), timeout=120)
        assert done.returncode == 0, done.stderr
        output = done.stdout
    for size in outputs:
        assert f"worker 1 made 5 updates of {size} outputs" in output
        others = [rank for rank in range(workers) if rank != 1]
        assert all(f"worker {rank} made 12 updates of {size} outputs" in output for rank in others)


@pytest.mark.tier("default")
def test_what_a_loop_of_ones_own_has_done_is_on_record(tmp_path):
    config = {
        "steps": 4_000,
        "env": {"use": "gymnasium:CartPole-v1"},
        "policies": {"p": {"use": player("groups:Logs")}},
        "matches": [{"seats": ["p"], "replicas": 2}],
    }
    directory = succeed(run_arena(tmp_path, config)).directory
    assert "p is finished after 4,000 steps" in (directory / "log" / "arena.log").read_text("utf-8")
    summary = json.loads((directory / "summary.json").read_text("utf-8"))["players"]["p"]
    assert (summary["steps"], summary["updates"]) == (4_000, 100)
    with sqlite3.connect(directory / "arena.sqlite") as database:
        question = "SELECT name, call, workers, value, steps, updates FROM metrics ORDER BY name, call"
        found = database.execute(question).fetchall()
        question = (
            "SELECT match, episode_entities.length, steps FROM episode_entities JOIN episodes ON episodes.id = episode"
        )
        episodes = database.execute(f"{question} ORDER BY episode").fetchall()
    played = [0, 0]
    for match, length, steps in episodes:  # two workers keep pace, and an episode ends where its lengths add up to
        played[match] += length
        assert steps == 2 * played[match] or steps == 4_000 < 2 * played[match]
    assert max(played) >= 2_000
    calls = range(1, 101)
    leading = [("leading", call, 1, 2.0 * (call - 1), 40 * call, call) for call in calls]
    assert found == leading + [("loss", call, 2, call - 0.5, 40 * call, call) for call in calls]


def test_different_collectives_on_different_workers_are_an_error_not_a_hang(tmp_path):
    config = four_workers(player("behaviours:Disagrees"))
    config["env"]["num_envs"] = 1
    outcome = run_arena(tmp_path, config)
    assert outcome.code == 1
    assert "called different collectives at the same time" in outcome.errors


@pytest.mark.parametrize(("at", "expected"), [("", 2000), ("@best", 1000), ("@1000", 1000)])
@pytest.mark.tier("default")
def test_a_player_starts_from_another_run(tmp_path, at, expected):
    """Only a whole start shows that every rank has the copy, and that a resumed run needs the other one no more."""
    other = make_run(tmp_path, POLE)
    weights = {steps: give_weights(other, "blue", steps, seed=steps) for steps in (1000, 2000)}
    other.best("blue").write_bytes(weights[1000].read_bytes())
    config = {
        "steps": 300,
        "env": {"use": "gymnasium:CartPole-v1"},
        "policies": {"p": {"use": "ppo", "settings": {"hidden": [8], "learning_rate": 1e-12}}},
        "matches": [{"seats": ["p"]}],
    }
    config["policies"]["p"]["warm_start"] = f"{other.path}:blue{at}"
    run = RunDirectory.existing(succeed(run_arena(tmp_path, config)).directory)
    assert run.warm_start("p").read_bytes() == weights[expected].read_bytes()
    learned, before = read_tensors(run.snapshots("p")[-1]), read_tensors(weights[expected])
    assert all(np.allclose(learned[name], before[name], atol=1e-6) for name in before if "normal" not in name)
    shutil.rmtree(other.path)
    assert load_stored_config(run.config).policies["p"].warm_start == str(run.warm_start("p"))


@pytest.mark.tier("default")
def test_a_frozen_player_plays_its_warm_start_and_never_changes(tmp_path):
    settings = {"hidden": [16, 16], "horizon": 32}
    config = {
        "steps": 1500,
        "env": {"use": "gymnasium:CartPole-v1", "num_envs": 4},
        "policies": {"p": {"use": "ppo", "settings": settings}},
        "matches": [{"seats": ["p"]}],
    }
    trained = newest_snapshot(succeed(run_arena(tmp_path, config)).directory, "p")
    config["policies"]["p"].update(frozen=True, deterministic_actions=True, warm_start=str(trained))
    outcome = succeed(run_arena(tmp_path, {**config, "name": "evaluation"}))
    played = newest_snapshot(outcome.directory, "p")
    before, after = read_tensors(trained), read_tensors(played)
    assert before.keys() == after.keys()
    assert all((before[name] == after[name]).all() for name in before)
    with sqlite3.connect(outcome.directory / "arena.sqlite") as database:
        assert database.execute("SELECT count(*) FROM metrics").fetchone() == (0,), "a frozen player made an update"


def newest_snapshot(directory, player):
    return RunDirectory.existing(directory).snapshots(player)[-1]
