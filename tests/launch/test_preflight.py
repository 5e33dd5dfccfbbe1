"""Checks before a run starts: what cannot be trained is refused before any rank waits for it."""

import hashlib
import subprocess
import sys

import pytest
import yaml

from arena.common.errors import ConfigError
from arena.config.resumed import load_stored_config
from arena.config.run import load_config
from arena.launch.preflight.code_copies import CodeCopies
from arena.launch.preflight.inspection import check_memory, inspect_run
from arena.records.run_directory import RunDirectory
from benchmarks.tools.trained import POLE, make_run

ENVIRONMENTS = """
import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete, Tuple
from pettingzoo import ParallelEnv


class IntegerBox(gymnasium.Env):
    observation_space, action_space = Box(-1, 1, (3,), np.float32), Box(0, 5, (2,), np.int64)


class Unlike(ParallelEnv):
    metadata = {"name": "unlike"}
    possible_agents = ["a", "b", "c", "d"]

    def observation_space(self, agent):
        return Box(-1, 1, (3 if agent in "ac" else 4,), np.float32)

    def action_space(self, agent):
        return Discrete(2)


class Tuples(Unlike):
    def action_space(self, agent):
        return Tuple((Discrete(2), Discrete(3)))
"""

POLICIES = """
class Loop:
    def __init__(self, env, group):
        pass

    def run(self, steps):
        pass
"""

ENCODERS = """
from torch import nn


class TooNarrow(nn.Module):
    def __init__(self, space):
        super().__init__()
        self.width = 4

    def forward(self, x):
        return x[:, 1:]


class Raises(TooNarrow):
    def forward(self, x):
        raise RuntimeError("units without a map")
"""


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"env": {"use": "IntegerBox"}}, r"this policy cannot choose from Box\(0, 5, \(2,\), int64\)"),
        ({"env": {"use": "IntegerBoxes"}}, "has no 'IntegerBoxes' .did you mean 'IntegerBox'"),
        ({"policies": {"p": {"use": "Lop"}}}, "has no 'Lop' .did you mean 'Loop'"),
        (
            {"policies": {"p": {"use": "Loop"}}, "matches": [{"seats": ["p"]}], "deterministic": True},
            "deterministic: expected policies that separate act from learn",
        ),
        (
            {"env": {"use": "Unlike"}, "matches": [{"seats": [["p", "p"]] * 2}]},
            r"policy 'ppo' shares its parameters among the entities of a seat \(a, b\), but their spaces differ",
        ),
        (
            {"env": {"use": "Unlike"}, "matches": [{"seats": ["p"] * 4}]},
            "player 'p' sits on seats with different spaces: ",
        ),
        (
            {
                "env": {"use": "Unlike", "state": "none"},
                "policies": {name: {"use": "ppo", "settings": {"critic": "central"}} for name in "pq"},
                "matches": [{"seats": ["p", "q", "p", "q"]}],
            },
            "player 'p' has a central critic, which reads the global state .* has none with env.state: none; set env.s",
        ),
        (
            {
                "env": {"use": "gateway", "settings": {"game": "touchdown"}},
                "policies": {"p": {"use": "ppo", "settings": {"critic": "central"}}},
                "matches": [{"seats": [["p", "p", "p", "p"]]}],
            },
            "and seat 0 of match row 0 has none since its games are outside; use critic: own",
        ),
        (
            {"env": {"use": "Unlike"}, "policies": {"p": {"use": "maddpg"}}, "matches": [{"seats": ["p"] * 4}]},
            r"match row 0 has a, b, c, d on seats of their own; put them on one seat: seats: \[\[p, p, p, p\]\]",
        ),
        (
            {
                "env": {"use": "Unlike"},
                "policies": {"p": {"use": "masac", "settings": {"share": "one"}}},
                "matches": [{"seats": [["p"] * 4]}],
            },
            r"share: one expects entities with equal spaces on a seat \(a, b, c, d\), found 2 kinds; set share: auto",
        ),
        (
            {
                "env": {"use": "Unlike"},
                "policies": {"p": {"use": "masac", "settings": {"noise": "pink"}}},
                "matches": [{"seats": [["p"] * 4]}],
            },
            "masac with noise: pink expects an entity with a Box, found discrete actions alone, .*: set noise: white",
        ),
        (
            {
                "env": {"use": "Tuples"},
                "policies": {"p": {"use": "maddpg"}},
                "matches": [{"seats": [["p", "p", "p", "p"]]}],
            },
            r"entity 'a': maddpg expects Discrete, MultiDiscrete, or a Box .*, found Tuple\(.*; use ppo for such",
        ),
        (
            {
                "env": {"use": "pettingzoo:classic.tictactoe_v3"},
                "policies": {"p": {"use": "masac"}},
                "matches": [{"seats": [["p", "p"]]}],
            },
            "'masac' expects entities that act at the same time, found the turn-based pettingzoo:classic.tictactoe_v3",
        ),
        (
            {
                "env": {"use": "Unlike", "state": "none"},
                "policies": {"p": {"use": "maddpg"}},
                "matches": [{"seats": [["p"] * 4]}],
            },
            "reads the global state of a copy, and seat 0 .* set env.state: auto or joint, or use ppo",
        ),
        (
            {"env": {"use": "gymnasium:CartPole-v1", "agent_id": True}},
            "env.agent_id: expected an environment with several entities, found one",
        ),
        (
            {"policies": {"p": {"use": "ppo", "settings": {"encoder": "own.py:TooNarrow"}}}},
            r"policies.p.settings.encoder: '.*own.py:TooNarrow': expected features of shape \[2, 4\] .* found \[2, 3\]",
        ),
        (
            {"policies": {"p": {"use": "dqn", "settings": {"encoder": "own.py:Raises"}}}},
            r"network '.*own.py:Raises': raised RuntimeError: units without a map \(.*own.py, line \d+\)",
        ),
        (
            {"policies": {"p": {"use": "dqn", "settings": {"encoder": {"units": "mlp"}}}}},
            "policies.p.settings.encoder: encoders by key expect an observation that is a Dict, found Box",
        ),
    ],
)
def test_what_ranks_would_refuse_is_refused_before_they_start(tmp_path, changes, expected):
    (tmp_path / "own.py").write_text(ENVIRONMENTS + POLICIES + ENCODERS)
    config = {
        "name": "run",
        "steps": 5_000,
        "env": {"use": "gymnasium:CartPole-v1"},
        "policies": {"p": {"use": "ppo"}},
        "matches": [{"seats": ["p"]}],
        **changes,
    }
    for section in (config["env"], *config["policies"].values()):
        if section["use"] in ("IntegerBox", "IntegerBoxes", "Unlike", "Tuples", "Loop", "Lop"):
            section["use"] = f"{tmp_path / 'own.py'}:{section['use']}"
    path = tmp_path / "file.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    with pytest.raises(ConfigError, match=expected):
        inspect_run(load_config(path))


