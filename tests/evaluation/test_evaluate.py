"""``arena eval``: the trained players play, the same episodes for the same seed, and can be filmed."""

import json
import re
import shutil
import subprocess
import sys

import imageio.v2 as imageio
import numpy as np
import pytest
from PIL import Image

from arena.common.errors import ConfigError
from arena.common.registry import make_environment
from arena.config.run import load_config
from arena.evaluation.evaluate import evaluate, seat_names
from arena.evaluation.play import Result
from arena.evaluation.players import newest_weights
from arena.evaluation.results import pairings, standard_error, tally
from arena.launch import main
from arena.records.checkpoints import Checkpoints
from arena.records.run_directory import RunDirectory
from arena.tensors.weights import write_tensors
from benchmarks.tools.trained import give_weights, make_run

CARTPOLE = """
name: cartpole
steps: 1000
env: {use: gymnasium:CartPole-v1, num_envs: 4}
policies:
  solo: {use: ppo, color: "#8b5cf6", settings: {hidden: [8]}}
  idle: {use: random}
matches: [{seats: [solo]}]
"""

TOUCHDOWN = """
name: touchdown
steps: 1000
env: {use: touchdown, settings: {team_size: 2}}
policies:
  blue: {use: ppo, settings: {hidden: [8]}}
  red: {use: random}
  green: {use: random}
matches:
  - seats: [blue, [red, red]]
    entities: [0, 2, 3]
  - {seats: [blue, blue, red, red]}
"""

BALANCER = '''
import numpy as np
import torch


class Balancer:
    """Balances a pole by itself, unless its one weight is negative."""

    def __init__(self, env, group, gain=1.0):
        self.space, self.gain = env.single_action_space, gain
        self.weight = torch.ones(1)
        group.broadcast(self)

    def run(self, steps):
        raise NotImplementedError

    def state_dict(self):
        return {"weight": self.weight}

    def load_state_dict(self, state):
        self.weight = state["weight"]

    def act(self, observations):
        lean = observations @ np.array([0.05, 0.2, 1.0, 0.6])
        return (self.gain * self.weight.item() * lean > 0).astype(np.int64)


class Stepper(Balancer):
    def __init__(self, env, group):
        env.reset()


class Faulty(Balancer):
    def act(self, observations):
        return self.choose(observations)

    def choose(self, observations):
        raise ValueError("no idea")


class Wide(Balancer):
    def act(self, observations):
        return observations > 0


class Mute:
    def __init__(self, env, group):
        pass

    def run(self, steps):
        pass
'''


METER = """
import gymnasium


class Meter(gymnasium.Env):
    observation_space = gymnasium.spaces.Discrete(2)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        return 0, {}

    def step(self, action):
        return 1, 1.0, True, False, {"metrics": {"shortage": 12.5}}
"""

CROWD = '''
import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv


class Crowd(ParallelEnv):
    """A hero, and a crowd that may only do what its mask allows, in two choices at once."""

    metadata = {"name": "crowd", "action_mask": True}
    possible_agents = ["hero", "crowd"]
    actions = {"hero": spaces.Discrete(2), "crowd": spaces.MultiDiscrete([2, 3])}

    def observation_space(self, agent):
        return spaces.Box(0, 10, (1,), np.float32)

    def action_space(self, agent):
        return self.actions[agent]

    def _told(self):
        self.allowed = self.time % 2, self.time % 3
        masks = {"hero": [1, 1], "crowd": [int(i == self.allowed[0]) for i in range(2)]
                 + [int(i == self.allowed[1]) for i in range(3)]}
        observations = {agent: np.array([self.time], np.float32) for agent in self.agents}
        return observations, {agent: {"action_mask": np.array(masks[agent], np.int8)} for agent in self.agents}

    def reset(self, seed=None, options=None):
        self.time, self.agents = 0, self.possible_agents[:]
        return self._told()

    def step(self, actions):
        legal = tuple(actions["crowd"]) == self.allowed
        self.time += 1
        observations, infos = self._told()
        rewards, over = dict.fromkeys(self.agents, float(legal)), dict.fromkeys(self.agents, self.time == 6)
        self.agents = [] if self.time == 6 else self.agents
        return observations, rewards, over, dict.fromkeys(over, False), infos
'''


