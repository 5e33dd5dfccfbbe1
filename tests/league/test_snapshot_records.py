"""Games belong to the weights that played them: what a snapshot takes over, and what a league of before still has."""

import json
from collections import Counter

import numpy as np
import pytest

from arena.league.battle_record import BattleRecord
from arena.league.kinds import create_league

MAIN, EXPLOITER = "main_player_default_0", "main_exploiter_default_0"
PHASE = 100


class Scripted:
    """A league in which a game between two players is won by the stronger one, as often as a test decides."""

    def __init__(self, state=None, payoff=None, **players):
        phases = {
            name: {"one_phase_step": PHASE, **players.get(name, {})} for name in ("main_player", "main_exploiter")
        }
        cfg = {
            "use": "alphastar",
            "categories": {"default": {"main_player": 1, "main_exploiter": 1}},
            "players": phases,
            "payoff": {"decay": 1.0, **(payoff or {})},
        }
        self.league = create_league(cfg, *[lambda *_: None] * 4)
        if state is not None:
            self.league.load_state_dict(json.loads(json.dumps(state)))
        self.payoff, self._settings = self.league.payoff, payoff

    def play(self, home, away, wins, losses=0):
        returns = [[1.0, -1.0]] * wins + [[-1.0, 1.0]] * losses
        results = ["wins"] * wins + ["losses"] * losses
        assert self.payoff.update({"sides": [home, away], "results": results, "returns": returns})

    def freeze(self, player):
        """End a phase of a player; return its snapshot."""
        steps = self.league.player(player).total_agent_step + 2 * PHASE
        self.league.update_active_player({"player_id": player, "total_agent_step": steps})
        return next(frozen.player_id for frozen in self.league.advance().snapshots if frozen.parent_id == player)

    def resumed(self):
        return Scripted(self.league.state_dict(), self._settings)


def test_what_an_exploiter_has_won_belongs_to_its_snapshot_and_the_main_player_meets_that_next():
    scripted = Scripted()
    scripted.play(EXPLOITER, MAIN, wins=45, losses=5)
    scripted.play(EXPLOITER, f"{MAIN}_0", wins=20)
    scripted.play(MAIN, f"{MAIN}_0", wins=30)
    snapshot = scripted.freeze(EXPLOITER)
    for league in (scripted, scripted.resumed()):
        payoff, main = league.payoff, league.league.player(MAIN)
        assert payoff.record(snapshot, MAIN) == BattleRecord(45, 0, 5, 50)
        assert payoff.margin(snapshot, MAIN) == pytest.approx(0.8)
        assert payoff.win_rate(snapshot, f"{MAIN}_0") == 1.0
        assert payoff.record(EXPLOITER, MAIN).games == 0, "its new weights have played no game"
        roster = payoff.roster
        for branch in (main.branch_pfsp, main.branch_verification):
            met = Counter(roster.players[branch()].player_id for _ in range(200))
            assert met.most_common(1)[0][0] == snapshot and met[snapshot] > 190
        assert not main.is_strong_enough(), "a phase does not end early while a snapshot beats the player"


def test_without_the_record_the_strongest_snapshot_is_met_as_any_other():
    scripted = Scripted(payoff={"snapshot_keep": 0})
    scripted.play(EXPLOITER, MAIN, wins=45, losses=5)
    snapshot = scripted.freeze(EXPLOITER)
    assert scripted.payoff.record(snapshot, MAIN).games == 0 and scripted.payoff.win_rate(MAIN, snapshot) == 0.5
    assert scripted.payoff.totals.of(*map(scripted.payoff.roster.index, (snapshot, MAIN)))[0].games == 50


def test_a_snapshot_of_a_player_that_learns_on_has_half_of_the_records_of_its_last_phase():
    scripted = Scripted()
    scripted.play(MAIN, f"{MAIN}_0", wins=40)
    scripted.play(MAIN, EXPLOITER, wins=10, losses=30)
    first = scripted.freeze(MAIN)
    assert scripted.payoff.record(first, f"{MAIN}_0") == BattleRecord(20, 0, 0, 20)
    assert scripted.payoff.record(first, EXPLOITER) == BattleRecord(5, 0, 15, 20)
    assert scripted.payoff.record(MAIN, EXPLOITER).games == 40, "the player keeps its own"
    scripted = scripted.resumed()
    scripted.play(MAIN, first, wins=12)
    second = scripted.freeze(MAIN)
    assert scripted.payoff.met(second) == [first], "others were met by the weights of the phase before"
    assert scripted.payoff.record(second, first).games == 6


def test_an_opponent_that_is_reset_takes_its_records_from_snapshots_too():
    scripted = Scripted()
    scripted.play(MAIN, EXPLOITER, wins=40)
    first = scripted.freeze(MAIN)
    scripted.play(EXPLOITER, first, wins=0, losses=20)
    snapshot = scripted.freeze(EXPLOITER)
    assert scripted.payoff.record(first, EXPLOITER).games == scripted.payoff.record(MAIN, EXPLOITER).games == 0
    assert scripted.payoff.record(first, snapshot) == BattleRecord(40, 0, 0, 40)


