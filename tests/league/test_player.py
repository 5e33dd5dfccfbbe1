"""The players of a league: when they are frozen and reset, their opponents, and their jobs."""

import json
import math
from collections import Counter

import numpy as np
import pytest

from arena.common.errors import ConfigError
from arena.league.alphastar import LeagueExploiter, MainExploiter, MainPlayer, SelfPlayer
from arena.league.catalog import create_player, player_type
from arena.league.payoff import create_payoff
from arena.league.player import ActivePlayer, BattleActivePlayer, HistoricalPlayer, Player, SoloActivePlayer

DRAWS = 4_000


class League:
    """A payoff without decay in which win rates are made as they are wanted."""

    def __init__(self):
        self.payoff = create_payoff({"decay": 1, "min_win_rate_games": 1})

    def add(self, player_type, player_id, **settings):
        path = f"players/{player_id}/latest.safetensors"
        player = create_player(player_type, settings, "c", self.payoff, path, player_id, seed=7)
        self.payoff.add_player(player)
        return player

    def freeze(self, player, step):
        player.total_agent_step = step
        frozen = player.snapshot()
        self.payoff.add_player(frozen)
        return frozen

    def play(self, home, away, wins, losses=0):
        results = ["wins"] * wins + ["losses"] * losses
        assert self.payoff.update({"sides": [home.player_id, away.player_id], "results": results})


def opponents(player, draws=DRAWS):
    return Counter(player.get_opponent().player_id for _ in range(draws))


def near(count, probability, draws=DRAWS):
    """Return whether a frequency is within four standard deviations."""
    return abs(count - draws * probability) <= 4 * math.sqrt(draws * probability * (1 - probability)) + 1e-9


# Phases.


@pytest.mark.parametrize("kind", ["solo_active_player", "self_player", "main_player", "main_exploiter"])
def test_no_phase_ends_before_it_may(kind):
    league = League()
    main = league.add("main_player", "main")
    player = league.add(kind, "p", one_phase_step=100)
    old = league.freeze(main, 0)
    for other in (main, old):
        if player.battle:
            league.play(player, other, 10)
    player.total_agent_step = 99
    assert not player.is_trained_enough()


def test_a_player_without_opponents_is_enough_after_one_phase():
    player = create_player(
        "solo_active_player", {"one_phase_step": 100}, "c", create_payoff({"type": "solo"}), "x", "p"
    )
    for step, enough in ((99, False), (100, True), (101, False), (199, False), (200, True)):
        player.total_agent_step = step
        assert player.is_trained_enough() is enough


@pytest.mark.parametrize("kind", ["main_player", "main_exploiter", "league_exploiter", "self_player"])
def test_twice_a_phase_is_enough_for_anybody(kind):
    league = League()
    league.add("main_player", "main")
    player = league.add(kind, "p", one_phase_step=100)
    for step, enough in ((100, False), (199, False), (200, True), (201, False), (399, False), (400, True)):
        player.total_agent_step = step
        assert player.is_trained_enough() is enough


@pytest.mark.parametrize(
    ("wins", "losses", "enough"), [(69, 31, False), (70, 30, False), (71, 29, True), (100, 0, True), (0, 100, False)]
)
@pytest.mark.parametrize("kind", ["main_player", "main_exploiter", "league_exploiter"])
def test_between_the_lowest_win_rate_must_be_strictly_above_strong(kind, wins, losses, enough):
    league = League()
    main, other = league.add("main_player", "main"), league.add("main_player", "other")
    player = league.add(kind, "p", one_phase_step=100)
    mine = [main, other] if kind == "main_exploiter" else [league.freeze(main, 0), league.freeze(player, 0)]
    league.play(player, mine[0], 10)
    league.play(player, mine[1], wins, losses)
    player.total_agent_step = 150
    assert player.is_trained_enough() is enough
    player.total_agent_step = 249
    assert not (enough and player.is_trained_enough())  # a yes at 150 began a new phase


def test_an_empty_yardstick_is_no_yes():
    league = League()
    player = league.add("main_player", "p", one_phase_step=100)
    player.total_agent_step = 150
    assert not player.is_trained_enough()


