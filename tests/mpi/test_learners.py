"""Learners apart from the workers that act for them."""

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

from arena.launch import mpirun
from arena.records.checkpoints import Checkpoints
from arena.tensors.weights import read_tensors
from benchmarks.determinism import OWN_ENCODER, manifests
from benchmarks.survival import roles
from benchmarks.tools.observing import Observed

from .launching import PLAYERS, Outcome, player, run_arena, run_mpirun, succeed, write_config

pytestmark = pytest.mark.rooms("learner", "worker", "group", "comms")


def totals(directory: Path) -> dict[str, dict[str, int]]:
    """Return what has become of each player's rollouts in the last attempt, by name."""
    with sqlite3.connect(directory / "arena.sqlite") as database:
        question = "SELECT player, name, value FROM metrics WHERE name LIKE 'experience/%' OR name = 'lag/greatest'"
        rows = database.execute(f"{question} ORDER BY rowid").fetchall()
    found: dict[str, dict[str, int]] = {}
    for name, metric, value in rows:
        found.setdefault(name, {})[metric] = int(value)
    assert all(
        one["experience/sent"] == one["experience/learned"] + one["experience/dropped"] for one in found.values()
    )
    return found


PLANT = f"{Path(__file__).parents[2] / 'benchmarks' / 'tools' / 'fault_injection.py'}:plant"
CARTPOLE, PENDULUM = "gymnasium:CartPole-v1", "gymnasium:Pendulum-v1"
SPEAKER_LISTENER = "pettingzoo:mpe2.simple_speaker_listener_v4"


NORMALIZED = {"normalize_observations": True}
TURNS = {
    "ppo": (CARTPOLE, {"horizon": 64, "normalize_rewards": True, "encoder": OWN_ENCODER, **NORMALIZED}, 3_000),
    "dqn": (CARTPOLE, {"warmup": 500, "n_step": 3, "encoder": OWN_ENCODER}, 2_500),
    "sac": (PENDULUM, {"warmup": 300, "hidden": [32, 32], "noise": "pink", **NORMALIZED}, 1_000),
    "maddpg": (SPEAKER_LISTENER, {"warmup": 300, "hidden": [16], "n_step": 2, "priority": 0.6}, 1_500),
}
"""Environment, settings and steps of each algorithm."""


@pytest.mark.tier("default")
def test_taking_turns_is_learning_in_place_bit_for_bit(tmp_path):
    """Every algorithm in a match of its own; only whole runs have learners."""
    found = []
    for learners in ({}, {"learners": 1, "max_lag": 0}):
        config = {
            "name": f"run-{len(found)}",
            "steps": 1_000,
            "threads_per_rank": 1,
            "env": {"use": CARTPOLE, "num_envs": 4},
            "policies": {
                use: {"use": use, "settings": settings, "steps": steps, **learners}
                for use, (_, settings, steps) in TURNS.items()
            },
            "matches": [
                {"seats": [[use, use] if env == SPEAKER_LISTENER else use], "env": {"use": env}}
                for use, (env, _, _) in TURNS.items()
            ],
        }
        directory = succeed(run_arena(tmp_path, config)).directory
        players = json.loads((directory / "summary.json").read_text("utf-8"))["players"]
        newest = max(directory.glob("checkpoints/*"), key=lambda path: int(path.name))
        weights = {use: read_tensors(newest / f"{use}.safetensors") for use in TURNS}
        counts = {use: (players[use]["steps"], players[use]["updates"]) for use in TURNS}
        found.append((weights, counts))
    (in_place, counts), (in_turn, counts_in_turn) = found
    assert counts == counts_in_turn and all(updates > 0 for _, updates in counts.values())
    for use, weights in in_place.items():
        assert weights.keys() == in_turn[use].keys()
        for name, array in weights.items():
            np.testing.assert_array_equal(array, in_turn[use][name], err_msg=f"{use} {name}")
    assert {use: found["lag/greatest"] for use, found in totals(directory).items()} == dict.fromkeys(TURNS, 0)


