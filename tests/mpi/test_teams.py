"""Teams that learn by critics of all their actions, in whole runs: leagues, evaluation, serving and export."""

import json
import subprocess
import sys

import pytest

from benchmarks.tools.serving import Served

from .launching import run_arena, succeed

pytestmark = pytest.mark.rooms("worker", "policies", "evaluation", "experience")

SMALL = {"hidden": [16], "warmup": 100, "batch_size": 32, "ratio": 0.1}


def launch(*words):
    line = [sys.executable, "-m", "arena.launch", *map(str, words)]
    return subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)


def arena(*words):
    done = launch(*words)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-2000:]
    return done.stdout


def test_a_team_of_a_league_learns_and_is_evaluated_served_and_exported(tmp_path):
    """Needs a whole run: opponents' lanes of a team, its snapshots, and the files that serving and exporting read."""
    config = {
        "steps": 1_200,
        "env": {"use": "touchdown", "settings": {"team_size": 2}, "num_envs": 4},
        "policies": {"p": {"use": "maddpg", "settings": SMALL}},
        "league": {
            "use": "alphastar",
            "team_size": 2,
            "episodes": 4,
            "publish_every": 0,
            "settings": {
                "categories": {"default": {"main_player": 1}},
                "players": {"main_player": {"one_phase_step": 500}},
            },
        },
    }
    run = succeed(run_arena(tmp_path, config)).directory
    (player,) = json.loads((run / "summary.json").read_text("utf-8"))["players"]
    assert len(list((run / "players" / player).glob("*.safetensors"))) > 0
    assert player in arena("eval", run, "--episodes", "4")
    out = tmp_path / "team.onnx"
    assert "equal actions 100.00 %" in arena("export", run, player, "--to", "onnx", "--out", out)
    with Served(run, "--player", player) as served:
        assert player in served.line


@pytest.mark.tier("default")
def test_a_speaker_and_a_listener_learn_on_one_seat_and_are_evaluated(tmp_path):
    """Needs a whole run: messages, rollouts and weights of entities with different spaces, of two workers."""
    config = {
        "steps": 1_200,
        "env": {"use": "pettingzoo:mpe2.simple_speaker_listener_v4", "num_envs": 4, "in_worker": True},
        "policies": {"p": {"use": "masac", "settings": {**SMALL, "share": "each"}}},
        "verify_replicas": True,
        "matches": [{"seats": [["p", "p"]], "replicas": 2}],
    }
    run = succeed(run_arena(tmp_path, config)).directory
    assert "masac" in arena("eval", run, "--episodes", "4")
    done = launch("export", run, "p")
    assert done.returncode == 2 and "name one of its entities, as p.speaker_0, p.listener_0" in done.stderr
    for entity, options in (("speaker_0", ()), ("listener_0", ("--record", "256"))):
        assert "equal actions 100.00 %" in arena("export", run, f"p.{entity}", *options)
    assert len(list((run / "players" / "p").glob("*.listener_0.onnx"))) == 1
    with Served(run) as served:
        assert "p.speaker_0@" in served.line and "p.listener_0@" in served.line
