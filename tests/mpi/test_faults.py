"""Environments that fail do not end a run: their copies are replaced, and nothing is learned from the fault."""

import json
import sqlite3
from pathlib import Path

import pytest

from .launching import player, run_arena, succeed

pytestmark = pytest.mark.rooms("env_manager", "environment")

PLANT = f"{Path(__file__).parents[2] / 'benchmarks' / 'tools' / 'fault_injection.py'}:plant"


def configuration(place, faults, policy, **env):
    """CartPole with faults (kind, step of the copy), each of which happens once."""
    wrapper = {"use": PLANT, "settings": {"tickets": str(place / "tickets"), "faults": faults}}
    return {
        "steps": 2_500,
        "env": {"use": "gymnasium:CartPole-v1", "num_envs": 4, "wrappers": [wrapper], **env},
        "policies": {"p": policy},
        "matches": [{"seats": ["p"]}],
    }


def told(directory, question):
    with sqlite3.connect(directory / "arena.sqlite") as database:
        return database.execute(question).fetchall()


IN_PLACE = [("raise", 20), ("nan", 80), ("nan_reward", 140), ("shape", 200), ("exit", 260), ("reset:raise", 320)]
APART = [*IN_PLACE, ("segfault", 40), ("hang", 110), ("leak", 170), ("kill", 230)]
NAMES = {
    "raise": "raised",
    "nan": "nan",
    "nan_reward": "nan",
    "shape": "shape",
    "exit": "exited",
    "segfault": "killed",
    "kill": "killed",
    "hang": "hung",
    "leak": "memory",
}
"""What each planted kind is called in the records."""


@pytest.mark.parametrize(
    ("env", "faults"),
    [
        ({"manager": "serial"}, IN_PLACE),
        ({"manager": "subprocess", "step_timeout": 3.0, "memory_limit": 300}, APART),
    ],
    ids=["serial", "subprocess"],
)
@pytest.mark.tier("default")
def test_a_run_goes_on_past_every_fault_and_counts_none_of_their_episodes(tmp_path, env, faults):
    policy = {"use": "ppo", "settings": {"horizon": 32}}
    outcome = succeed(run_arena(tmp_path, configuration(tmp_path, faults, policy, **env)))
    assert len(list((tmp_path / "tickets").glob("*.json"))) == len(faults), "a planted fault did not happen"
    expected = sorted(f"fault:{NAMES[kind]}" for kind, _ in faults if kind in NAMES)
    rows = told(outcome.directory, "SELECT cause, truncated FROM episodes WHERE cause IS NOT NULL")
    assert sorted(cause for cause, _ in rows) == expected
    assert all(truncated for _, truncated in rows)
    assert told(outcome.directory, "SELECT count(*) FROM faults")[0][0] == len(rows)
    manifest = max((outcome.directory / "checkpoints").glob("*/manifest.json"), key=lambda path: int(path.parent.name))
    statistics = json.loads(manifest.read_text())["statistics"]["players"]["p"]
    assert statistics["episodes"] == told(outcome.directory, "SELECT count(*) FROM episodes WHERE cause IS NULL")[0][0]
    assert "a planted mistake" in (outcome.directory / "log" / "arena.log").read_text()


@pytest.mark.parametrize(("manager", "num_envs"), [("serial", 1), ("subprocess", 4)])
def test_a_policy_of_ones_own_sees_a_truncated_episode(tmp_path, manager, num_envs):
    policy = {"use": player("faults:Watches"), "settings": {"faults": 2}}
    faults = [("raise", 20), ("nan", 60)]
    config = configuration(tmp_path, faults, policy, manager=manager, num_envs=num_envs)
    outcome = succeed(run_arena(tmp_path, config))
    assert "watched 2 faults" in outcome.output


def test_nobody_waits_for_a_copy_that_is_late_and_its_transitions_are_whole(tmp_path):
    environment = f"{Path(__file__).parent / 'players' / 'uneven.py'}:Uneven"
    config = {
        "steps": 2_000,
        "env": {
            "use": environment,
            "settings": {"ticket": str(tmp_path / "ticket")},
            "num_envs": 4,
            "manager": "subprocess",
            "wait_timeout": 0.05,
        },
        "policies": {"p": {"use": player("uneven:Looks"), "settings": {"horizon": 64}}},
        "matches": [{"seats": ["p"]}],
    }
    outcome = succeed(run_arena(tmp_path, config))
    rested, seen = outcome.output.split("rested ")[-1].splitlines()[0].split(" of ")
    rests = sorted(json.loads(rested))
    # An episode of 20 steps ends with a rest. As many again are left to a machine that is busy with other things.
    assert max(rests[:3]) <= int(seen) / 10, "the others rest only where an episode ends"
    assert rests[3] > 0.2 * int(seen), f"the slow one is at work meanwhile: {rests} of {seen}"
    episodes = told(outcome.directory, "SELECT length, count(*) FROM episodes GROUP BY 1")
    assert [length for length, _ in episodes] == [20], "every step of every episode counts once"


def test_in_same_step_mode_the_restart_is_told_beside_the_final_observation(tmp_path):
    policy = {"use": player("faults:Watches"), "settings": {"faults": 2}}
    config = configuration(tmp_path, [("raise", 20), ("nan", 60)], policy, autoreset="same_step")
    assert "watched 2 faults" in succeed(run_arena(tmp_path, config)).output


