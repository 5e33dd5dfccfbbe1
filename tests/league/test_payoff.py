"""A league's payoff: records seen from both sides, decayed counts, teams, ranked games, refused reports."""

import json

import numpy as np
import pytest

from arena.common.errors import ConfigError
from arena.league.battle_payoff import BattleSharedPayoff
from arena.league.battle_record import BattleRecord
from arena.league.catalog import create_player
from arena.league.payoff import SoloSharedPayoff, create_payoff
from arena.league.settings import BattlePayoffConfig, SoloPayoffConfig


def payoff_of(*ids, **settings):
    payoff = create_payoff({"type": "battle", **settings})
    for player_id in ids:
        payoff.add_player(create_player("battle_active_player", {}, "c", payoff, f"{player_id}.x", player_id))
    return payoff


def play(payoff, home, away, *results):
    return payoff.update({"sides": [home, away], "results": list(results)})


def test_a_record_is_scaled_in_all_four_counts():
    assert BattleRecord(4, 2, 6, 12) * 0.5 == BattleRecord(2, 1, 3, 6)
    assert 0.5 * BattleRecord(4, 2, 6, 12) == BattleRecord(2, 1, 3, 6)


def test_decay_comes_before_the_new_game():
    payoff = payoff_of("a", "b")
    play(payoff, "a", "b", "wins", "losses", "draws")
    record = payoff.record("a", "b")
    assert record.wins == pytest.approx(0.99**2)
    assert record.losses == pytest.approx(0.99)
    assert record.draws == 1
    assert record.games == pytest.approx(1 + 0.99 + 0.99**2)


def test_the_ninth_game_is_the_first_that_counts():
    payoff = payoff_of("a", "b")
    for game in range(1, 10):
        play(payoff, "a", "b", "wins")
        assert payoff.record("a", "b").games == pytest.approx(sum(0.99**k for k in range(game)))
        assert payoff.win_rate("a", "b") == (pytest.approx(1.0) if game >= 9 else 0.5)
    assert payoff.record("a", "b").games == pytest.approx(8.6483, abs=1e-4)


@pytest.mark.parametrize(("games", "rate"), [(7, 0.5), (8, 1.0), (9, 1.0)])
def test_without_decay_the_eighth_game_counts(games, rate):
    payoff = payoff_of("a", "b", decay=1)
    play(payoff, "a", "b", *["wins"] * games)
    assert payoff.win_rate("a", "b") == rate


def test_both_sides_read_one_record():
    payoff = payoff_of("a", "b", decay=1)
    play(payoff, "a", "b", *["wins"] * 5)
    play(payoff, "b", "a", *["wins"] * 2, *["draws"] * 3)
    assert payoff.record("a", "b") == BattleRecord(5, 3, 2, 10)
    assert payoff.record("b", "a") == BattleRecord(2, 3, 5, 10)
    assert payoff.win_rate("a", "b") == pytest.approx(0.65)
    assert payoff.win_rate("b", "a") == pytest.approx(0.35)


def test_the_matrix_takes_ids_or_lists_and_follows_every_later_game():
    payoff = payoff_of("a", "b", "c", decay=1, min_win_rate_games=1)
    indices = np.arange(3)
    assert payoff.win_rates("a", indices).tolist() == [0.5, 0.5, 0.5]
    play(payoff, "a", "b", "wins", "wins", "wins", "losses")
    play(payoff, "c", "a", "wins")
    assert payoff["a", "b"].tolist() == [[0.75]]
    assert payoff[["a", "b"], ["b", "a", "c"]].tolist() == [[0.75, 0.5, 0.0], [0.5, 0.25, 0.5]]
    assert payoff.win_rates("a", indices).tolist() == [0.5, 0.75, 0.0]
    assert payoff.win_rates("c", indices).tolist() == [1.0, 0.5, 0.5]


