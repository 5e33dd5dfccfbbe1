"""If these fail, ``arena league`` shows another league than the one in the records."""

import json
import sqlite3
from pathlib import Path

import numpy as np
import pytest
import torch

from arena.commands.league import all_met, most_informative
from arena.common.registry import make_environment
from arena.config.run import load_config
from arena.launch import main
from arena.policies.loader import build
from arena.records.database import SCHEMA, SCHEMA_VERSION
from arena.records.readers.league import mean_returns, read_league, win_rates
from arena.records.run_directory import RunDirectory
from arena.tensors.weights import write_tensors
from benchmarks.tools.trained import POLE, make_run

PSRO = """
name: psro
steps: 1000
env: {use: matrix_game, settings: {payoffs: biased_rock_paper_scissors}}
policies:
  solver: {use: ppo, settings: {hidden: []}}
league: {use: psro}
"""
SOLVER = "best_responder_default_0"


def snapshot(run: RunDirectory, steps: int, action: int) -> str:
    """Write weights that always take one action; return the player's id."""
    environment = make_environment("matrix_game", {"payoffs": "biased_rock_paper_scissors"})
    policy = build("ppo", environment.entities[0], {"hidden": []}, lanes=1, seed=0)
    weights = {name: torch.zeros_like(tensor) for name, tensor in policy.weights().items()}
    (bias,) = (name for name, tensor in weights.items() if tensor.shape == (3,))
    weights[bias] = 30.0 * torch.eye(3)[action]
    run.snapshot(SOLVER, steps).parent.mkdir(exist_ok=True)
    write_tensors(run.snapshot(SOLVER, steps), weights)
    return f"{SOLVER}_{steps}"


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """A run whose solver was frozen as rock, paper and scissors, of which each two have met."""
    run = RunDirectory(tmp_path, "psro")
    (tmp_path / "config.yaml").write_text(PSRO)
    run.create(load_config(tmp_path / "config.yaml").to_yaml(), {}, resume=False)
    rock, paper, scissors = (snapshot(run, 100 * action, action) for action in range(3))
    snapshot(run, 950, 1)  # where the run ended: in no league
    with sqlite3.connect(run.database) as records:
        records.executescript(f"{SCHEMA} PRAGMA user_version = {SCHEMA_VERSION};")
        members = [(SOLVER, None, 1, 950, "latest")]
        members += [(f"{SOLVER}_{steps}", SOLVER, 0, steps, steps) for steps in (0, 100, 200)]
        for name, parent, active, steps, file in members:
            path = f"players/{SOLVER}/{file}.safetensors"
            row = (name, "BestResponsePlayer", "default", parent, active, steps, path, 1000.0 + steps)
            records.execute("INSERT INTO league_players VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
        for home, away, wins, draws, losses, margin in [
            (rock, paper, 1.0, 0.0, 9.0, -25.0),
            (rock, scissors, 8.0, 2.0, 0.0, 50.0),
            (scissors, paper, 10.0, 0.0, 0.0, 5.0),
            (SOLVER, rock, 3.0, 0.0, 1.0, None),
        ]:
            row = (home, away, wins, draws, losses, wins + draws + losses, margin)
            records.execute("INSERT INTO payoff VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        for minute, name, games, mu in [
            (0, rock, 0, 25.0),
            (0, SOLVER, 0, 25.0),
            (3, SOLVER, 40, 30.0),
            (3, rock, 60, 20.0),
        ]:
            row = (1000.0 + 60 * minute, name, 0, games, mu, 2.0, 1500.0 + mu)
            records.execute("INSERT INTO ratings VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    return run


def test_records_are_read_from_both_sides_and_the_newest_rating_counts(run: RunDirectory) -> None:
    with sqlite3.connect(run.database) as connection:
        league = read_league(connection)
    rock, paper, scissors = (f"{SOLVER}_{steps}" for steps in (0, 100, 200))
    assert league.by_rating()[:2] == [SOLVER, rock] and league.ratings[SOLVER].mu == 30.0
    assert league.games == {SOLVER: 40, rock: 60}
    names = [rock, paper, scissors]
    rates, returns = win_rates(league.records, names), mean_returns(league.records, names)
    np.testing.assert_allclose(rates, [[np.nan, 0.1, 0.9], [0.9, np.nan, 0], [0.1, 1, np.nan]])
    np.testing.assert_allclose(returns, [[np.nan, -25, 50], [25, np.nan, -5], [-50, 5, np.nan]])
    assert league.counts(rock) == (10.0, 2.0, 12.0)
    assert league.curves[SOLVER].minutes.tolist() == [0, 3] and league.family()[rock].parent == SOLVER


def test_the_standing_and_the_payoff_are_printed(run: RunDirectory, capsys) -> None:
    assert main(["league", str(run)]) == 0
    printed = capsys.readouterr().out
    lines = {words[0]: line for line in printed.splitlines()[::-1] if (words := line.split())}
    assert "30.0 ± 2.0" in lines[SOLVER] and "75% / 0% / 25%" in lines[SOLVER] and "950" in lines[SOLVER]
    assert "42% / 8% / 50%" in lines[f"{SOLVER}_0"]
    assert "win rate of the row against the column" in printed
    assert main(["league", str(run), "--returns"]) == 0
    assert "mean return of the row against the column" in capsys.readouterr().out


def test_all_of_it_is_there_as_json(run: RunDirectory, capsys) -> None:
    assert main(["league", str(run), "--json", "--exploitability"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["players"][0] | {"rating": None, "path": ""} == {
        "player": SOLVER, "type": "BestResponsePlayer", "category": "default", "parent": None, "active": True,
        "steps": 950, "path": "", "games": 40, "wins": 3.0, "draws": 0.0, "losses": 1.0, "rating": None,
        "games_of_weights": 4.0, "rating_of": SOLVER, "elo_of_all_games": found["players"][0]["elo_of_all_games"],
    }  # fmt: skip
    assert found["win_rates"][0][1] == 0.75 and found["mean_returns"][0][1] is None
    assert [row["alone"] for row in found["exploitability"]] == pytest.approx([50, 10, 100, 10])
    # The mixture by counted returns is the equilibrium: rock, paper and scissors have all met.
    assert found["nash_conv_by_counted_returns"] == pytest.approx(0, abs=1e-3)


@pytest.fixture
def reset_run(run: RunDirectory) -> RunDirectory:
    """The run after its solver was frozen as scissors and reset: all of its games belong to that snapshot."""
    rock, paper, scissors = (f"{SOLVER}_{steps}" for steps in (0, 100, 200))
    with sqlite3.connect(run.database) as records:
        records.execute("DELETE FROM payoff")
        records.execute("UPDATE league_players SET steps = 210 WHERE active")
        records.execute("INSERT INTO resets VALUES (1, 0.0, ?, 200)", (SOLVER,))
        for home, away, wins, games, effective in [(scissors, rock, 5.0, 10.0, 40.0), (SOLVER, paper, 0.0, 0.0, 0.0)]:
            row = (home, away, wins, 0.0, games - wins, games, 0.5)
            records.execute("INSERT INTO payoff VALUES (?, ?, ?, ?, ?, ?, ?)", row)
            row = (home, away, 4 * wins, 0.0, 3 * (games - wins), 4 * wins + 3 * (games - wins), 0.25, effective)
            records.execute("INSERT INTO game_totals VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
    return run


def test_empty_cells_say_why_and_all_games_are_beside_those_that_the_league_counts(reset_run, capsys) -> None:
    assert main(["league", str(reset_run)]) == 0
    printed = capsys.readouterr().out
    assert "as the league counts: recent games weigh more" in printed
    assert "all games, by the weights that played them" in printed
    assert f"↺ not met since {SOLVER} was reset at 200 steps" in printed and "· never met" in printed
    assert "50%" in printed and "35–65" in printed, "the interval of 40 games of one weight"
    assert "57%" in printed and "41–72" in printed, "20 of 35 games"
    assert f"{SOLVER}_200 {SOLVER}_0 57% (41–72) 35 154" in " ".join(printed.split()), "as many are needed"
    assert "25.0 ± 2.0*" not in printed and "20.0 ± 2.0 " in printed
    assert main(["league", str(reset_run), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    names = [player["player"] for player in found["players"]]
    home, away, new = (names.index(name) for name in (f"{SOLVER}_200", f"{SOLVER}_0", SOLVER))
    assert found["win_rates"][home][away] == 0.5 and found["games"][home][away] == 10
    assert found["all_games"]["win_rates"][home][away] == pytest.approx(20 / 35)
    assert found["all_games"]["win_rates_low"][home][away] == pytest.approx(0.4086, abs=1e-3)
    assert found["since"][new] == f"{SOLVER} was reset at 200 steps" and found["since"].count(None) == 3
    assert found["all_games"]["since"][new] in (f"{SOLVER} was reset at 200 steps", f"{SOLVER} was frozen at 200 steps")
    players = {player["player"]: player for player in found["players"]}
    assert players[f"{SOLVER}_200"]["games_of_weights"] == 35 and players[f"{SOLVER}_200"]["rating_of"] == SOLVER
    elo = players[f"{SOLVER}_200"]["elo_of_all_games"]
    assert elo["low"] < players[f"{SOLVER}_0"]["elo_of_all_games"]["mean"] < elo["mean"] < elo["high"]


def test_a_league_of_before_says_that_it_has_decayed_counts_only(run, capsys) -> None:
    assert main(["league", str(run)]) == 0
    printed = capsys.readouterr().out
    assert "recorded by an earlier version" in printed and "as the league counts" not in printed


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_every_picture_is_written(run: RunDirectory, capsys, kind: str) -> None:
    assert main(["league", str(run), "--plot", kind, "--exploitability"]) == 0
    names = ["payoff", "ratings", "family", "exploitability"]
    pictures = [run.plots / f"league_{name}.{kind}" for name in names]
    assert all(picture.stat().st_size > 5000 for picture in pictures)
    printed = capsys.readouterr().out
    assert all(str(picture) in printed for picture in pictures)


def test_a_screen_holds_whoever_learns_and_the_best_snapshots(run: RunDirectory) -> None:
    with sqlite3.connect(run.database) as connection:
        league = read_league(connection)
    assert most_informative(league, 2) == [SOLVER, f"{SOLVER}_0"]
    assert most_informative(league, 0) == [SOLVER], "whoever learns is always shown"


def test_only_those_that_have_all_met_are_mixed() -> None:
    """The newest ones first: an opponent that was never met has no result."""
    matrix = np.array([[np.nan, 1, np.nan, 2], [-1, np.nan, 3, 4], [np.nan, -3, np.nan, 5], [-2, -4, -5, np.nan]])
    assert all_met(matrix) == [1, 2, 3]


def test_a_league_of_one_without_opponents_is_shown(run: RunDirectory, capsys) -> None:
    """Solo: no payoff, no ratings."""
    with sqlite3.connect(run.database) as records:
        for table in ("payoff", "ratings"):
            records.execute(f"DELETE FROM {table}")
        records.execute("DELETE FROM league_players WHERE active = 0")
    assert main(["league", str(run), "--plot"]) == 0
    assert SOLVER in capsys.readouterr().out


def test_a_run_without_a_league_says_so(run: RunDirectory, capsys) -> None:
    with sqlite3.connect(run.database) as records:
        records.execute("DELETE FROM league_players")
    assert main(["league", str(run)]) == 2
    assert "expected a run with a league, or with matches in which several players meet" in capsys.readouterr().err


def test_a_tournament_knows_a_league_s_snapshots_by_their_ids(run: RunDirectory, capsys) -> None:
    command = ["tournament", str(run), "--players", f"{SOLVER}_0,{SOLVER}_100,{SOLVER}@200", "--games", "4", "--json"]
    assert main(command) == 0
    found = json.loads(capsys.readouterr().out)
    names = [player["player"] for player in found["players"]]
    rock, paper = names.index(f"{SOLVER}_0"), names.index(f"{SOLVER}_100")
    assert found["mean_returns"][paper][rock] == 25.0


def test_a_player_meets_every_historical_one_of_its_league_and_they_do_not_meet(run: RunDirectory, capsys) -> None:
    players = f"{SOLVER}@950,historical"
    command = ["tournament", str(run), "--players", players, "--first-meets-all", "--games", "8", "--json"]
    assert main(command) == 0
    found = json.loads(capsys.readouterr().out)
    games = {player["player"]: player["games"] for player in found["players"]}
    assert games == {f"{SOLVER}@950": 24, **{f"{SOLVER}_{steps}": 8 for steps in (0, 100, 200)}}


def test_a_run_without_a_league_has_no_historical_players(run: RunDirectory, capsys) -> None:
    with sqlite3.connect(run.database) as records:
        records.execute("DELETE FROM league_players WHERE NOT active")
    assert main(["tournament", str(run), "--players", f"{SOLVER},historical"]) == 2
    assert "has no historical players" in capsys.readouterr().err


def test_a_table_of_matches_shows_who_has_won_against_whom(tmp_path, capsys):
    run = make_run(tmp_path, POLE.replace("blue: {", "red: {use: random}, blue: {"))
    with sqlite3.connect(run.database) as records:
        records.executescript(f"{SCHEMA} PRAGMA user_version = {SCHEMA_VERSION};")
        for name, learns in (("blue", 1), ("red", 0)):
            records.execute("INSERT INTO players VALUES (?, 'ppo', '#000', ?, 10)", (name, learns))
        for number in range(30):
            cause = "fault:crash" if number >= 20 else None
            records.execute(
                "INSERT INTO episodes VALUES (?, 1, 0, 0, 0, ?, 9, 1, 0, ?, NULL, 0)", (number, number, cause)
            )
            for entity, (name, earned) in enumerate((("blue", 1.0 if number % 4 else -1.0), ("red", 0.0))):
                row = (number, entity, name, earned, 9, 10 * number)
                records.execute("INSERT INTO episode_entities VALUES (?, ?, ?, ?, ?, NULL, ?, NULL)", row)
    assert main(["league", str(run.path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    blue, red = sorted(found["players"], key=lambda player: player["player"])
    assert (blue["wins"], blue["draws"], blue["losses"], blue["games"]) == (15, 0, 5, 20)
    assert (red["wins"], red["losses"], red["games"]) == (5, 15, 20)
    assert blue["rating"]["mu"] > red["rating"]["mu"]
    assert main(["league", str(run.path), "--plot"]) == 0
    assert "win rates" in capsys.readouterr().out
    assert {path.name for path in run.plots.iterdir()} == {"league_payoff.png", "league_ratings.png"}