def test_games_of_turns_and_of_several_seats_go_on_too(tmp_path):
    config = configuration(
        tmp_path, [("raise", 9), ("raise", 30), ("exit", 60)], {"use": "ppo", "settings": {"horizon": 16}}
    )
    config["env"] |= {"use": "pettingzoo:classic.tictactoe_v3"}
    config |= {"steps": 600, "matches": [{"seats": ["p", "q"]}]}
    config["policies"]["q"] = {"use": "random"}
    outcome = succeed(run_arena(tmp_path, config))
    rows = told(outcome.directory, "SELECT cause FROM episodes WHERE cause IS NOT NULL ORDER BY 1")
    assert rows == [("fault:exited",), ("fault:raised",), ("fault:raised",)]


@pytest.mark.parametrize("manager", ["serial", "subprocess"])
def test_an_environment_that_has_never_worked_ends_the_run_at_once_with_one_sentence(tmp_path, manager):
    """Under mpirun, since it is the root that prints the sentence, and the log of another rank that has the rest."""
    config = configuration(tmp_path, [["raise", 1]] * 100, {"use": "ppo"}, manager=manager)
    outcome = run_arena(tmp_path, config)
    assert outcome.code == 1 and "Traceback" not in outcome.errors + outcome.output
    (line,) = [line for line in outcome.errors.splitlines() if "error:" in line]
    assert "environment 'gymnasium:CartPole-v1': step raised RuntimeError: a planted mistake" in line
    assert "fault_injection.py, line " in line and "in the first episode of every copy" in line
    assert outcome.errors.splitlines()[-1] == line, "the last line of a failed run is its error"
    assert any("Traceback" in path.read_text() for path in (outcome.directory / "log").glob("rank-*.log"))


EXPIRES = """
import gymnasium
import numpy as np


class Expires(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32), gymnasium.spaces.Discrete(2)
    resets = 0

    def reset(self, *, seed=None, options=None):
        Expires.resets += 1
        if Expires.resets > 30:
            raise RuntimeError("the license has expired")
        self.t = 0
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.zeros(3, np.float32), 1.0, self.t >= 10, False, {}
"""


def test_a_match_that_is_given_up_is_closed_and_the_others_go_on(tmp_path):
    """One player is in that match alone, another one is in a second match, too, a third is not in it."""
    (tmp_path / "expires.py").write_text(EXPIRES)
    expires = {"use": f"{tmp_path / 'expires.py'}:Expires", "num_envs": 2, "max_retry": 2}
    policy = {"use": "ppo", "settings": {"horizon": 32}}
    config = {
        "steps": 3_000,
        "env": {"use": "gymnasium:CartPole-v1", "num_envs": 2},
        "policies": {"alone": policy, "early": {**policy, "steps": 300}, "two": {**policy, "learners": 1}},
        "matches": [
            {"seats": ["alone"], "env": expires},
            {"seats": ["early"]},
            {"seats": ["two"], "env": expires},
            {"seats": ["two"], "env": {**expires, "use": f"{tmp_path / 'expires.py'}:Expires", "num_envs": 2}},
        ],
    }
    text = EXPIRES.replace("> 30", "> 1_000_000")
    (tmp_path / "lasts.py").write_text(text)
    config["matches"][3]["env"]["use"] = f"{tmp_path / 'lasts.py'}:Expires"
    outcome = run_arena(tmp_path, config)
    assert outcome.code == 1, outcome.errors
    lines = [line for line in outcome.errors.splitlines() if line.startswith("error: ")]
    assert [line[:27] for line in sorted(lines)] == ["error: match 0 is given up:", "error: match 2 is given up:"]
    assert "reset raised RuntimeError: the license has expired (" in lines[0]
    assert "no match is left for alone: it learns no more" in outcome.output
    steps = dict(told(outcome.directory, "SELECT player, max(steps) FROM metrics GROUP BY player"))
    assert steps["early"] >= 300 and steps["two"] >= 3_000
    assert {path.parent.name for path in outcome.directory.glob("players/*/*0*.safetensors")} >= {"early", "two"}


FAILS = """
class Fails:
    def __init__(self, env, group, wait_for):
        self.env, self.wait_for = env, wait_for

    def run(self, steps):
        from pathlib import Path

        self.env.reset()
        while not list(Path(self.wait_for).glob("players/early/*.safetensors")):
            if any(self.env.step(self.env.action_space.sample())[2:4]):
                self.env.reset()
        raise ValueError("my own mistake")
"""


def test_a_run_that_fails_keeps_what_its_other_players_have_learned(tmp_path):
    """A finished player has its weights before the end of the run; all that is whole is in a last checkpoint."""
    (tmp_path / "fails.py").write_text(FAILS)
    policy = {"use": "ppo", "settings": {"horizon": 32}}
    fails = {"use": f"{tmp_path / 'fails.py'}:Fails", "settings": {"wait_for": str(tmp_path / "runs/run")}}
    config = {
        "steps": 10**9,
        "env": {"use": "gymnasium:CartPole-v1"},
        "policies": {"p": policy, "early": {**policy, "steps": 300}, "q": fails},
        "matches": [{"seats": ["p"], "replicas": 2}, {"seats": ["early"]}, {"seats": ["q"]}],
    }
    outcome = run_arena(tmp_path, config)
    assert outcome.code == 1
    assert outcome.errors.splitlines()[-1] == "ValueError: my own mistake"
    (manifest,) = (outcome.directory / "checkpoints").glob("*/manifest.json")
    steps = json.loads(manifest.read_text())["round_steps"]
    assert steps["early"] >= 300 and (manifest.parent / "early.safetensors").exists()
    assert steps["p"] == 0 or (manifest.parent / "p.safetensors").exists()
    config["policies"]["q"] = {"use": "random"}
    config["steps"] = steps["p"] + 300
    outcome = succeed(run_arena(tmp_path, config, "--resume"))