def test_in_a_long_league_those_that_it_met_last_decide():
    """No player meets hundreds of snapshots in one phase."""
    league = League()
    main = league.add("main_player", "main", one_phase_step=100)
    history = {frozen.player_id: frozen for frozen in (league.freeze(main, step) for step in range(300))}
    main.total_agent_step = 150
    league.play(main, history["main_7"], 0, 10)  # long ago
    while len(met := league.payoff.met("main")) < 17:
        assert not main.is_strong_enough(), "so few are not enough to tell"
        league.play(main, league.payoff.roster.players[main.branch_pfsp()], 30)
    assert met[0] == "main_7" and main.is_strong_enough()
    again = League()
    for other in league.payoff.roster.players:
        again.payoff.roster.add(other)
    again.payoff.load_state_dict(json.loads(json.dumps(league.payoff.state_dict())))
    assert again.payoff.met("main") == met
    league.play(main, history["main_7"], 0, 1)
    assert not main.is_strong_enough(), "whom it meets and cannot beat is one to learn from"
    every = league.add("main_player", "every", strong_against=None)
    for step, other in enumerate(history.values()):
        assert step % 50 or not every.is_strong_enough()
        league.play(every, other, 10)
    assert every.is_strong_enough()


def test_yardsticks():
    league = League()
    main, other = league.add("main_player", "m"), league.add("main_player", "n")
    exploiter, everyone = league.add("main_exploiter", "e"), league.add("league_exploiter", "l")
    own = league.add("self_player", "s")
    for player in (main, exploiter, everyone, own):
        league.freeze(player, 0)
    names = {
        player.player_id: [league.payoff.roster.players[i].player_id for i in player.reference_opponents()]
        for player in (main, other, exploiter, everyone, own)
    }
    history = ["m_0", "e_0", "l_0", "s_0"]
    assert names == {"m": history, "n": history, "e": ["m", "n"], "l": history, "s": ["s_0"]}


# Snapshots and resets.


def test_a_snapshot_is_a_player_of_its_own():
    league = League()
    player = league.add("main_player", "main_c_0")
    player.total_agent_step = 1234
    frozen = player.snapshot()
    assert isinstance(frozen, HistoricalPlayer) and not frozen.active
    assert frozen.player_id == "main_c_0_1234"
    assert frozen.parent_id == "main_c_0"
    assert frozen.checkpoint_path == "players/main_c_0/1234.safetensors" != player.checkpoint_path
    assert (frozen.category, frozen.payoff, frozen.total_agent_step) == ("c", league.payoff, 1234)
    player.total_agent_step = 2000
    assert frozen.total_agent_step == 1234


@pytest.mark.parametrize(
    ("kind", "probability"), [("main_player", 0.0), ("main_exploiter", 1.0), ("league_exploiter", 0.25)]
)
def test_mutation_frequencies(kind, probability):
    player = League().add(kind, "p")
    assert near(sum(player.mutate() for _ in range(DRAWS)), probability)


@pytest.mark.parametrize("probability", [0.0, 1.0])
def test_a_league_exploiters_mutation_can_be_set(probability):
    player = League().add("league_exploiter", "p", mutate_prob=probability)
    assert {player.mutate() for _ in range(100)} == {bool(probability)}


# Opponents.


def main_league():
    league = League()
    main = league.add("main_player", "m")
    exploiter = league.add("main_exploiter", "e")
    return league, main, exploiter


def test_the_branches_of_a_main_player_come_as_often_as_they_should():
    league, main, exploiter = main_league()
    past, exploited = league.freeze(main, 0), league.freeze(exploiter, 0)
    league.play(main, past, 10)  # weight 0 in pfsp
    league.play(main, exploited, 5, 15)  # 0.25 < 0.3: verification goes here, and so does all of pfsp
    found = opponents(main)
    assert near(found["m"], 0.35)
    assert near(found["e_0"], 0.65)
    assert found["m_0"] == 0


def test_pfsp_of_a_main_player_is_squared_over_all_history():
    league, main, exploiter = main_league()
    main.cfg = main.cfg.model_copy(update={"branch_probs": {"pfsp": 1.0}})
    for step, wins in ((0, 9), (1, 5)):
        league.play(main, league.freeze(main, step), wins, 10 - wins)
    league.play(main, league.freeze(exploiter, 0), 2, 8)
    found = opponents(main)
    total = 0.01 + 0.25 + 0.64
    assert near(found["m_0"], 0.01 / total) and near(found["m_1"], 0.25 / total) and near(found["e_0"], 0.64 / total)