def run_on(machine: str, place: Path, config: dict, ranks: int) -> Outcome:
    """Run a configuration on a machine that lacks something, see the players' folder."""
    if machine == "arena.launch":
        return run_arena(place, config)
    path = mpirun.find_mpirun()
    *line, _, _ = mpirun.command(path, ranks, [])  # the last words are -m and the arena's own module
    done = run_mpirun(
        [*line, str(PLAYERS / machine), str(write_config(place, config))], env=mpirun.environment(path), timeout=120
    )
    return Outcome(done.returncode, done.stdout, done.stderr, 0.0, place / "runs" / "run")


@pytest.mark.parametrize("machine", ["arena.launch", "without_shared_memory.py", "weakly_ordered.py"])
def test_learners_of_several_workers_end_in_good_order(tmp_path, machine):
    """Two players that meet crosswise, with unequal matches, an opponent that learns in place, and two learners."""
    config = {
        "steps": 3_000,
        "verify_replicas": True,
        "env": {"use": "touchdown", "settings": {"team_size": 2}, "num_envs": 3},
        "policies": {
            "apart": {"use": player("apart:Checks"), "learners": 2, "max_lag": 3, "settings": {"horizon": 16}},
            "slow": {
                "use": player("apart:Slow"),
                "learners": 1,
                "max_lag": 2,
                "steps": 1_500,
                "settings": {"horizon": 8},
            },
            "inside": {"use": "ppo", "settings": {"horizon": 32}, "steps": 1_000},
        },
        "matches": [
            {"seats": ["apart", "apart", "slow", "inside"]},
            {"seats": ["apart", "apart", "inside", "slow"], "env": {"num_envs": 5}},
        ],
    }
    outcome = succeed(run_on(machine, tmp_path, config, 14))
    found = totals(outcome.directory)
    assert set(found) == {"apart", "slow"}
    assert 0 < found["apart"]["lag/greatest"] <= 3
    assert found["slow"]["lag/greatest"] == 2
    players = json.loads((outcome.directory / "summary.json").read_text("utf-8"))["players"]
    assert players["apart"]["steps"] >= 3_000
    assert 1_500 <= players["slow"]["steps"] <= 1_500 + 2 * 8 * 8
    assert 1_000 <= players["inside"]["steps"] < 2_000
    assert found["slow"]["experience/learned"] == 2 * players["slow"]["updates"]
    roles = [one["role"] for one in json.loads((outcome.directory / "log/ranks.json").read_text("utf-8"))]
    assert sorted(roles) == sorted(["root"] + ["environment"] * 2 + ["worker"] * 8 + ["learner"] * 3)


@pytest.mark.parametrize("who", ["worker", "learner"])
def test_a_run_that_loses_a_rank_ends_and_is_resumed(tmp_path, who):
    config = {
        "steps": 10**9,
        "checkpoint": {"every": 0.3},
        "env": {"use": CARTPOLE, "num_envs": 4},
        "policies": {"p": {"use": "dqn", "learners": 1, "max_lag": 2, "settings": {"warmup": 500}}},
        "matches": [{"seats": ["p"], "replicas": 2}],
        "records": {"plots": False},
    }
    run = Observed(tmp_path, config)
    try:
        run.wait_for_updates(30)
        while not manifests(run.directory):
            assert run.process.poll() is None, run.tail()
            time.sleep(0.05)
        rank = next(rank for rank, part in roles(run).items() if part.startswith(who))
        os.kill(run.pid_of(rank), signal.SIGKILL)
        assert run.wait(60) not in (0, None), run.tail()
        assert run.left_behind() == {}
    finally:
        run.end()
    newest = Checkpoints(run.directory / "checkpoints").newest()
    assert newest is not None
    assert (newest.path / "p.learner-0.replay.safetensors").is_file()
    before = newest.manifest["steps"]["p"]
    outcome = succeed(run_arena(tmp_path, {**config, "steps": before + 2_000}, "--resume"))
    found = totals(outcome.directory)["p"]
    assert 0 < found["experience/learned"] <= 2_000 / 64 + 1, "it continued, and with its replay"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"matches": [{"seats": ["p"]}, {"seats": ["p"], "env": {"use": PENDULUM}}]},
            "player 'p' sits on seats with different spaces",
        ),
        (
            {"policies": {"p": {"use": "ppo", "learners": 1, "settings": {"lstm": 8, "burn_in": 4}}}},
            "policies.p.settings.burn_in: expected 0 or null with learners",
        ),
        (
            {"policies": {"p": {"use": player("counts:CountsSteps"), "learners": 1}}},
            "policies.p.learners: expected a class with learn(batch) beside run, found",
        ),
        ({"env": {"use": CARTPOLE, "autoreset": "same_step"}}, "needs next_step, found same_step"),
    ],
    ids=["spaces", "burn-in", "custom loop", "same step"],
)
def test_what_cannot_be_learned_apart_is_refused_at_the_start(tmp_path, changes, expected):
    config = {
        "steps": 2_000,
        "env": {"use": CARTPOLE, "num_envs": 2},
        "policies": {"p": {"use": "ppo", "learners": 1}},
        "matches": [{"seats": ["p"]}],
        **changes,
    }
    outcome = run_arena(tmp_path, config)
    assert outcome.code == 2, outcome.errors
    assert expected in outcome.errors
    assert "Traceback" not in outcome.errors


