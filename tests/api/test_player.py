"""``arena.load`` and ``Player.act``: the actions of the trained policies, without their environments."""

import json
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import arena
from arena.common.trees import map_tree
from arena.envs.interface import EntitySpaces
from arena.experience.entity_json import entity_to_json
from arena.launch import main
from arena.launch.preflight.warm_start import weights_file
from arena.records.run_directory import RunDirectory
from arena.tensors.weights import write_tensors
from benchmarks.tools.trained import POLE, give_weights, make_run
from tests.policies.policy_cases import CASES, ROWS, Case, masks, observed, trained


def run_of(tmp_path, case: Case, policy) -> RunDirectory:
    """Return a run whose player has the weights of ``policy``, and the spaces of a case."""
    settings = json.dumps(dict(case.settings))
    text = POLE.replace("steps: 1000", "steps: 100_000").replace(
        "{use: ppo, settings: {hidden: [8]}}", f"{{use: {case.use}, settings: {settings}}}"
    )
    run = make_run(tmp_path, text)
    run.spaces("blue").parent.mkdir(parents=True)
    run.spaces("blue").write_text(
        json.dumps(entity_to_json(EntitySpaces("blue", case.observation, case.action, case.mask)))
    )
    write_tensors(run.snapshot("blue", 1000), policy.weights())
    return run


def allowed(case: Case, seed: int) -> np.ndarray | None:
    """Return masks that allow at least the first action of each choice."""
    mask = masks(case, seed)
    if mask is not None and isinstance(case.action, spaces.MultiDiscrete):
        mask[:, np.cumsum([0, *case.action.nvec[:-1]])] = 1
    return mask


def row(tree, index: int):
    return map_tree(lambda leaf: leaf[index], tree)


def assert_equal(actions, expected):
    map_tree(lambda *leaves: np.testing.assert_allclose(*leaves, rtol=1e-4, atol=1e-6), actions, expected)


@pytest.mark.parametrize("name", CASES)
def test_actions_are_those_of_the_policy(tmp_path, name):
    case = CASES[name]
    policy = trained(case)
    player = arena.load(run_of(tmp_path, case, policy).path)
    is_recurrent = getattr(policy, "recurrent", False)
    assert player.name == "blue" and player.steps == 1000 and player.is_recurrent == is_recurrent
    assert player.observation_space == case.observation and player.action_space == case.action
    # A batch of lanes over three steps, with episodes that begin in between.
    for step in range(3):
        observations, mask = observed(case, step), allowed(case, step)
        starts = np.arange(ROWS) % 3 == step
        lanes = {"lanes": slice(0, ROWS), "starts": starts | (step == 0)} if is_recurrent else {}
        expected = policy.act(observations, action_mask=mask, deterministic=True, **lanes).actions
        assert_equal(player.act(observations, action_mask=mask, start=starts), expected)  # a stack is seen as one
    if not is_recurrent:  # one observation at a time
        for index in range(8):
            action = player.act(row(observations, index), action_mask=None if mask is None else mask[index])
            assert_equal(action, row(expected, index))
            assert case.action.contains(action)


def test_a_recurrent_player_keeps_its_state(tmp_path):
    case = CASES["lstm"]
    policy = trained(case)
    player = arena.load(run_of(tmp_path, case, policy).path)
    sequence = [row(observed(case, 7), index) for index in range(12)]

    def played() -> list[int]:
        return [int(player.act(observation)) for observation in sequence]

    first = played()
    player.reset()
    assert played() == first
    assert [int(player.act(o, start=not i)) for i, o in enumerate(sequence)] == first
    expected = [
        policy.act(observation[None], starts=np.array([not i]), lanes=slice(0, 1), deterministic=True).actions[0]
        for i, observation in enumerate(sequence)
    ]
    assert first == expected
    with pytest.raises(ValueError, match=r"expected 1 rows, as in the call before, found 64; call reset\(\) first"):
        player.act(observed(case, 0), batch=True)