def test_pfsp_goes_on_where_everybody_is_always_beaten():
    league, main, _ = main_league()
    for step in (0, 1):
        league.play(main, league.freeze(main, step), 10)
    found = Counter(main.branch_pfsp() for _ in range(DRAWS))
    assert len(found) == 2 and all(near(count, 0.5) for count in found.values())


@pytest.mark.parametrize(("wins", "losses", "itself"), [(31, 69, True), (30, 70, False), (29, 71, False)])
def test_self_play_needs_a_win_rate_above_one_minus_strong(wins, losses, itself):
    league, main, _ = main_league()
    other = league.add("main_player", "n")
    main.cfg = main.cfg.model_copy(update={"branch_probs": {"sp": 1.0}})
    easy, even = league.freeze(other, 0), league.freeze(other, 1)
    league.play(main, other, wins, losses)
    league.play(main, easy, 9, 1)  # variance 0.09
    league.play(main, even, 5, 5)  # variance 0.25
    found = opponents(main)
    assert near(found["m"], 0.5)
    if itself:
        assert near(found["n"], 0.5)
    else:
        assert near(found["n_0"], 0.5 * 0.09 / 0.34) and near(found["n_1"], 0.5 * 0.25 / 0.34)


@pytest.mark.parametrize(
    ("against_exploiter", "against_main", "expected"),
    [
        (29, 0, "e_0"),
        (30, 69, "m_0"),
        (31, 0, "m_0"),
        (30, 70, "m"),
        (100, 71, "m"),
        (None, 69, "m_0"),
        (None, None, "m"),
    ],
)
def test_verification(against_exploiter, against_main, expected):
    league, main, exploiter = main_league()
    for player, wins in ((exploiter, against_exploiter), (main, against_main)):
        if wins is not None:
            league.play(main, league.freeze(player, 0), wins, 100 - wins)
    assert {league.payoff.roster.players[main.branch_verification()].player_id for _ in range(50)} == {expected}


def test_verification_is_squared():
    league, main, exploiter = main_league()
    for step, wins in ((0, 8), (1, 2)):
        league.play(main, league.freeze(exploiter, step), wins, 10 - wins)
    found = Counter(league.payoff.roster.players[main.branch_verification()].player_id for _ in range(DRAWS))
    assert near(found["e_0"], 0.04 / 0.68) and near(found["e_1"], 0.64 / 0.68)


@pytest.mark.parametrize(("wins", "itself"), [(19, False), (20, True), (21, True)])
def test_a_main_exploiter_meets_a_main_player_it_can_beat_now_and_then(wins, itself):
    league, main, exploiter = main_league()
    easy, even = league.freeze(main, 0), league.freeze(main, 1)
    league.play(exploiter, main, wins, 100 - wins)
    league.play(exploiter, easy, 10)  # variance 0: never
    league.play(exploiter, even, 5, 5)
    assert set(opponents(exploiter, 200)) == ({"m"} if itself else {"m_1"})


def test_a_main_exploiters_history_is_drawn_by_variance():
    league, main, exploiter = main_league()
    league.play(exploiter, main, 0, 10)
    for step, wins in ((0, 1), (1, 5)):
        league.play(exploiter, league.freeze(main, step), wins, 10 - wins)
    found = opponents(exploiter)
    assert near(found["m_0"], 0.09 / 0.34) and near(found["m_1"], 0.25 / 0.34)


@pytest.mark.parametrize("min_valid_win_rate", [0.2, 0.1])
def test_ten_losses_in_a_row_turn_a_main_exploiter_to_history(min_valid_win_rate):
    league = League()
    league.payoff = create_payoff({})  # the published decay and number of games
    main = league.add("main_player", "m")
    exploiter = league.add("main_exploiter", "e", min_valid_win_rate=min_valid_win_rate)
    league.freeze(main, 0)
    for game in range(1, 11):
        league.play(exploiter, main, 0, 1)
        assert set(opponents(exploiter, 20)) == ({"m_0"} if game >= 9 else {"m"})


@pytest.mark.parametrize("weighting", ["squared", "linear_capped"])
def test_a_league_exploiter_meets_all_history(weighting):
    league, main, exploiter = main_league()
    player = league.add("league_exploiter", "l", weighting=weighting)
    for who, wins in ((main, 8), (exploiter, 2), (player, 5)):
        league.play(player, league.freeze(who, 0), wins, 10 - wins)
    weights = {"squared": (0.04, 0.64, 0.25), "linear_capped": (0.2, 0.5, 0.5)}[weighting]
    found = opponents(player)
    for name, weight in zip(("m_0", "e_0", "l_0"), weights, strict=True):
        assert near(found[name], weight / sum(weights))


