"""``arena eval --as-evaluated``: an evaluation while training is played again, to the last digit."""

import json
from pathlib import Path
from typing import Any

import pytest

from arena.common.errors import ConfigError
from arena.config.resumed import load_stored_config
from arena.evaluation.repeated import play_again
from arena.evaluation.results import Results
from arena.evaluation.while_training import Evaluator
from arena.launch import main
from arena.protocol.evaluation import EvaluationRequest
from arena.records.player_statistics import players_of
from arena.records.run_directory import RunDirectory
from arena.records.writers.run import RecordWriter
from benchmarks.tools.trained import give_weights, make_run

CONFIG = """
name: again
steps: 100_000
env: {use: ENV}
policies: {blue: {use: BLUE}, red: {use: RED}}
matches: [{seats: SEATS}]
evaluate: {every: 500, episodes: 3, keep_all: true, deterministic: SAMPLES}
"""
POLE, SPREAD = '"gymnasium:CartPole-v1"', "pettingzoo:mpe2.simple_spread_v3, settings: {max_cycles: 25}"
PENDULUM, TEAMS = '"gymnasium:Pendulum-v1"', "touchdown, settings: {team_size: 1, max_steps: 50}"


def evaluated_run(place: Path, steps: dict[str, int], **parts: str) -> RunDirectory:
    """Return a run in which players with these weights were evaluated once, as the root records it."""
    text = CONFIG
    for name, part in {"RED": "random", "SAMPLES": "true", **parts}.items():
        text = text.replace(name, part)
    run = make_run(place, text)
    config = load_stored_config(run.config)
    weights = {player: str(give_weights(run, player, count, seed=count)) for player, count in steps.items()}
    evaluator = Evaluator(run, config, lambda: None)
    for number in (1, 2):  # the second one has copies that have played, as most in a run
        report = evaluator.evaluate(EvaluationRequest(number, weights))
    evaluator.close()
    assert report.returns is not None and report.returns.keys() == steps.keys(), report
    records = RecordWriter(run, players_of(config), host="here", ranks=3, tensorboard=False)
    for player, returns in report.returns.items():
        others = {other: count for other, count in steps.items() if other != player}
        records.evaluations.add(player, steps[player], returns, 1.0, "", others)
    records.close(0)
    return run


@pytest.mark.parametrize(
    ("use", "env", "seats", "extra"),
    [
        ("ppo", POLE, "[blue]", {}),
        ("ppo", POLE, "[blue]", {"SAMPLES": "false"}),
        ("ppo, settings: {lstm: 16}", POLE, "[blue]", {}),
        ("dqn", POLE, "[blue]", {}),
        ("sac", PENDULUM, "[blue]", {"SAMPLES": "false"}),
        ("td3", PENDULUM, "[blue]", {}),
        ("ddpg", PENDULUM, "[blue]", {}),
        ("maddpg", SPREAD, "[[blue, blue, blue]]", {}),
        ("masac", SPREAD, "[[blue, blue, blue]]", {"SAMPLES": "false"}),
        ("ppo", TEAMS, "[blue, red]", {"SAMPLES": "false"}),
    ],
)
def test_the_mean_is_the_recorded_one(tmp_path, use, env, seats, extra):
    parts = {"ENV": env.replace("SAMPLES", ""), "BLUE": use, "SEATS": seats, **extra}
    run = evaluated_run(tmp_path, {"blue": 500}, **parts)
    played, recorded = play_again(run, load_stored_config(run.config), None, "500")
    assert Results(played)["blue"].mean == recorded.mean and recorded.episodes == 3


def test_the_others_play_with_their_weights_of_that_time(tmp_path, capsys):
    run = evaluated_run(tmp_path, {"blue": 520, "red": 480}, ENV=TEAMS, BLUE="ppo", RED="ppo", SEATS="[blue, red]")
    give_weights(run, "red", 900, seed=900)
    assert main(["eval", f"{run}:blue@500", "--as-evaluated", "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert found["evaluation"]["equal"] and found["evaluation"]["steps"] == 520
    assert main(["eval", f"{run}:red", "--as-evaluated", "--at", "newest"]) == 0
    assert "red at 480 steps: recorded" in capsys.readouterr().out
    run.snapshot("red", 480).unlink()
    config = load_stored_config(run.config)
    with pytest.raises(ConfigError, match="expected the weights of red after 480 steps, which are not kept"):
        play_again(run, config, "blue", "500")
    with pytest.raises(ConfigError, match="the player of the evaluation, RUN:PLAYER, since there are blue, red"):
        play_again(run, config, None, "500")
    with pytest.raises(ConfigError, match=r"blue@1000: expected a recorded evaluation, found those at 520 steps"):
        play_again(run, config, "blue", "1000")


@pytest.mark.parametrize("option", [("--episodes", "5"), ("--deterministic",), ("--row", "0"), ("--seed", "3")])
def test_options_that_the_evaluation_fixes_are_refused(tmp_path, option, capsys):
    run = evaluated_run(tmp_path, {"blue": 500}, ENV=POLE, BLUE="ppo", SEATS="[blue]")
    assert main(["eval", str(run), "--as-evaluated", "--at", "500", *option]) == 2
    assert f"{option[0]}: expected none beside --as-evaluated" in capsys.readouterr().err