def test_sampled_actions_differ_and_repeat_with_a_seed(tmp_path):
    case = CASES["vector"]
    run = run_of(tmp_path, case, trained(case))
    observation = row(observed(case, 0), 0)

    def sampled(seed: int) -> list[int]:
        player = arena.load(run.path, seed=seed)
        return [int(player.act(observation, deterministic=False)) for _ in range(40)]

    assert len(set(sampled(1))) > 1 and sampled(1) == sampled(1) != sampled(2)


def test_which_weights(tmp_path):
    run = make_run(tmp_path, POLE)
    old, _ = (give_weights(run, "blue", steps, seed=steps) for steps in (1000, 2000))
    with pytest.raises(arena.ConfigError, match=r"blue@best: expected the steps of a snapshot .* there are 1000, 2000"):
        arena.load(run.path, at="best")
    run.best("blue").write_bytes(old.read_bytes())

    def weights(**options):
        player = arena.load(run.path, "blue", **options)
        return player.steps, {name: tensor.tolist() for name, tensor in player.policy.weights().items()}

    assert weights()[0] == weights(at="newest")[0] == 2000
    assert weights(at=1000) == weights(at="1000")
    assert weights(at="best")[1] == weights(at=1000)[1] != weights()[1]
    assert arena.load(run.path, "blue@1000").steps == 1000
    with pytest.raises(arena.ConfigError, match=r"blue@7: expected the steps of a snapshot .* best, 1000, 2000"):
        arena.load(run.path, at=7)
    with pytest.raises(arena.ConfigError, match="expected weights once, found 'blue@1000' and '2000' beside it"):
        arena.load(run.path, "blue@1000", at=2000)


def test_a_name_with_its_run_means_the_same_everywhere(tmp_path, capsys):
    run = make_run(tmp_path, POLE)
    old, _ = (give_weights(run, "blue", steps, seed=steps) for steps in (1000, 2000))
    run.best("blue").write_bytes(old.read_bytes())
    name = f"{run}:blue@1000"
    assert arena.load(name).steps == arena.Run(run.path).player(name).steps == 1000
    assert arena.load(f"{run}:blue@best").policy.weights().keys() == arena.load(f"{run}:blue").policy.weights().keys()
    assert arena.load(f"{run}:blue").steps == 2000 and arena.load(f"{run}:blue", at=1000).steps == 1000
    with pytest.raises(arena.ConfigError, match="expected a player once, found 'blue@1000' in"):
        arena.load(name, "blue")
    with pytest.raises(arena.ConfigError, match="use arena.load for it"):
        arena.Run(run.path).player("elsewhere/x:blue")
    assert main(["eval", name, "--episodes", "2"]) == 0 and "blue@1000" in capsys.readouterr().out
    assert main(["eval", f"{run}:blue_1000", "--episodes", "2"]) == 0 and "blue_1000" in capsys.readouterr().out
    assert main(["eval", f"{run}:green", "--episodes", "2"]) == 2
    assert "there is no player 'green'" in capsys.readouterr().err
    out = tmp_path / "blue.onnx"
    assert main(["export", name, "--record", "8", "--out", str(out)]) == 0 and "blue@1000" in capsys.readouterr().out
    assert main(["page", name, "--save", str(tmp_path / "page.html")]) == 0
    assert weights_file("red", name) == run.snapshot("blue", 1000)


def test_a_tournament_between_named_players(tmp_path, capsys):
    text = """
name: duel
steps: 1000
env: {use: touchdown, settings: {team_size: 1, max_steps: 20}}
policies: {blue: {use: ppo, settings: {hidden: [8]}}, red: {use: random}}
matches: [{seats: [blue, red]}]
"""
    run = make_run(tmp_path, text)
    for steps in (1000, 2000):
        give_weights(run, "blue", steps, seed=steps)
    names = [f"{run}:blue@1000", f"{run}:blue", f"{run}:red"]
    assert main(["tournament", *names, "--games", "4", "--json"]) == 0
    players = json.loads(capsys.readouterr().out)["players"]
    assert {player["player"] for player in players} == set(names)