def test_a_self_player_meets_itself_and_its_own_history():
    league = League()
    player, stranger = league.add("self_player", "s"), league.add("self_player", "t")
    for step in (0, 1):
        league.freeze(player, step)
    league.freeze(stranger, 0)
    found = opponents(player)
    assert near(found["s"], 0.5) and near(found["s_0"], 0.25) and near(found["s_1"], 0.25)
    assert sum(found.values()) == found["s"] + found["s_0"] + found["s_1"]


def test_plain_branches():
    league = League()
    players = {
        name: league.add("battle_active_player", name, branch_probs={name: 1.0})
        for name in ("round_robin", "uniform", "nearest", "mixture")
    }
    best = league.freeze(players["uniform"], 5)
    league.freeze(players["uniform"], 6)
    for name, rival in players.items():
        if name != "nearest":
            league.play(best, rival, 12)
    league.play(best, league.payoff.roster.players[5], 12)
    assert [players["round_robin"].get_opponent().player_id for _ in range(4)] == [
        "uniform", "nearest", "mixture", "uniform",
    ]  # fmt: skip
    found = opponents(players["uniform"])
    assert set(found) == {"round_robin", "nearest", "mixture", "uniform_5", "uniform_6"}
    assert all(near(count, 0.2) for count in found.values())
    ratings = {p.player_id: league.payoff.ratings[p.player_id].mu for p in league.payoff.roster.players}
    gap = min(abs(mu - ratings["nearest"]) for name, mu in ratings.items() if name != "nearest")
    assert all(abs(ratings[n] - ratings["nearest"]) == gap for n in opponents(players["nearest"], 50))
    assert set(opponents(players["mixture"], 50)) == {"uniform_5"}


@pytest.mark.parametrize(
    ("kind", "branch"),
    [("main_player", "pfsp"), ("league_exploiter", "pfsp"), ("main_exploiter", "main_players"),
     ("self_player", "history"), ("battle_active_player", "mixture"), ("battle_active_player", "uniform")],
)  # fmt: skip
def test_no_opponent_is_an_error_that_names_player_and_branch(kind, branch):
    player = League().add(kind, "lonely", branch_probs={branch: 1.0})
    with pytest.raises(ConfigError, match=f"lonely finds no opponent by its branch '{branch}': expected at least one"):
        player.get_opponent()


# Jobs.


def test_a_job_merges_all_settings_and_the_configured_job_wins():
    league = League()
    player = league.add(
        "self_player",
        "s",
        branch_probs={"self": 1.0},
        forward={"exploration": {"start": 0.9, "end": 0.1, "decay_len": 100}},
        data={"use": "replay", "size": {"least": 1, "most": 9}},
        env={"num_envs": 4},
        job={"episodes": 20, "data": {"size": {"most": 5}}},
    )
    player.total_agent_step = 100
    job = player.get_job()
    assert job == {
        "forward": {"eps": pytest.approx(0.1 + 0.8 / math.e)},
        "data": {"use": "replay", "size": {"least": 1, "most": 5}},
        "env": {"num_envs": 4},
        "episodes": 20,
        "opponent": "s",
    }
    assert player.cfg.data["size"]["most"] == 9
    assert player.get_job(2)["opponent"] == ["s", "s"]


@pytest.mark.parametrize(
    ("shape", "values"),
    [("exponential", [0.9, 0.1 + 0.8 * math.exp(-0.5), 0.1 + 0.8 * math.exp(-2)]), ("linear", [0.9, 0.5, 0.1])],
)
def test_epsilon_falls_from_start_to_end(shape, values):
    exploration = {"start": 0.9, "end": 0.1, "decay_len": 100, "shape": shape}
    payoff = create_payoff({"type": "solo"})
    player = create_player("solo_active_player", {"forward": {"exploration": exploration}}, "c", payoff, "x", "p")
    for step, value in zip((0, 50, 200), values, strict=True):
        player.total_agent_step = step
        assert player.get_job()["forward"]["eps"] == pytest.approx(value)
    assert "opponent" not in player.get_job()


# Types, settings, state.