@pytest.fixture
def cartpole(tmp_path) -> RunDirectory:
    run = make_run(tmp_path, CARTPOLE)
    give_weights(run, "solo", 1000)
    return run


@pytest.fixture
def touchdown(tmp_path) -> RunDirectory:
    run = make_run(tmp_path, TOUCHDOWN)
    give_weights(run, "blue", 1000)
    return run


@pytest.fixture
def balancer(tmp_path) -> RunDirectory:
    (tmp_path / "balancer.py").write_text(BALANCER)
    run = make_run(
        tmp_path, CARTPOLE.replace("use: ppo", "use: balancer.py:Balancer").replace("hidden: [8]", "gain: 1.0")
    )
    path = run.snapshot("solo", 500)
    path.parent.mkdir()
    write_tensors(path, {"weight": np.ones(1, np.float32)})
    return run


def played(run: RunDirectory, **options) -> list[Result]:
    config = load_config(run.config)
    return evaluate(run, config, rows=config.round_list()[0].rows[:1], **options)


def test_a_good_policy_is_seen_to_be_good(balancer, capsys):
    assert main(["eval", str(balancer.path), "--episodes", "10"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"solo\s+Balancer\s+10\s+500\.0 ± 0\.00\s+500\.0", shown), shown


def test_the_newest_weights_play(balancer):
    worse = balancer.snapshot("solo", 900)
    write_tensors(worse, {"weight": -np.ones(1, np.float32)})
    assert max(result.returns[0] for result in played(balancer, episodes=5)) < 50
    checkpoints = Checkpoints(balancer.checkpoints)
    write_tensors(checkpoints.begin(1) / "solo.safetensors", {"weight": np.ones(1, np.float32)})
    checkpoints.complete(1, {"steps": {"solo": 950}})
    assert min(result.returns[0] for result in played(balancer, episodes=5)) == 500


def test_which_weights_play(balancer, capsys):
    write_tensors(balancer.snapshot("solo", 900), {"weight": -np.ones(1, np.float32)})
    shutil.copy(balancer.snapshot("solo", 500), balancer.best("solo"))

    def lengths(*arguments: str) -> list[float]:
        assert main(["eval", str(balancer.path), "--episodes", "3", "--json", *arguments]) == 0
        (results,) = json.loads(capsys.readouterr().out)["players"].values()
        assert results["episodes"] == 3 and results["mean_return"] == np.mean(results["returns"])
        return results["returns"]

    assert max(lengths()) < 50
    for chosen in (["--at", "best"], ["--at", "500"], ["--seats", "solo@best"]):
        assert lengths(*chosen) == [500.0] * 3
    assert main(["eval", str(balancer.path), "--at", "7"]) == 2
    assert "solo@7: expected the steps of a snapshot" in capsys.readouterr().err


def test_what_the_environment_measures_is_shown(tmp_path, capsys):
    (tmp_path / "meter.py").write_text(METER)
    text = CARTPOLE.replace("gymnasium:CartPole-v1", "meter.py:Meter").replace("name: cartpole", "name: meter")
    run = make_run(tmp_path, text.replace("seats: [solo]", "seats: [idle]"))
    assert main(["eval", str(run.path), "--episodes", "4"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"mean length\s+shortage", shown) and re.search(r"● idle .* 1\.0\s+12\.50", shown), shown
    assert main(["eval", str(run.path), "--episodes", "4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["players"]["idle"]["metrics"] == {"shortage": 12.5}


def test_the_same_seed_plays_the_same_episodes_in_any_number_of_copies(cartpole):
    one = played(cartpole, episodes=6, seed=3, deterministic=True, copies=1)
    again = played(cartpole, episodes=6, seed=3, deterministic=True, copies=4)
    assert sorted(one) == sorted(again)
    assert played(cartpole, episodes=6, seed=4, deterministic=True, copies=4) != again
    drawn = [played(cartpole, episodes=6, seed=3) for _ in range(2)]
    assert drawn[0] == drawn[1]


def test_every_copy_plays_its_share_so_short_episodes_are_not_preferred(cartpole):
    """With as many copies as episodes, all are played to their ends."""
    results = played(cartpole, episodes=7, copies=7)
    assert len(results) == 7
    assert all(result.returns[0] == result.length for result in results)


def test_teams_play_and_outcomes_are_counted(touchdown, capsys):
    assert main(["eval", str(touchdown.path), "--row", "1", "--episodes", "4", "--seed", "5"]) == 0
    shown = capsys.readouterr().out
    blue, red = (next(line for line in shown.splitlines() if f"● {name}" in line) for name in ("blue", "red"))
    assert "win / draw / loss" in shown and "%" in blue
    mean = {line: float(re.search(r"(-?\d+\.\d+) ±", line)[1]) for line in (blue, red)}
    assert mean[blue] == -mean[red]


def test_entities_that_nobody_plays_act_at_random(touchdown):
    results = played(touchdown, episodes=2)
    assert [result.players for result in results] == [("blue", "red", "red")] * 2


def test_masks_of_several_choices_hold_for_entities_that_nobody_plays(tmp_path):
    (tmp_path / "crowd.py").write_text(CROWD)
    text = CARTPOLE.replace("gymnasium:CartPole-v1", "crowd.py:Crowd").replace("name: cartpole", "name: crowd")
    run = make_run(tmp_path, text.replace("seats: [solo]", "seats: [idle], entities: [0]"))
    assert [result.returns for result in played(run, episodes=2)] == [(6.0,)] * 2, "a return counts the legal steps"


def test_others_can_take_the_seats(touchdown, capsys):
    for seats in ("green,red", "green,green,red,red"):
        assert main(["eval", str(touchdown.path), "--row", "1", "--episodes", "2", "--seats", seats]) == 0
        shown = capsys.readouterr().out
        assert "● green" in shown and "● red" in shown and "● blue" not in shown


def test_seats_go_by_seat_or_by_player(touchdown):
    config = load_config(touchdown.config)
    row = config.round_list()[0].rows[1]
    assert seat_names(row, None, config) == ["blue", "blue", "red", "red"]
    assert seat_names(row, ["red", "green"], config) == ["red", "red", "green", "green"]
    assert seat_names(row, ["red", "green", "blue", "blue"], config) == ["red", "green", "blue", "blue"]
    with pytest.raises(
        ConfigError, match=r"expected 4 names, one for each seat .*, or 2, one for each player, found 3"
    ):
        seat_names(row, ["red"] * 3, config)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seats", "blu,red"], r"there is no player 'blu' \(did you mean 'blue'\?\); players: blue, red, green"),
        (["--row", "2"], r"--row: expected 0 to 1, or all, found '2'"),
        (["--video", "film.avi"], r"expected a file name that ends in \.mp4 or \.gif, found 'film\.avi'"),
        (["--video", "/no/such/place/film.gif"], r"found no /no/such/place; make it first"),
    ],
)
def test_bad_input_gets_one_clear_message(touchdown, capsys, arguments, message):
    assert main(["eval", str(touchdown.path), *arguments]) == 2
    error = capsys.readouterr().err
    assert re.search(message, error) and error.count("\n") == 1 and error.startswith("error: "), error


def test_a_run_that_does_not_exist_is_refused(tmp_path, capsys):
    assert main(["eval", str(tmp_path / "nothing")]) == 2
    assert "expected a run directory, found no config.yaml there" in capsys.readouterr().err


def test_a_player_without_weights_is_named(touchdown, capsys):
    shutil.rmtree(touchdown.players / "blue")
    assert main(["eval", str(touchdown.path), "--episodes", "1"]) == 2
    assert "player 'blue': expected weights in" in capsys.readouterr().err


def test_weights_that_do_not_fit_are_refused_with_their_file(cartpole, capsys):
    path = cartpole.snapshot("solo", 2000)
    write_tensors(path, {"weight": np.ones(3, np.float32)})
    assert main(["eval", str(cartpole.path), "--episodes", "1"]) == 2
    error = capsys.readouterr().err
    assert "player 'solo'" in error and str(path) in error


def test_a_damaged_checkpoint_is_passed_over(cartpole, caplog):
    checkpoints = Checkpoints(cartpole.checkpoints)
    for number in (1, 2):
        shutil.copy(cartpole.snapshots("solo")[-1], checkpoints.begin(number) / "solo.safetensors")
        checkpoints.complete(number, {"steps": {"solo": 5000}})
    (cartpole.checkpoints / "2" / "solo.safetensors").write_bytes(b"half")
    config = load_config(cartpole.config)
    found = newest_weights(cartpole, "solo", config.policies["solo"])
    assert found == cartpole.checkpoints / "1" / "solo.safetensors"
    assert "damaged" in caplog.text


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Mute", "found no act and no load_state_dict"),
        ("Stepper", "it steps its environment while it is built"),
    ],
)
def test_a_policy_that_cannot_be_evaluated_says_why(tmp_path, balancer, capsys, name, message):
    text = balancer.config.read_text().replace(":Balancer", f":{name}").replace("gain: 1.0", "{}")
    text = re.sub(r"settings:\s+\{\}", "settings: {}", text)
    balancer.config.write_text(text)
    assert main(["eval", str(balancer.path), "--episodes", "1"]) == 2
    assert message in capsys.readouterr().err