@pytest.mark.tier("all")
def test_an_exported_file_acts_like_its_player(tmp_path):
    run = make_run(tmp_path, POLE)
    give_weights(run, "blue", 1000)
    env = gymnasium.make("CartPole-v1")
    player = arena.load(run.path)
    assert main(["export", str(run), "blue", "--record", "64", "--to", "onnx", "--out", str(tmp_path / "b.onnx")]) == 0
    assert (
        main(["export", str(run), "blue", "--record", "64", "--to", "torchscript", "--out", str(tmp_path / "b.pt")])
        == 0
    )
    for file in ("b.onnx", "b.pt"):
        exported = arena.load(tmp_path / file)
        observation, _ = env.reset(seed=1)
        for _ in range(20):
            action = player.act(observation)
            assert exported.act(observation) == action
            observation, *_ = env.step(action)
        with pytest.raises(ValueError, match="expected deterministic=True"):
            exported.act(observation, deterministic=False)
    with pytest.raises(arena.ConfigError, match="expected the player 'blue', as the file has it, found 'red'"):
        arena.load(tmp_path / "b.onnx", "red")
    (tmp_path / "b.onnx").write_bytes(b"no file of ours")
    with pytest.raises(arena.ConfigError, match="damaged or cut"):
        arena.load(tmp_path / "b.onnx")


def test_what_does_not_fit_is_named(tmp_path):
    case = CASES["nested, joint, masked"]
    player = arena.load(run_of(tmp_path, case, trained(case)).path)
    good = row(observed(case, 0), 0)
    with pytest.raises(
        ValueError, match="observation: expected the keys cards, picture, rest, speed, found cards, picture"
    ):
        player.act({key: good[key] for key in ("cards", "picture")})
    with pytest.raises(ValueError, match=r"observation.picture: expected shape \[24, 24, 3\], found \[24, 24\]"):
        player.act({**good, "picture": good["picture"][:, :, 0]})
    with pytest.raises(ValueError, match=r"expected a stack of observations, arrays \[N, ...\], found shape \[\]"):
        player.act(3, batch=True)
    with pytest.raises(ValueError, match="action_mask: expected"):
        player.act(good, action_mask=[1, 1])
    vector = CASES["vector"]
    (tmp_path / "other").mkdir()
    player = arena.load(run_of(tmp_path / "other", vector, trained(vector)).path)
    with pytest.raises(ValueError, match="player 'blue' has no action masks"):
        player.act(row(observed(vector, 0), 0), action_mask=[1, 1, 1, 1])


def test_which_player(tmp_path):
    run = make_run(tmp_path, POLE.replace("policies: {blue", "policies: {green: {use: ppo}, red: {use: random}, blue"))
    give_weights(run, "blue", 1000)
    with pytest.raises(arena.ConfigError, match="there are several: green, red, blue"):
        arena.load(run.path)
    with pytest.raises(arena.ConfigError, match="no player 'bleu' .did you mean 'blue'"):
        arena.load(run.path, "bleu")
    with pytest.raises(arena.ConfigError, match="expected a run directory, found no config.yaml there"):
        arena.load(tmp_path / "nothing")
    with pytest.raises(arena.ConfigError, match=r"file of arena export \(.onnx, .pt\), found another file"):
        arena.load(run.snapshot("blue", 1000))


@pytest.mark.tier("all")
def test_nothing_is_imported_before_it_is_used(tmp_path):
    run = make_run(tmp_path, POLE)
    give_weights(run, "blue", 1000)
    script = f"""
import sys
import arena
heavy = ("torch", "mpi4py", "numpy", "pydantic", "gymnasium")
print([name for name in heavy if name in sys.modules], {{"load", "Player"}} <= set(dir(arena)))
arena.load({str(run.path)!r}).act([0.0, 0.1, 0.0, 0.1])
print("mpi4py" in sys.modules)
"""
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert answer.stdout == "[] True\nFalse\n"
