"""A main player that has got worse: without a rollback it trains for the rest of its budget from where it fell to."""

import json

import numpy as np
import pytest

from arena.league.kinds import create_league
from arena.league.matchmaking import loses_to_all

PHASE = 100
MAIN = "main_player_default_0"


class Fixed:
    """A league whose launched jobs are kept, and whose results a test decides."""

    def __init__(self, **main):
        self.log, self.jobs = [], []
        cfg = {
            "use": "alphastar",
            "categories": {"default": {"main_player": 1, "main_exploiter": 1}},
            "players": {
                "main_player": {"one_phase_step": PHASE, "branch_probs": {"pfsp": 1.0}, **main},
                "main_exploiter": {"one_phase_step": 10**9},
            },
        }
        self.league = create_league(
            cfg,
            lambda source, target: self.log.append(("save", target)),
            lambda player, path: self.log.append(("load", player, path)),
            self.jobs.append,
            lambda player, snapshot: self.log.append(("roll back", player, snapshot.player_id)),
        )

    def play(self, result, games=48):
        """Let the main player finish games, all with the same result, until so many against its own snapshots ended."""
        own = 0
        while own < games:
            self.league.advance(freeze=False)
            job = next(job for job in self.league.jobs_in_flight if job["launch_player"] == MAIN)
            own += job["opponent"].startswith(f"{MAIN}_")
            self.league.finish_job({"job_id": job["job_id"], "results": [result]})

    def end_phase(self, steps):
        """End the main player's phase at a step; return what the league has done."""
        self.league.update_active_player({"player_id": MAIN, "total_agent_step": steps})
        return self.league.advance()

    def phases(self, *results):
        """Play a phase with each result; return what was done at the end of the last one."""
        for number, result in enumerate(results, 1):
            self.play(result)
            done = self.end_phase(2 * PHASE * number)
        return done


def test_a_player_that_loses_to_its_own_snapshots_is_rolled_back_and_not_frozen():
    fixed = Fixed()
    assert fixed.phases("wins", "wins").rolled_back == ()
    snapshots = [player.player_id for player in fixed.league.historical_players]
    assert snapshots == [f"{MAIN}_0", f"{MAIN}_200", f"{MAIN}_400"]
    fixed.play("losses")
    done = fixed.end_phase(600)
    assert done.rolled_back == (MAIN,) and not done.snapshots and not done.mutated
    # The best rated one: snapshots have the rating that the player had when it was frozen.
    payoff = fixed.league.payoff
    assert fixed.log[-1] == ("roll back", MAIN, max(snapshots, key=lambda name: payoff.ratings[name].mu))
    assert [player.player_id for player in fixed.league.historical_players] == snapshots


def test_a_rolled_back_player_has_the_record_and_the_rating_of_its_snapshot_and_old_results_do_not_count():
    fixed = Fixed()
    fixed.phases("wins", "wins")
    payoff = fixed.league.payoff
    fixed.league.advance()
    late = next(job for job in fixed.league.jobs_in_flight if job["launch_player"] == MAIN)
    for _ in range(60):
        fixed.league.report({"job_id": late["job_id"], "results": ["losses"]})
    assert payoff.win_rate(MAIN, late["opponent"]) < 0.5
    fixed.end_phase(600)
    _, _, snapshot = fixed.log[-1]
    assert payoff.ratings[MAIN] == payoff.ratings[snapshot]
    for other in {player.player_id for player in payoff.roster.players} - {MAIN, snapshot}:
        assert payoff.record(MAIN, other) == payoff.record(snapshot, other)
    assert payoff.win_rate(MAIN, snapshot) == 0.5
    assert not fixed.league.finish_job({"job_id": late["job_id"], "results": ["losses"] * 60})