def faulty(balancer, capsys, name: str) -> str:
    """Return the error of an evaluation by a class of ``BALANCER``."""
    balancer.config.write_text(balancer.config.read_text().replace(":Balancer", f":{name}"))
    assert main(["eval", str(balancer.path), "--episodes", "3"]) == 1
    return capsys.readouterr().err


def test_an_act_that_raises_is_shown_without_our_frames(balancer, capsys):
    error = faulty(balancer, capsys, "Faulty")
    assert re.match(
        r"error: \S+balancer\.py:Faulty: act\(observations=\[3, 4\] of float32\) raised ValueError: no idea; "
        r"expected the actions of 3 lanes, each of Discrete\(2\): action \[3\] of int64\n",
        error,
    ), error
    assert error.count("File") == 2 == error.count('balancer.py"') and "Traceback" not in error


def test_actions_of_a_wrong_shape_are_named(balancer, capsys):
    error = faulty(balancer, capsys, "Wide")
    assert "returned [3, 4] of bool; expected the actions of 3 lanes" in error and error.count("\n") == 1, error


def test_stable_baselines3_players_can_be_evaluated(tmp_path):
    from arena.group.placeholders import SingleWorkerGroup, placeholder_env
    from arena.policies.sb3 import StableBaselines3

    text = (
        CARTPOLE.replace("use: ppo", "use: sb3")
        .replace("hidden: [8]", "algorithm: PPO")
        .replace("num_envs: 4", "num_envs: 4, autoreset: same_step")
    )
    run = make_run(tmp_path, text)
    environment = make_environment("gymnasium:CartPole-v1", {})
    model = StableBaselines3(
        placeholder_env(environment.entities, 4, "same_step"), SingleWorkerGroup(), algorithm="PPO"
    )
    environment.close()
    path = run.snapshot("solo", 10)
    path.parent.mkdir()
    write_tensors(path, model.state_dict())
    results = played(run, episodes=3)
    assert results == played(run, episodes=3)
    assert all(8 <= result.length <= 500 for result in results)