def test_a_run_that_needs_more_memory_than_there_is(tmp_path):
    path = tmp_path / "file.yaml"
    path.write_text(
        "{name: run, steps: 100, env: {use: 'gymnasium:CartPole-v1', num_envs: 100_000_000}, "
        "policies: {p: {use: ppo}}, matches: [{seats: [p]}]}"
    )
    config = load_config(path)
    with pytest.raises(ConfigError, match=r"24.0 GB of this machine, found about 9\d\d.\d GB: 671.* GB for environ"):
        check_memory(inspect_run(config), config, 3, 24_000_000_000)


def test_the_replay_of_a_team_counts_all_of_its_entities_and_the_state(tmp_path):
    path = tmp_path / "file.yaml"
    path.write_text(
        "{name: run, steps: 5000, env: {use: 'pettingzoo:mpe2.simple_spread_v3'}, "
        "policies: {p: {use: maddpg, settings: {capacity: 100_000_000}}}, matches: [{seats: [[p, p, p]]}]}"
    )
    config = load_config(path)
    # twice 3 x 18 numbers observed, twice a state of 54, 3 choices, rewards, discounts and flags: 932 bytes
    expected = r"found about 9\d.\d GB: 9\d.\d GB for the full replay of p, .*lower capacity .policies.p.settings.cap"
    with pytest.raises(ConfigError, match=expected):
        check_memory(inspect_run(config), config, 3, 24_000_000_000)


@pytest.mark.parametrize(
    ("manager", "expected"),
    [
        ("subprocess", "error: 16 copies with manager: subprocess need 160 open files, and this system allows 40"),
        ("serial", "error: each rank needs 128 open files, and this system allows 40"),
    ],
)
def test_open_files_that_do_not_suffice_are_counted_before_the_start(tmp_path, manager, expected):
    path = tmp_path / "file.yaml"
    path.write_text(
        f"{{name: run, steps: 100, env: {{use: 'gymnasium:CartPole-v1', num_envs: 16, manager: {manager}}}, "
        "policies: {p: {use: ppo}}, matches: [{seats: [p]}]}"
    )
    line = f"ulimit -n 40; exec {sys.executable} -m arena.launch {path}"
    done = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr.startswith(expected), done.stderr
    assert not (tmp_path / "runs").exists()


def test_code_of_one_s_own_is_read_from_the_run_directory_once_its_file_has_gone(tmp_path):
    (tmp_path / "own.py").write_text(ENVIRONMENTS + ENCODERS)
    text = POLE.replace("gymnasium:CartPole-v1", '"own.py:IntegerBox"').replace(
        "{hidden: [8]}", '{encoder: {units: {use: "own.py:Raises"}, rest: "own.py:TooNarrow"}}'
    )
    run = make_run(tmp_path, text)
    copies = CodeCopies(load_config(tmp_path / "config.yaml"), run)
    copies.write()
    (copy,) = run.code.iterdir()
    assert copy.read_text() == (tmp_path / "own.py").read_text()
    digest = hashlib.sha256(copy.read_bytes()).hexdigest()
    assert copies.described == {str(tmp_path / "own.py"): {"copy": f"code/{copy.name}", "sha256": digest}}
    assert load_stored_config(run.config).env.use == f"{tmp_path / 'own.py'}:IntegerBox"

    (tmp_path / "own.py").write_text("changed = True\n")
    CodeCopies(load_config(tmp_path / "config.yaml"), run).write()
    assert len(list(run.code.iterdir())) == 2, "the copy of the earlier attempt is lost"

    (tmp_path / "own.py").unlink()
    moved = run.path.rename(tmp_path / "elsewhere")
    config = load_stored_config(moved / "config.yaml")
    encoder = config.policies["blue"].settings["encoder"]
    assert config.env.use == f"{moved / 'code' / copy.name}:IntegerBox"
    assert encoder["units"]["use"] == f"{moved / 'code' / copy.name}:Raises"
    CodeCopies(config, RunDirectory(tmp_path, "elsewhere")).write()
    assert len(list((moved / "code").iterdir())) == 2, "a copy is copied"