def test_each_game_is_in_one_pair_of_the_totals_and_moves_with_the_weights():
    scripted = Scripted()
    rng = np.random.default_rng(5)
    played = 0
    for _ in range(12):
        for home, away in ((MAIN, EXPLOITER), (EXPLOITER, f"{MAIN}_0"), (f"{MAIN}_0", MAIN)):
            wins, losses = map(int, rng.integers(0, 9, 2))
            scripted.play(home, away, wins, losses)
            played += wins + losses
        scripted.freeze((MAIN, EXPLOITER)[int(rng.integers(2))])
        scripted = scripted.resumed()
        totals = scripted.payoff.totals
        assert sum(totals.of(*pair)[0].games for pair in totals.pairs()) == scripted.payoff.games == played
    for low, high in totals.pairs():
        (record, margin), (reversed_record, reversed_margin) = totals.of(low, high), totals.of(high, low)
        assert record == reversed_record.reversed() and margin == -reversed_margin
        assert margin == pytest.approx((record.wins - record.losses) / record.games)


def test_a_resume_at_any_moment_changes_nothing():
    """The order in which players have met decides who is strong enough, and what a rollback takes over."""
    whole, resumed = Scripted(), Scripted()
    rng = np.random.default_rng(6)
    for _ in range(150):
        names = [player.player_id for player in whole.payoff.roster.players]
        home, away = (str(name) for name in rng.choice(names, 2, replace=False))
        wins, losses, event = int(rng.integers(9)), int(rng.integers(9)), rng.random()
        for league in (whole, resumed):
            league.play(home, away, wins, losses)
            if event < 0.2:
                league.freeze((MAIN, EXPLOITER)[event < 0.1])
            elif event > 0.97 and len(league.payoff.roster.historical(parent=MAIN)) > 1:
                league.payoff.roll_back(MAIN, names[int(league.payoff.roster.historical(parent=MAIN)[-1])])
        resumed = resumed.resumed()
        assert resumed.league.state_dict() == whole.league.state_dict()
        assert [resumed.payoff.met(name) for name in names] == [whole.payoff.met(name) for name in names]


def test_games_of_weights_that_were_rolled_back_belong_to_no_player():
    scripted = Scripted()
    scripted.play(MAIN, f"{MAIN}_0", wins=30)
    first = scripted.freeze(MAIN)
    scripted.play(MAIN, first, wins=0, losses=50)
    scripted.payoff.roll_back(MAIN, first)
    index = scripted.payoff.roster.index
    assert scripted.payoff.totals.of(index(MAIN), index(first))[0].games == 0
    assert scripted.payoff.record(MAIN, f"{MAIN}_0") == BattleRecord(15, 0, 0, 15), "of the snapshot"
    scripted.play(MAIN, first, wins=4)
    assert scripted.payoff.met(scripted.freeze(MAIN)) == [first]


def test_the_record_of_a_team_goes_with_its_player():
    scripted = Scripted(payoff={"snapshot_keep": 1})
    founder = f"{MAIN}_0"
    assert scripted.payoff.update({"sides": [[MAIN, founder], EXPLOITER], "results": ["wins"] * 6 + ["losses"] * 2})
    assert scripted.payoff.update({"sides": [[EXPLOITER, founder], [MAIN, founder]], "results": ["losses"] * 3})
    snapshot = scripted.resumed().freeze(MAIN)
    scripted = scripted.resumed()
    assert scripted.freeze(MAIN) == snapshot
    assert scripted.payoff.record((snapshot, founder), EXPLOITER) == BattleRecord(6, 0, 2, 8)
    assert scripted.payoff.record((founder, snapshot), (EXPLOITER, founder)) == BattleRecord(3, 0, 0, 3)
    again = scripted.freeze(MAIN)
    assert scripted.payoff.record((again, founder), EXPLOITER).games == 0, "the team has not played since"


def test_psro_measures_its_snapshots_by_their_own_games():
    league = create_league(
        {"use": "psro", "players": {"best_responder": {"one_phase_step": PHASE}}}, *[lambda *_: None] * 4
    )
    (player,) = league.active_players
    (founder,) = league.historical_players
    assert league.payoff.update({"sides": [player.player_id, founder.player_id], "results": ["wins"] * 20})
    league.update_active_player({"player_id": player.player_id, "total_agent_step": PHASE})
    (frozen,) = league.advance().snapshots
    assert league.payoff.record(frozen.player_id, founder.player_id).games == 0


def test_a_league_of_before_goes_on_and_its_records_are_the_games_that_are_known():
    scripted = Scripted()
    scripted.play(EXPLOITER, MAIN, wins=20)
    scripted.play(EXPLOITER, f"{MAIN}_0", wins=9)
    state = scripted.league.state_dict()
    for key in ("totals", "team_phases"):
        del state["payoff"][key]
    for record in state["payoff"]["records"]:
        record.pop()
    league = Scripted(state)
    league.play(EXPLOITER, MAIN, wins=1)
    assert league.payoff.record(EXPLOITER, MAIN).effective_games == 21, "no surer than its games"
    snapshot = league.freeze(EXPLOITER)
    assert league.payoff.record(snapshot, MAIN).wins == 21 and league.payoff.record(snapshot, f"{MAIN}_0").wins == 9
    totals, index = league.payoff.totals, league.payoff.roster.index
    assert totals.of(index(snapshot), index(MAIN)) == (BattleRecord(21, 0, 0, 21), 1.0)