def test_it_is_rolled_back_once_also_over_a_resume():
    fixed = Fixed()
    fixed.phases("wins", "wins")
    fixed.play("losses")
    saved = json.loads(json.dumps(fixed.league.state_dict()))
    resumed = Fixed()
    resumed.league.load_state_dict(saved)
    assert resumed.end_phase(600).rolled_back == (MAIN,)
    saved = json.loads(json.dumps(resumed.league.state_dict()))
    again = Fixed()
    again.league.load_state_dict(saved)
    done = again.end_phase(800)
    assert done.rolled_back == () and len(done.snapshots) == 1, "its bad games were those of other weights"


@pytest.mark.parametrize(
    ("main", "result", "games"),
    [
        ({}, "draws", 48),
        ({}, "losses", 47),
        ({"rollback": None}, "losses", 96),
        ({"rollback": {"games": 100}}, "losses", 96),
        ({"rollback": {"below": 0.0}}, "losses", 48),
    ],
    ids=["as good", "too few games", "switched off", "more games", "no share is below 0"],
)
def test_a_player_that_has_not_got_worse_is_frozen(main, result, games):
    fixed = Fixed(**main)
    fixed.phases("wins", "wins")
    fixed.play(result, 200)  # a phase of its own, so that what counts begins below
    if fixed.league.player(MAIN).own_games is not None:
        fixed.league.player(MAIN).own_games.clear()
    fixed.play(result, games)
    done = fixed.end_phase(600)
    assert done.rolled_back == () and [player.player_id for player in done.snapshots] == [f"{MAIN}_600"]


def test_only_its_newest_snapshots_count():
    fixed = Fixed(rollback={"snapshots": 1, "games": 8})
    fixed.phases("wins", "wins")
    job = {"sides": [[MAIN], [f"{MAIN}_200"]], "results": ["losses"] * 20}
    own_games = fixed.league.player(MAIN).own_games
    own_games.clear()
    own_games.count(job)
    assert own_games.share is None
    own_games.count(job | {"sides": [[MAIN], [f"{MAIN}_400"]]})
    assert own_games.share == 0.0 and own_games.best_snapshot().player_id == f"{MAIN}_400"


def test_each_snapshot_counts_as_much_however_often_it_is_met():
    fixed = Fixed()
    fixed.phases("wins", "wins")
    own_games = fixed.league.player(MAIN).own_games
    own_games.clear()
    for name, result, games in ((f"{MAIN}_0", "wins", 4), (f"{MAIN}_200", "losses", 40), (f"{MAIN}_400", "draws", 4)):
        own_games.count({"sides": [[MAIN], [name]], "results": [result] * games})
    assert own_games.share == 0.5 and own_games.best_snapshot() is None


def test_a_rollback_that_fails_changes_nothing_and_is_tried_again():
    fixed = Fixed()
    fixed.phases("wins", "wins")
    fixed.play("losses")

    def fail(player, snapshot):
        raise OSError("the disk is full")

    works, fixed.league.roll_back_fn = fixed.league.roll_back_fn, fail
    with pytest.raises(OSError, match="disk is full"):
        fixed.end_phase(600)
    fixed.league.roll_back_fn = works
    assert fixed.league.advance().rolled_back == (MAIN,)


def test_a_player_that_loses_to_all_meets_those_that_it_may_learn_from():
    assert loses_to_all(np.array([0.0, 0.2])) and not loses_to_all(np.array([0.0, 0.4]))
    assert not loses_to_all(np.array([]))
    fixed = Fixed()
    fixed.phases("wins", "wins")
    payoff, names = fixed.league.payoff, [player.player_id for player in fixed.league.historical_players]
    for name, won in zip(names, (0, 0, 5), strict=True):
        payoff.update({"sides": [[MAIN], [name]], "results": ["losses"] * 3_000 + ["wins"] * won + ["losses"] * 15})
    player = fixed.league.player(MAIN)
    met = [player.pfsp(payoff.roster.historical(), "squared") for _ in range(200)]
    assert set(met) == {payoff.roster.index(names[-1])}, "every other one always wins: there is nothing to learn"