def test_board_games_are_played_by_turns_and_by_the_rules(tmp_path):
    run = make_run(
        tmp_path,
        """
name: tictactoe
steps: 1000
env: {use: "pettingzoo:classic.tictactoe_v3"}
policies:
  cross: {use: ppo, settings: {hidden: [8]}}
  nought: {use: random}
matches: [{seats: [cross, nought]}]
""",
    )
    give_weights(run, "cross", 10)
    results = played(run, episodes=20)
    assert all(5 <= result.length <= 9 for result in results)
    assert all(sum(result.returns) == 0 for result in results), "an illegal move would cost one side alone"


def test_a_gif_shows_the_episode(touchdown, tmp_path, capsys):
    film = tmp_path / "out.gif"
    arguments = ["--episodes", "1", "--row", "1", "--video", str(film), "--seed", "2"]
    assert main(["eval", str(touchdown.path), *arguments]) == 0
    assert str(film) in capsys.readouterr().out
    with Image.open(film) as image:
        assert image.n_frames > 10 and min(image.size) >= 320
        first = np.asarray(image.convert("RGB"))
        image.seek(image.n_frames - 1)
        assert (np.asarray(image.convert("RGB")) != first).any()


def test_an_mp4_shows_as_many_episodes_as_asked(cartpole, tmp_path):
    lengths = [result.length for result in played(cartpole, episodes=3, copies=1)]
    film = tmp_path / "out.mp4"
    arguments = ["--episodes", "3", "--copies", "1", "--video", str(film), "--video-episodes", "2"]
    assert main(["eval", str(cartpole.path), *arguments]) == 0
    with imageio.get_reader(film) as reader:
        assert sum(1 for _ in reader) == pytest.approx(lengths[0] + lengths[1] + 2, abs=1)
        assert reader.get_meta_data()["fps"] == 50, "CartPole asks for fifty frames a second"


