"""Evaluations while training, by a child process or by a rank: recorded, without any effect on the training."""

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import arena
from arena.launch import main as launch_main
from arena.records.run_directory import RunDirectory
from arena.tensors.weights import read_metadata, read_tensors
from tests.mpi.launching import Outcome, run_arena, succeed, write_config

pytestmark = pytest.mark.rooms("root", "evaluation", "group", "launch")

POLE: dict[str, Any] = {
    "steps": 3000,
    "env": {"use": "gymnasium:CartPole-v1", "num_envs": 4},
    "policies": {"solo": {"use": "ppo", "settings": {"hidden": [16], "horizon": 64}}},
    "matches": [{"seats": ["solo"]}],
}


def evaluate(**keys: Any) -> dict[str, Any]:
    return {"evaluate": {"every": 1000, "episodes": 3, **keys}}


def rows(outcome: Outcome, query: str) -> list[tuple]:
    connection = sqlite3.connect(outcome.directory / "arena.sqlite")
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def last_weights(outcome: Outcome, player: str = "solo") -> dict[str, np.ndarray]:
    run = RunDirectory.existing(outcome.directory)
    return read_tensors(run.snapshots(player)[-1])


def test_a_deterministic_run_learns_the_same_with_and_without(tmp_path):
    """Only whole runs show that neither a process beside them nor a rank more changes a random stream."""
    outcomes = []
    for name, keys in (("off", {}), ("child", evaluate()), ("rank", evaluate(ranks=1))):
        config = {**POLE, "name": name, "deterministic": True, **keys}
        outcomes.append(succeed(run_arena(tmp_path, config)))
    off, *others = (last_weights(outcome) for outcome in outcomes)
    for weights in others:
        assert weights.keys() == off.keys()
        assert all((weights[tensor] == off[tensor]).all() for tensor in off)
    for outcome in outcomes[1:]:
        run = arena.Run(outcome.directory)
        evaluations = run.evaluations("solo")
        assert set(evaluations["episodes"]) == {3} and not run.path.joinpath("players/solo/evaluation").exists()
        assert {steps // 1000 for steps in evaluations["steps"]} >= {1, 2, 3}, "none is left out"
        assert evaluations["steps"][-1] == run.player().steps, "the last weights are evaluated"
        assert (evaluations["least"] <= evaluations["mean"]).all() and "solo is evaluated at" in outcome.output
        best = evaluations["steps"][evaluations["mean"].argmax()]
        assert run.player(at="best").steps == best
        assert read_metadata(outcome.directory / "players/solo/best.safetensors") == {"steps": str(best)}
        assert not (outcome.directory / "players/solo/evaluation").exists()
        for at in ("best", "newest"):  # what a child and a rank have played, played once more
            assert launch_main(["eval", str(outcome.directory), "--as-evaluated", "--at", at]) == 0
    assert rows(outcomes[0], "SELECT count(*) FROM evaluations") == [(0,)]
    roles = (outcomes[2].directory / "log/ranks.json").read_text()
    assert roles.count("evaluator") == 1 and outcomes[2].errors == ""


ILL = """
    import os, sys, time
    import gymnasium

    class Ill(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-1, 1, (2,))
        action_space = gymnasium.spaces.Discrete(2)

        def reset(self, seed=None, options=None):
            super().reset(seed=seed)
            self.time = 0
            return self.observation_space.sample(), {}

        def step(self, action):
            if "arena.evaluation.evaluator" in sys.modules or sys.argv[0].endswith("evaluator.py"):
                SYMPTOM
            self.time += 1
            return self.observation_space.sample(), 1.0, self.time == 9, False, {}
"""


def ill(place: Path, symptom: str) -> dict[str, Any]:
    """Return an environment that is well in training, and shows a symptom where it is evaluated."""
    (place / "ill.py").write_text(textwrap.dedent(ILL.replace("SYMPTOM", symptom)))
    return {"env": {"use": f"{place / 'ill.py'}:Ill", "num_envs": 4}}


def test_ctrl_c_leaves_late_evaluations_to_a_resume(tmp_path):
    """Under mpirun, since the root waits there without its ranks; the checkpoint is complete before."""
    awake = tmp_path / "awake"
    symptom = f"time.sleep(0 if os.path.exists({str(awake)!r}) else 0.1)"
    config = {**POLE, **ill(tmp_path, symptom), **evaluate()}
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "arena.launch", str(write_config(tmp_path, config))],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if "the run waits for them" in line and "training is over" in line:
            process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0 and "wait for --resume, which carries them out" in said, said
    directory = tmp_path / "runs/run"
    left = len(list((directory / "players/solo/evaluation").iterdir()))
    assert arena.Run(directory).finished and left >= 2
    awake.touch()
    outcome = succeed(run_arena(tmp_path, config, "--resume"))
    found = arena.Run(directory).evaluations("solo")
    assert {steps // 1000 for steps in found["steps"]} >= {1, 2, 3}, outcome.output
    assert not (directory / "players/solo/evaluation").exists()


def test_a_player_stops_where_it_has_learned_enough(tmp_path):
    config = {**POLE, "steps": 2_000_000, **evaluate(stop_at=1.0, ranks=1)}
    outcome = succeed(run_arena(tmp_path, config))
    run = arena.Run(outcome.directory)
    assert "solo has reached stop_at of 1.00" in outcome.output and run.finished
    steps = run.player().steps
    assert steps < 1_000_000
    again = succeed(run_arena(tmp_path, config, "--resume"))
    assert arena.Run(again.directory).player().steps == steps, "it has nothing left to learn"
    further = {**config, **evaluate(stop_at=1000.0, ranks=1), "steps": steps + 3000}
    assert arena.Run(succeed(run_arena(tmp_path, further, "--resume")).directory).player().steps > steps


def test_an_evaluation_that_fails_is_a_fault_and_training_goes_on(tmp_path):
    symptom = 'raise RuntimeError("only well in training")'
    config = {**POLE, **ill(tmp_path, symptom), **evaluate()}
    outcome = succeed(run_arena(tmp_path, config))
    faults = rows(outcome, "SELECT role, what FROM faults")
    assert faults and {role for role, _ in faults} == {"evaluator"} and "only well in training" in faults[0][1]
    assert "has failed, training continues: " in outcome.output and rows(outcome, "SELECT * FROM evaluations") == []
    assert arena.Run(outcome.directory).player().steps >= 3000


CUSTOM = """
    import numpy as np

    class Mine:
        def __init__(self, env, group):
            self.env, self.group, self.weight = env, group, np.zeros(1, np.float32)

        def run(self, steps):
            self.env.reset()
            for _ in range(steps // self.env.num_envs):
                self.env.step(self.env.action_space.sample())
            self.weight[0] = 1

        def act(self, observations):
            return np.zeros(len(observations), np.int64)

        def state_dict(self):
            return {"weight": self.weight}

        def load_state_dict(self, state):
            self.weight = np.array(state["weight"])
"""


@pytest.mark.tier("default")
def test_all_learning_players_of_a_row_are_evaluated_and_one_is_filmed(tmp_path):
    """A policy with a loop of its own, too: its snapshots come from its housekeeping, not from updates."""
    (tmp_path / "mine.py").write_text(textwrap.dedent(CUSTOM))
    config = {
        "steps": 2500,
        "env": {"use": "touchdown", "settings": {"team_size": 1, "max_steps": 60}, "num_envs": 4},
        "policies": {
            "blue": {"use": "ppo", "settings": {"hidden": [8]}},
            "red": {"use": f"{tmp_path / 'mine.py'}:Mine"},
        },
        "matches": [{"seats": ["blue", "red"]}],
        "records": {"films": {"every": 1000, "player": "blue"}},
        **evaluate(),
    }
    outcome = succeed(run_arena(tmp_path, config))
    films = sorted((Path(outcome.directory) / "films").iterdir())
    assert films and all(film.read_bytes().startswith(b"GIF8") for film in films), outcome.output
    assert all(
        (Path(outcome.directory) / f"players/blue/{film.stem.split('-')[1]}.safetensors").is_file() for film in films
    )
    run = arena.Run(outcome.directory)
    assert run.evaluations("blue").rows >= 1 and run.evaluations("red").rows >= 1
    assert (Path(outcome.directory) / "players/red/best.safetensors").is_file()