def test_a_newcomer_is_met_at_one_half_and_then_by_results():
    payoff = payoff_of("a", "b", min_win_rate_games=1)
    payoff.win_rates("a", np.arange(2))
    for n in range(20):
        payoff.add_player(create_player("battle_active_player", {}, "c", payoff, "x", f"new{n}"))
    play(payoff, "a", "new19", "wins")
    assert payoff.win_rates("a", np.array([5, 21])).tolist() == [0.5, 1.0]


def test_self_play_changes_neither_win_rate_nor_rating():
    payoff = payoff_of("a", "b")
    before = payoff.ratings["a"]
    assert play(payoff, "a", "a", *["wins"] * 20)
    assert payoff.win_rate("a", "a") == 0.5
    assert payoff.record("a", "a") == BattleRecord()
    assert payoff.ratings["a"] == before
    assert payoff.games == 20


def test_teams_count_for_the_team_and_for_every_two_players_who_met():
    payoff = payoff_of("a", "b", "c", "d", decay=1, min_win_rate_games=1)
    payoff.update({"sides": [["a", "b"], ["c", "c"]], "results": ["wins", "wins", "losses", "draws"]})
    assert payoff.record(("a", "b"), "c") == BattleRecord(2, 1, 1, 4)
    assert payoff.record("c", ("b", "a")) == BattleRecord(1, 1, 2, 4)
    assert payoff.record("a", "c") == payoff.record("b", "c") == BattleRecord(2, 1, 1, 4)
    assert payoff.record("a", "b") == payoff.record("a", "d") == BattleRecord()
    assert payoff[("a", "b"), ["c", "d"]].tolist() == [[0.625, 0.5]]


def test_a_player_on_both_sides_has_met_nobody():
    payoff = payoff_of("a", "b", "c", decay=1)
    payoff.update({"sides": [["a", "b"], ["a", "c"]], "results": ["wins"]})
    assert payoff.record("b", "c") == BattleRecord(1, 0, 0, 1)
    assert payoff.record("a", "c") == payoff.record("a", "b") == BattleRecord()


def test_ranks_of_three_sides_are_a_game_of_every_two():
    payoff = payoff_of("a", "b", "c", decay=1)
    payoff.update({"sides": ["a", "b", "c"], "results": [[2, 1, 2]]})
    assert payoff.record("b", "a") == payoff.record("b", "c") == BattleRecord(1, 0, 0, 1)
    assert payoff.record("a", "c") == BattleRecord(0, 1, 0, 1)
    assert payoff.ratings["b"].mu > payoff.ratings["a"].mu
    assert payoff.ratings["a"].mu == pytest.approx(payoff.ratings["c"].mu)
    elos = [payoff.ratings[i].elo for i in "abc"]
    assert elos == pytest.approx([1496, 1508, 1496])


@pytest.mark.parametrize(
    "report",
    [
        {},
        None,
        {"sides": ["a", "b"]},
        {"sides": ["a", "b"], "results": "wins"},
        {"sides": ["a"], "results": ["wins"]},
        {"sides": ["a", "nobody"], "results": ["wins"]},
        {"sides": ["a", ["b", "nobody"]], "results": ["wins"]},
        {"sides": ["a", []], "results": ["wins"]},
        {"sides": ["a", 3], "results": ["wins"]},
        {"sides": ["a", "b"], "results": ["wins", "won"]},
        {"sides": ["a", "b"], "results": ["wins", None]},
        {"sides": ["a", "b"], "results": ["wins", [1, 2, 3]]},
        {"sides": ["a", "b"], "results": ["wins", [1, float("nan")]]},
        {"sides": ["a", "b"], "results": ["wins", [True, False]]},
        {"sides": ["a", "b", "c"], "results": [[1, 2, 3], "wins"]},
    ],
)
def test_a_report_with_anything_wrong_counts_nothing_and_the_log_says_why(report, caplog):
    payoff = payoff_of("a", "b", "c")
    before = payoff.state_dict()
    assert payoff.update(report) is False
    assert payoff.state_dict() == before
    assert "refused" in caplog.text