def test_an_environment_that_cannot_draw_says_so(tmp_path, capsys):
    (tmp_path / "dull.py").write_text(
        """
import gymnasium


class Dull(gymnasium.Env):
    observation_space = gymnasium.spaces.Discrete(2)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        return 0, {}

    def step(self, action):
        return 1, 1.0, True, False, {}
"""
    )
    text = (
        "name: dull\\nsteps: 10\\nenv: {use: dull.py:Dull}\\npolicies: {a: {use: random}}\\nmatches: [{seats: [a]}]\\n"
    )
    run = make_run(tmp_path, text.replace("\\n", "\n"))
    assert main(["eval", str(run.path), "--episodes", "1", "--video", str(tmp_path / "out.gif")]) == 2
    assert "--video: this environment cannot draw" in capsys.readouterr().err
    assert main(["eval", str(run.path), "--episodes", "3"]) == 0


def test_pairings_are_read_from_one_side():
    def result(a: float, b: float, c: float) -> Result:
        return Result(("a", "b", "c"), (a, b, c), (None, None, None), 5)

    results = [result(1, 0, -1), result(0, 0, 1), Result(("b", "a"), (1.0, 0.0), ("loss", "win"), 5)]
    assert pairings(results) == {
        ("a", "b"): {"win": 2, "draw": 1, "loss": 0},
        ("a", "c"): {"win": 1, "draw": 0, "loss": 1},
        ("b", "c"): {"win": 1, "draw": 0, "loss": 1},
    }
    assert tally(results)["a"].outcomes == {"win": 2, "draw": 0, "loss": 1}
    assert standard_error([1.0, 2.0, 3.0]) == pytest.approx(1 / np.sqrt(3))


def test_all_rows_give_a_table_of_pairings(tmp_path, capsys):
    run = make_run(
        tmp_path,
        """
name: robin
steps: 100
env: {use: touchdown, settings: {team_size: 1}}
policies: {a: {use: random}, b: {use: random}, c: {use: random}}
round_robin: {policies: [a, b, c]}
""",
    )
    assert main(["eval", str(run.path), "--row", "all", "--episodes", "2"]) == 0
    shown = capsys.readouterr().out.split("pairings")[1]
    pairs = [line.replace("●", "").split()[:3] for line in shown.splitlines() if "●" in line]
    assert pairs == [["a", "b", "2"], ["a", "c", "2"], ["b", "c", "2"]]


@pytest.mark.tier("all")
def test_it_needs_no_mpi(cartpole):
    code = f"""
import json, sys
from arena.launch import main
code = main(["eval", {str(cartpole.path)!r}, "--episodes", "2"])
print(json.dumps([code, "mpi4py" in sys.modules]))
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=120)
    assert json.loads(done.stdout.splitlines()[-1]) == [0, False]
