"""If these fail, ``arena tournament`` ranks players by something else than how they play."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from arena.common.errors import ConfigError
from arena.common.registry import make_environment
from arena.config.run import RunConfig, load_config
from arena.evaluation.tournament import Game, find_contestants, play_tournament, rate, sides_of
from arena.launch import main
from arena.policies.loader import build
from arena.records.run_directory import RunDirectory
from arena.tensors.weights import write_tensors

KUHN = """
name: {name}
steps: 1000
env: {{use: "openspiel:kuhn_poker"{settings}}}
policies:
  left: {{use: ppo, settings: {{hidden: [8]}}}}
  right: {{use: ppo, settings: {{hidden: [8]}}}}
  noise: {{use: random}}
matches:
  - {{seats: [{seats}]}}
"""


def make_run(root: Path, name: str = "kuhn", settings: str = "", seats: str = "left, right") -> RunDirectory:
    run = RunDirectory(root, name)
    (root / "config.yaml").write_text(KUHN.format(name=name, settings=settings, seats=seats))
    run.create(load_config(root / "config.yaml").to_yaml(), {}, resume=False)
    return run


def write(run: RunDirectory, player: str, steps: int, lean: float) -> None:
    """Write weights that pass (lean < 0), bet (lean > 0) or do either (0), whatever they see."""
    env = load_config(run.config).env
    policy = build("ppo", make_environment(env.use, env.settings).entities[0], {"hidden": [8]}, lanes=1, seed=0)
    weights = {name: torch.zeros_like(tensor) for name, tensor in policy.weights().items()}
    (bias,) = (name for name, tensor in weights.items() if tensor.shape == (2,))
    weights[bias] = torch.tensor([-lean, lean])
    run.snapshot(player, steps).parent.mkdir(exist_ok=True)
    write_tensors(run.snapshot(player, steps), weights)


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """A run in which left folds at 100 steps and bets at 900, and right plays at random."""
    run = make_run(tmp_path)
    write(run, "left", 100, -20.0)
    write(run, "left", 900, 20.0)
    write(run, "right", 500, 0.0)
    return run


def with_config(run: RunDirectory) -> tuple[RunDirectory, RunConfig]:
    return run, load_config(run.config)


def played(run: RunDirectory, specs: list[str], **keywords) -> list[Game]:
    found = find_contestants([with_config(run)], specs)
    return list(play_tournament(with_config(run)[1].round_list()[0].rows[0], found, **keywords))


def test_every_two_meet_equally_often_from_both_sides(run: RunDirectory) -> None:
    games = played(run, ["left", "left@100", "right"], games=40)
    met = [tuple(sorted(game.players)) for game in games]
    assert {pair: met.count(pair) for pair in met} == dict.fromkeys(
        [("left", "left@100"), ("left", "right"), ("left@100", "right")], 40
    )
    first = [game.players[0] for game in games]
    assert [first.count(name) for name in ("left", "left@100", "right")] == [40, 40, 40]


def test_steps_choose_the_snapshot_and_a_bare_name_the_newest(run: RunDirectory) -> None:
    """A player that always bets takes the ante of 1 from one that always folds."""
    games = played(run, ["left", "left@100"], games=20)
    assert {dict(zip(game.players, game.returns, strict=True))["left"] for game in games} == {1.0}
    outcome = rate(["left@100", "left"], games)
    assert outcome.players == ("left", "left@100") and outcome.win_rates[0, 1] == 1.0
    assert outcome.counts.tolist() == [[20, 0, 0], [0, 0, 20]] and np.isnan(outcome.win_rates[0, 0])


def test_both_ways_of_sitting_get_the_same_cards(run: RunDirectory) -> None:
    """Betting against random play: the same hands from either side, so that luck cancels out."""
    games = played(run, ["left", "left@100"], games=60, seed=3)
    assert sum(game.returns[0] for game in games) == 0


def test_three_sides_are_rotated_through_all_seats(tmp_path: Path) -> None:
    run = make_run(tmp_path, settings=", settings: {players: 3}", seats="left, right, noise")
    write(run, "left", 0, 0.0)
    write(run, "right", 0, 0.0)
    games = played(run, ["left", "right", "noise"], games=30)
    assert len(games) == 30 and {game.players for game in games} == {
        ("left", "right", "noise"),
        ("right", "noise", "left"),
        ("noise", "left", "right"),
    }
    assert rate(["left", "right", "noise"], games).games.tolist() == [30, 30, 30]


def test_sides_are_the_players_of_the_table_or_each_seat(run: RunDirectory, tmp_path: Path) -> None:
    row = with_config(run)[1].round_list()[0].rows[0]
    assert sides_of(row) == [[0], [1]]
    alone = tuple(seat._replace(player="left") for seat in row.seats)
    assert sides_of(row._replace(seats=alone)) == [[0], [1]], "a player that meets itself"
    teams = tuple(row.seats[number] for number in (0, 0, 1, 1))
    assert sides_of(row._replace(seats=teams)) == [[0, 1], [2, 3]]
    with pytest.raises(ConfigError, match="which has no opponent"):
        sides_of(row._replace(seats=row.seats[:1]))


def test_ratings_find_the_true_order() -> None:
    """Six players, each beating the next ones the more often the further they are apart."""
    rng = np.random.default_rng(0)
    names, strength = list("fedcba"), dict(zip("abcdef", np.arange(6) * 0.6, strict=True))
    games = []
    for i, one in enumerate(names):
        for other in names[i + 1 :]:
            for _ in range(100):
                wins = rng.random() < 1 / (1 + np.exp(strength[other] - strength[one]))
                games.append(Game((one, other), (1.0, -1.0), ("win", "loss") if wins else ("loss", "win")))
    outcome = rate(names, games)
    assert "".join(outcome.players) == "fedcba"
    assert all(rating.sigma < 3 for rating in outcome.ratings)
    assert (np.diff([rating.elo for rating in outcome.ratings]) < 0).all()


def test_players_of_several_runs_meet(run: RunDirectory, tmp_path: Path, capsys) -> None:
    other = make_run(tmp_path, "other")
    write(other, "right", 7, -20.0)
    command = ["tournament", str(run), str(other), "--players", "left,other:right@7,noise", "--games", "20", "--json"]
    assert main(command) == 0
    found = json.loads(capsys.readouterr().out)
    assert {player["player"] for player in found["players"]} == {"left", "other:right@7", "noise"}
    assert all(player["games"] == 40 for player in found["players"])


def test_the_command_prints_ranks_and_draws(run: RunDirectory, tmp_path: Path, capsys) -> None:
    command = ["tournament", str(run), "--games", "30", "--plot", str(tmp_path / "map.png")]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in ("left", "right", "noise", "±", "win rate of the row against the column"))
    assert (tmp_path / "map.png").stat().st_size > 5000
    assert main(["tournament", str(run), "--games", "10", "--players", "left,left@100", "--returns"]) == 0
    printed = capsys.readouterr().out
    assert "mean return of the row against the column" in printed and "-1.00" in printed


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--players", "left,left"], "expected each player once, found 'left' 2 times"),
        (["--players", "left"], "expected 2 players or more"),
        (["--players", "left,rite"], r"no player 'rite' (did you mean 'right'?)"),
        (["--players", "left,left@5"], "there are 100, 900"),
        (["--players", "left,elsewhere:left"], "there is no run 'elsewhere' among kuhn"),
        (["--row", "3"], "--row: expected 0 to 0, found 3"),
        (["--plot", "map.pdf"], "ends in .png or .svg"),
    ],
)
def test_what_cannot_be_played_is_said_in_one_line(run: RunDirectory, capsys, arguments: list[str], text: str) -> None:
    assert main(["tournament", str(run), "--games", "2", *arguments]) == 2
    printed = capsys.readouterr().err
    assert text in printed and printed.count("\n") == 1