def test_the_published_hierarchy():
    assert issubclass(HistoricalPlayer, Player) and issubclass(ActivePlayer, Player)
    assert issubclass(SoloActivePlayer, ActivePlayer) and issubclass(BattleActivePlayer, ActivePlayer)
    for kind in (MainPlayer, MainExploiter, LeagueExploiter, SelfPlayer):
        assert issubclass(kind, BattleActivePlayer)
    with pytest.raises(TypeError, match="historical or active"):
        Player("c", create_payoff({}), "x", "p")


def test_a_user_adds_a_player_type_from_a_file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from arena.league.alphastar import MainPlayer\n"
        "class Timid(MainPlayer):\n"
        "    def branch_weakest(self):\n"
        "        history = self.payoff.roster.historical()\n"
        "        return int(history[self.payoff.win_rates(self.player_id, history).argmax()])\n"
    )
    league = League()
    player = league.add(f"{path}:Timid", "t", branch_probs={"weakest": 1.0})
    league.play(player, league.freeze(player, 0), 1, 9)
    league.play(player, league.freeze(player, 1), 9, 1)
    assert player.get_job()["opponent"] == "t_1"
    exploiter = league.add("main_exploiter", "e")
    assert exploiter.get_opponent() is player  # a main player it is, for others too
    with pytest.raises(ConfigError, match="has no 'Timit' .did you mean 'Timid'"):
        player_type(f"{path}:Timit")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("main_playr", "unknown player type 'main_playr' .did you mean 'main_player'.*; expected one of battle_active"),
        ("arena.league.battle_record:BattleRecord", "expected a class that extends ActivePlayer"),
        ("nowhere.py:Me", "there is no file"),
    ],
)
def test_an_unknown_type_is_refused(name, text):
    with pytest.raises(ConfigError, match=text):
        player_type(name)


@pytest.mark.parametrize(
    ("kind", "settings", "text"),
    [
        ("main_player", {"branch_probs": {"pfsp": 0.5, "sp": 0.4}}, "p.branch_probs: .*sum to 1, found a sum of 0.9"),
        ("main_player", {"branch_probs": {"pfsp": 0.6, "sp": 0.6}}, "found a sum of 1.2"),
        ("main_player", {"branch_probs": {"pfsp": 1.5, "sp": -0.5}}, "at most 1"),
        ("main_player", {"branch_probs": {}}, "found a sum of 0"),
        ("main_player", {"branch_probs": {"pfps": 1.0}}, "did you mean 'pfsp'"),
        ("main_player", {"strong_winrate": 0.5}, "unknown key; did you mean 'strong_win_rate'"),
        ("main_player", {"strong_win_rate": 1.0}, "strong_win_rate: expected a number below 1"),
        ("main_player", {"one_phase_step": 0}, "one_phase_step: expected a number of at least 1"),
        ("league_exploiter", {"weighting": "square"}, "did you mean 'squared'"),
        ("league_exploiter", {"mutate_prob": 1.1}, "mutate_prob: expected a number of at most 1"),
    ],
)
def test_settings_that_do_not_fit_are_refused(kind, settings, text):
    with pytest.raises(ConfigError, match=text):
        League().add(kind, "p", **settings)


def test_steps_may_be_written_as_people_write_them():
    assert League().add("main_player", "p", one_phase_step=2e9).cfg.one_phase_step == 2_000_000_000


@pytest.mark.parametrize("kind", ["main_player", "main_exploiter", "league_exploiter", "self_player"])
def test_a_player_continues_from_its_state(kind):
    def made():
        league = League()
        main, player = league.add("main_player", "m"), league.add(kind, "p", one_phase_step=100)
        for step in range(5):
            league.freeze(main, step)
            league.freeze(player, step)
        return player

    player, again = made(), made()
    player.total_agent_step = 250
    assert player.is_trained_enough()
    opponents(player, 10)
    again.load_state_dict(json.loads(json.dumps(player.state_dict())))
    assert again.state_dict() == player.state_dict()
    assert not again.is_trained_enough()
    assert [again.get_job() for _ in range(50)] == [player.get_job() for _ in range(50)]
    assert [again.mutate() for _ in range(50)] == [player.mutate() for _ in range(50)]


def test_players_draw_from_streams_of_their_own():
    one, two = League(), League()
    first = one.add("league_exploiter", "a")
    second = two.add("league_exploiter", "b")
    assert [first.mutate() for _ in range(64)] != [second.mutate() for _ in range(64)]
    assert np.mean([first.chance(0.5) for _ in range(1_000)]) == pytest.approx(0.5, abs=0.07)