RUNNER = {
    "steps": 100_000,
    "env": {"use": "touchdown", "settings": {"team_size": 1}, "num_envs": 2, "in_worker": True},
    "policies": {
        "p": {"use": "ppo", "learners": 1, "settings": {"horizon": 16}},
        "drawn": {"use": "random"},
    },
    "matches": [{"seats": ["p", "drawn"], "replicas": 2}],
}


@pytest.mark.parametrize(
    ("hangs", "expected"),
    [
        ("environment", "waited 5 s for the environment of this rank"),
        ("policy", "waited 5 s for the worker of 'p' on seat 0 of this rank"),
        ("learner", " of learner 0 of 'p' (rank 2)"),
    ],
)
def test_a_run_in_which_something_hangs_ends_and_says_what(tmp_path, hangs, expected):
    config = {**RUNNER, "env": dict(RUNNER["env"]), "policies": {**RUNNER["policies"]}}
    config["waits"] = {"warn_after": 2, "abort_after": 5}
    if hangs == "environment":
        faults = {"tickets": str(tmp_path / "tickets"), "faults": [["hang", 60]]}
        config["env"]["wrappers"] = [{"use": PLANT, "settings": faults}]
    else:
        chosen = {"policy": "HangsInAct", "learner": "HangsInLearn"}[hangs]
        config["policies"]["p"] = {**RUNNER["policies"]["p"], "use": player(f"apart:{chosen}")}
    config["matches"] = [{"seats": ["p", "drawn"]}]  # where there are more, another rank may be the first to give up
    outcome = run_arena(tmp_path, config)
    assert outcome.code not in (0, 2)
    assert expected in outcome.errors
    assert outcome.seconds < 60


def test_what_a_runner_s_environment_raises_is_told_like_any_other_mistake(tmp_path):
    config = {**RUNNER, "env": {**RUNNER["env"], "settings": {"nonsense": 1}}}
    outcome = run_arena(tmp_path, config)
    assert outcome.code == 2
    assert "nonsense" in outcome.errors
    assert "Traceback" not in outcome.errors


def test_several_seats_of_one_player_share_a_runner(tmp_path):
    config = {
        **RUNNER,
        "steps": 4_000,
        "env": {**RUNNER["env"], "settings": {"team_size": 2}},
        "matches": [{"seats": ["p", "p", "drawn", "drawn"], "replicas": 2}],
    }
    config["policies"] = {**RUNNER["policies"], "p": {**RUNNER["policies"]["p"], "learners": 2}}
    outcome = succeed(run_arena(tmp_path, config))
    assert "5 ranks" in (outcome.directory / "log/arena.log").read_text("utf-8")
    assert totals(outcome.directory)["p"]["lag/greatest"] <= 1


@pytest.mark.parametrize("machine", ["arena.launch", "without_shared_memory.py"])
@pytest.mark.tier("default")
def test_a_loop_of_ones_own_sends_experience_and_pulls_weights(tmp_path, machine):
    """Two workers with unequal shares: the second one has a slower match, and stops early."""
    config = {
        "steps": 3_000,
        "env": {"use": CARTPOLE},
        "policies": {"p": {"use": player("apart:Sends"), "learners": 1, "max_lag": 2}},
        "matches": [{"seats": ["p"]}, {"seats": ["p"], "env": {"in_worker": machine == "arena.launch"}}],
        "checkpoint": {"every": 0.2},
    }
    outcome = succeed(run_on(machine, tmp_path, config, 6))
    found = totals(outcome.directory)["p"]
    assert found["experience/sent"] == found["experience/learned"] == 30 + 10
    assert 0 < found["lag/greatest"] <= 2
    assert "worker 0 ended with weights of update 30" in outcome.output
    with sqlite3.connect(outcome.directory / "arena.sqlite") as database:
        sizes = [value for (value,) in database.execute("SELECT value FROM metrics WHERE name = 'rows' ORDER BY rowid")]
    assert sizes == [100.0] * 10 + [50.0] * 20, "the batches of all workers that are there, behind each other"
    path = max(outcome.directory.glob("checkpoints/*/p.safetensors"), key=lambda path: int(path.parent.name))
    assert read_tensors(path)["updates"].tolist() == [30.0]