def test_a_report_without_games_is_taken():
    payoff = payoff_of("a", "b")
    assert play(payoff, "a", "b") is True
    assert payoff.record("a", "b") == BattleRecord()


def test_an_unknown_id_is_named_with_the_nearest():
    with pytest.raises(ConfigError, match="found 'man'.*did you mean 'main'"):
        payoff_of("main", "b").win_rate("b", "man")


def test_an_id_is_taken_once():
    with pytest.raises(ConfigError, match="found 'a' twice"):
        payoff_of("a", "a")


@pytest.mark.parametrize("least", [5, 6])
def test_a_win_rate_that_could_never_be_known_is_refused(least):
    # Counts decayed by 0.8 stay below 1 / (1 - 0.8) = 5 for ever.
    with pytest.raises(ConfigError, match="less than 5, .*every win rate would stay at 0.5"):
        create_payoff({"type": "battle", "decay": 0.8, "min_win_rate_games": least})
    create_payoff({"type": "battle", "decay": 0.8, "min_win_rate_games": 4.9})


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"type": "batle"}, "did you mean 'battle'"),
        ({"decay": 0}, "payoff.decay: expected a number greater than 0"),
        ({"decai": 0.9}, "payoff.decai: unknown key; did you mean 'decay'"),
        ({"type": "solo", "buffer_size": 0}, "payoff.buffer_size: expected a number of at least 1"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, text):
    with pytest.raises(ConfigError, match=text):
        create_payoff(settings)


def test_types_of_payoff():
    assert isinstance(create_payoff(BattlePayoffConfig()), BattleSharedPayoff)
    assert isinstance(create_payoff({}), BattleSharedPayoff)
    assert isinstance(create_payoff(SoloPayoffConfig()), SoloSharedPayoff)


def solo_payoff(buffer_size=3):
    payoff = create_payoff({"type": "solo", "buffer_size": buffer_size})
    payoff.add_player(create_player("solo_active_player", {}, "c", payoff, "x", "me"))
    return payoff


def test_a_solo_payoff_keeps_the_latest_results():
    payoff = solo_payoff()
    assert payoff.update({"launch_player": "me", "results": [1, 2]})
    assert payoff.update({"launch_player": "me", "results": [3.5, 4]})
    assert payoff.results == (2.0, 3.5, 4.0)
    again = solo_payoff()
    again.load_state_dict(json.loads(json.dumps(payoff.state_dict())))
    assert again.update({"launch_player": "me", "results": [5]})
    assert again.results == (3.5, 4.0, 5.0)


@pytest.mark.parametrize(
    "report",
    [
        {"launch_player": "me", "results": [1, "wins"]},
        {"launch_player": "me", "results": [float("inf")]},
        {"launch_player": "me", "results": 3},
        {"launch_player": "you", "results": [1]},
        {"launch_player": ["me"], "results": [1]},
        {"results": [1]},
    ],
)
def test_a_malformed_solo_report_counts_nothing(report):
    payoff = solo_payoff()
    assert payoff.update(report) is False
    assert payoff.results == ()


def test_a_solo_payoff_has_one_active_player():
    payoff = solo_payoff()
    with pytest.raises(ConfigError, match="one active player"):
        payoff.add_player(create_player("solo_active_player", {}, "c", payoff, "x", "you"))


def test_a_payoff_continues_from_its_state():
    payoff, again = (payoff_of("a", "b", "c") for _ in range(2))
    play(payoff, "a", "b", *["wins"] * 12)
    payoff.update({"sides": [["a", "b"], "c"], "results": ["draws"]})
    again.load_state_dict(json.loads(json.dumps(payoff.state_dict())))
    assert again.state_dict() == payoff.state_dict()
    for one in (payoff, again):
        play(one, "c", "b", "wins")
    assert again.state_dict() == payoff.state_dict()
    assert (again.win_rates("a", np.arange(3)) == payoff.win_rates("a", np.arange(3))).all()
    with pytest.raises(ConfigError, match="differ in 'c'"):
        payoff_of("a", "b").load_state_dict(payoff.state_dict())