def test_a_loop_that_acts_with_older_weights_than_allowed_is_told_so(tmp_path):
    config = {
        "steps": 3_000,
        "env": {"use": CARTPOLE},
        "policies": {"p": {"use": player("apart:NeverPulls"), "learners": 1, "max_lag": 2}},
        "matches": [{"seats": ["p"]}],
    }
    outcome = run_arena(tmp_path, config)
    assert outcome.code == 2
    assert "policies.p.max_lag: expected weights at most 2 updates old, found experience 3" in outcome.errors


@pytest.mark.tier("default")
def test_an_agent_that_was_written_for_one_process_learns_apart(tmp_path):
    """The acting copy has the learner's weights, and the learning one gets whole transitions of all workers."""
    config = {
        "steps": 4_000,
        "env": {"use": CARTPOLE, "num_envs": 3},
        "policies": {"p": {"use": player("apart:SingleProcessAgent"), "learners": 1, "settings": {"size": 3}}},
        "matches": [{"seats": ["p"], "replicas": 2}],
    }
    outcome = succeed(run_arena(tmp_path, config))
    found = totals(outcome.directory)["p"]
    assert found["experience/learned"] == 2 * (4_000 // 96 + 1) or found["experience/learned"] > 70
    assert "the learner's numbers have come" in outcome.output
    done = subprocess.run(
        [sys.executable, "-m", "arena.launch", "eval", str(outcome.directory), "--episodes", "2"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    config["policies"]["p"] = {**config["policies"]["p"], "learners": 0}
    outcome = run_arena(tmp_path, {**config, "name": "inside"})
    assert outcome.code == 2
    assert "expected one rank that learns, found 2; set learners: 1" in outcome.errors
    config["policies"]["p"]["settings"] = {"sice": 3}
    outcome = run_arena(tmp_path, {**config, "name": "wrong"})
    assert outcome.code == 2 and "settings of SingleProcessAgent, which takes" in outcome.errors


def test_a_league_s_players_learn_apart_and_are_restarted(tmp_path):
    settings = {"hidden": [8], "horizon": 16, "learning_rate": 0.01}
    config = {
        "steps": 12_000,
        "verify_replicas": True,
        "env": {"use": "matrix_game", "settings": {"rounds": 4}, "num_envs": 8},
        "policies": {"p": {"use": "ppo", "learners": 2, "max_lag": 2, "settings": settings}},
        "league": {
            "use": "alphastar",
            "episodes": 16,
            "publish_every": 0,
            "settings": {
                "categories": {"default": {"main_player": 1, "main_exploiter": 1}},
                "players": {name: {"one_phase_step": 2_000} for name in ("main_player", "main_exploiter")},
            },
        },
    }
    outcome = succeed(run_arena(tmp_path, config))
    log = (outcome.directory / "log/arena.log").read_text("utf-8")
    resets = log.count("main_exploiter_default_0 is reset")
    assert resets > 0
    found = totals(outcome.directory)
    assert set(found) == {"main_player_default_0", "main_exploiter_default_0"}
    late = 2 * 2 * (resets + 1)  # of two workers, as many rollouts as their weights may be behind
    assert 4 * resets <= found["main_exploiter_default_0"]["experience/dropped"] <= late
    assert found["main_player_default_0"]["experience/dropped"] <= 4
    assert all(one["lag/greatest"] <= 2 for one in found.values())
    with sqlite3.connect(outcome.directory / "arena.sqlite") as database:
        players = database.execute("SELECT player, active FROM league_players").fetchall()
    assert sum(not active for _, active in players) >= 2, "snapshots are frozen"
