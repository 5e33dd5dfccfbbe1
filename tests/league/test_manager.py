"""The league's manager: jobs, snapshots, resets, what it refuses, what it resumes; and a simulated league."""

import json
import math
import subprocess
import sys

import numpy as np
import pytest
from scipy.stats import kendalltau

from arena.common.errors import ConfigError
from arena.league.alphastar import MainExploiter
from arena.league.kinds import create_league
from arena.league.manager import AdvanceResult, BaseLeagueManager

PHASE = 100


class World:
    """Targets of a league's callbacks: weights files and jobs, kept as a log."""

    def __init__(self, launch=None, **cfg):
        self.log = []
        self.jobs = []
        self.launch = launch
        types = ("main_player", "main_exploiter", "league_exploiter")
        if cfg.get("use", "alphastar") == "alphastar":
            cfg = {"players": {name: {"one_phase_step": PHASE} for name in types}, **cfg}
        self.league = create_league(cfg, self.save, self.load, self.launched)

    def save(self, source, target):
        self.log.append(("save", source, target))

    def load(self, player_id, path):
        self.log.append(("load", player_id, path))

    def launched(self, job):
        self.jobs.append(job)
        if self.launch:
            self.launch(self, job)

    def finish(self, job, *results):
        return self.league.finish_job({"job_id": job["job_id"], "results": list(results)})

    def train(self, player_id, step):
        return self.league.update_active_player({"player_id": player_id, "total_agent_step": step})


def ids(players):
    return [player.player_id for player in players]


def weights(player_id, name):
    return f"players/{player_id}/{name}.safetensors"


# Founding.


def test_a_league_is_categories_times_types_and_founding_calls_nobody():
    categories = {name: {"main_player": 1, "main_exploiter": 1, "league_exploiter": 2} for name in ("zerg", "terran")}
    world = World(categories=categories)
    assert ids(world.league.active_players) == [
        f"{name}_{category}_{i}"
        for category in ("zerg", "terran")
        for name, i in (("main_player", 0), ("main_exploiter", 0), ("league_exploiter", 0), ("league_exploiter", 1))
    ]
    assert ids(world.league.historical_players) == ["main_player_zerg_0_0", "main_player_terran_0_0"]
    assert world.log == world.jobs == []


def test_the_first_pass_keeps_everybodys_first_weights_before_any_job():
    world = World()
    world.league.advance()
    names = ids(world.league.active_players)
    assert world.log == [("save", weights(name, "latest"), weights(name, "0")) for name in names]
    assert world.league.historical_players[0].checkpoint_path == weights("main_player_default_0", "0")
    world.league.advance()
    assert len(world.log) == len(names)


def test_pretrained_players_have_parents_that_exist_and_everybody_starts_from_them(tmp_path):
    path = tmp_path / "human.safetensors"
    path.write_bytes(b"weights")
    players = {"main_player": 2, "main_exploiter": 1}
    settings = {"main_exploiter": {"one_phase_step": PHASE}}
    world = World(categories={"c": players, "d": players}, pretrained={"c": str(path)}, players=settings)
    active, history = world.league.active_players, world.league.historical_players
    assert ids(history) == [
        "main_player_c_0_pretrained", "main_player_c_1_pretrained", "main_player_d_0_0", "main_player_d_1_0",
    ]  # fmt: skip
    assert {player.parent_id for player in history} <= set(ids(active))
    world.league.advance()
    for player in active:
        start = ("load", player.player_id, str(path))
        assert (start in world.log) is (player.category == "c")
    # Reset goes to the pretrained weights too.
    world.log.clear()
    world.train("main_exploiter_c_0", 2 * PHASE)
    world.league.advance()
    assert world.log[-1] == ("load", "main_exploiter_c_0", str(path))


@pytest.mark.parametrize(
    ("use", "players", "history"),
    [
        ("alphastar", ["main_player", "main_exploiter", "league_exploiter", "league_exploiter"], ["main_player"]),
        ("self_play", ["self_player"], ["self_player"]),
        ("round_robin", ["battle_active_player"] * 2, ["battle_active_player"] * 2),
        ("psro", ["best_responder"], ["best_responder"]),
        ("solo", ["solo_active_player"], []),
    ],
)
def test_every_kind_starts_without_settings(use, players, history):
    world = World(use=use)
    assert [player.player_id.rsplit("_", 2)[0] for player in world.league.active_players] == players
    assert [player.parent_id.rsplit("_", 2)[0] for player in world.league.historical_players] == history
    launched = world.league.advance().launched
    assert [job["launch_player"] for job in launched] == ids(world.league.active_players)
    for job in launched:
        assert world.finish(job, 1.0 if use == "solo" else "draws")
        assert len(job["sides"]) == (1 if use == "solo" else 2)
        assert set(job["checkpoint_paths"]) == {player_id for side in job["sides"] for player_id in side}
        assert json.loads(json.dumps(job)) == job


# Jobs.


@pytest.mark.parametrize("room", [1, 3])
def test_jobs_in_flight_fill_the_room_and_no_more(room):
    world = World(max_active_player_job=room)
    assert len(world.league.advance().launched) == 4 * room
    assert world.league.advance() == AdvanceResult()
    assert world.finish(world.jobs[1], "wins")
    (job,) = world.league.advance().launched
    assert job["launch_player"] == world.jobs[1]["launch_player"]
    assert len({job["job_id"] for job in world.jobs}) == len(world.jobs)
    assert len(world.league.jobs_in_flight) == 4 * room


def test_a_launch_that_raises_gives_its_slot_back_and_the_others_go_on(caplog):
    def refuse(world, job):
        if len(world.jobs) == 2:
            raise OSError("no rank left")

    world = World(refuse)
    done = world.league.advance()
    assert len(done.launched) == 3
    ((job, error),) = done.failed
    assert str(error) == "no rank left" and job is world.jobs[1]
    assert "could not be launched" in caplog.text
    assert not world.finish(job, "wins")
    (again,) = world.league.advance().launched
    assert again["launch_player"] == job["launch_player"]


def test_a_job_may_be_finished_from_within_its_launch():
    def at_once(world, job):
        assert world.finish(job, "wins")
        assert world.league.advance() == AdvanceResult()

    world = World(at_once, max_active_player_job=2)
    assert len(world.league.advance().launched) == 8
    assert world.league.jobs_in_flight == ()
    assert len(world.league.advance().launched) == 8
    assert world.league.payoff.games == 16


def test_a_launch_that_finishes_its_job_and_then_raises_frees_one_slot():
    def both(world, job):
        world.finish(job, "wins")
        raise OSError("late")

    world = World(both)
    for _ in range(3):
        assert len(world.league.advance().failed) == 4
    assert world.league.jobs_in_flight == ()
    world.launch = None
    assert len(world.league.advance().launched) == 4


def test_run_goes_on_until_closed_from_within():
    def at_once(world, job):
        world.finish(job, "wins")
        if len(world.jobs) == 10:
            world.league.close()

    world = World(at_once)
    world.league.run()
    assert len(world.jobs) == 10
    assert world.league.advance() == AdvanceResult()


def test_run_stops_where_nothing_is_left_to_do_and_jobs_finish_after_close():
    world = World()
    world.league.run()
    assert len(world.jobs) == 4
    world.league.close()
    assert world.finish(world.jobs[0], "wins")
    assert world.league.payoff.games == 1


def test_a_result_counts_once():
    world = World()
    world.league.advance()
    job = world.jobs[2]
    assert world.finish(job, "losses")
    assert not world.finish(job, "losses")
    assert world.league.payoff.record(job["launch_player"], job["opponent"]).losses == 1
    assert world.league.payoff.games == 1


def test_a_job_given_up_frees_its_slot_and_counts_nothing():
    world = World()
    world.league.advance()
    assert world.finish(world.jobs[2])
    assert world.league.payoff.games == 0
    assert len(world.league.advance().launched) == 1


@pytest.mark.parametrize("job_id", [99, None, "0", -1, [0]])
def test_an_unknown_job_is_reported(job_id, caplog):
    world = World()
    world.league.advance()
    before = world.league.state_dict()
    assert not world.league.finish_job({"job_id": job_id, "results": ["wins"]})
    assert world.league.state_dict() == before
    assert repr(job_id) in caplog.text


@pytest.mark.parametrize("wrong", [{"launch_player": "nobody"}, {"sides": [["nobody"], ["main_player_default_0"]]}])
def test_a_report_about_other_players_is_refused_and_the_job_stays(wrong, caplog):
    world = World()
    world.league.advance()
    assert not world.league.finish_job({"job_id": 0, "results": ["wins"], **wrong})
    assert len(world.league.jobs_in_flight) == 4 and "nobody" in caplog.text


def test_a_malformed_report_frees_the_slot_and_counts_nothing(caplog):
    world = World()
    world.league.advance()
    assert not world.finish(world.jobs[2], "wins", "won")
    assert world.league.payoff.games == 0 and "won" in caplog.text
    assert len(world.league.advance().launched) == 1


@pytest.mark.parametrize(
    ("player_id", "step"),
    [("main_player_default_1", 5), ("main_player_default_0_0", 5), (None, 5), ("main_player_default_0", -1),
     ("main_player_default_0", None), ("main_player_default_0", 1.5)],
)  # fmt: skip
def test_progress_of_nobody_or_backwards_is_reported(player_id, step, caplog):
    world = World()
    before = world.league.state_dict()
    assert not world.train(player_id, step)
    assert world.league.state_dict() == before
    assert "refused" in caplog.text


def test_numpy_numbers_are_taken_in_reports_and_in_progress():
    world = World()
    world.league.advance()
    job = world.jobs[2]
    assert world.train(job["launch_player"], np.int64(5))
    ranks = [[np.int64(1), np.int32(2)], np.array([2, 1]), [np.float32(1), np.uint8(1)]]
    report = {"job_id": np.int64(job["job_id"]), "results": ranks, "returns": np.array([[1, -1], [-1, 1], [0, 0]])}
    assert world.league.finish_job(report)
    record = world.league.payoff.record(job["launch_player"], job["opponent"])
    assert record.counts() == pytest.approx((0.99**2, 1, 0.99, 0.99**2 + 0.99 + 1))
    json.dumps(world.league.state_dict())
    assert not any(world.train(job["launch_player"], step) for step in (np.bool_(True), np.float64(9)))


def test_games_of_three_sides():
    world = World(use="round_robin", sides=3, categories={"c": {"battle_active_player": 4}})
    world.league.advance()
    assert [job["sides"][0] for job in world.jobs] == [[name] for name in ids(world.league.active_players)]
    assert all(
        len(job["sides"]) == 3 and job["opponent"] == [job["sides"][1][0], job["sides"][2][0]] for job in world.jobs
    )
    assert world.finish(world.jobs[0], [1, 3, 2])
    (first,), (second,), (third,) = world.jobs[0]["sides"]
    assert world.league.payoff.record(first, second).wins == world.league.payoff.record(third, second).wins == 1


# Snapshots and resets.


def test_whoever_is_trained_enough_is_frozen_first_and_reset_then():
    world = World()
    world.league.advance()
    world.log.clear()
    name = "main_exploiter_default_0"
    world.train(name, 2 * PHASE - 1)
    assert world.league.advance().snapshots == ()
    world.train(name, 2 * PHASE)
    done = world.league.advance()
    assert ids(done.snapshots) == [f"{name}_200"] and done.mutated == (name,)
    assert world.log == [("save", weights(name, "latest"), weights(name, "200")), ("load", name, weights(name, "0"))]
    assert world.league.player(f"{name}_200").parent_id == name
    assert world.league.historical_players[-1] is world.league.player(f"{name}_200")
    assert world.league.advance().snapshots == ()


def test_a_phase_counts_from_when_the_player_has_really_started_anew():
    world = World()
    name = "main_exploiter_default_0"
    world.train(name, 2 * PHASE)
    assert world.league.advance().mutated == (name,)
    world.train(name, 3 * PHASE)
    world.league.begin_phase(name, 3 * PHASE)
    world.train(name, 5 * PHASE - 1)
    assert world.league.advance().snapshots == ()
    world.train(name, 5 * PHASE)
    assert ids(world.league.advance().snapshots) == [f"{name}_500"]


def test_a_main_player_is_frozen_and_never_reset():
    world = World()
    for step in range(1, 6):
        world.train("main_player_default_0", 2 * PHASE * step)
        done = world.league.advance()
        assert len(done.snapshots) == 1 and done.mutated == ()
    assert not any(kind == "load" for kind, *_ in world.log)
    assert len(world.league.historical_players) == 6


def test_a_snapshot_takes_the_rating_over_and_a_reset_gives_it_up():
    world = World()
    world.league.advance()
    assert world.finish(world.jobs[1], *["wins"] * 10)
    before = world.league.payoff.ratings["main_exploiter_default_0"]
    world.train("main_exploiter_default_0", 2 * PHASE)
    world.league.advance()
    assert world.league.payoff.ratings["main_exploiter_default_0_200"] == before
    assert world.league.payoff.ratings["main_exploiter_default_0"].mu == 25
    assert before.mu > 25


@pytest.mark.parametrize("keep", [0.0, 0.25, 1.0])
def test_a_player_that_starts_anew_is_judged_by_its_new_weights(keep):
    world = World(payoff={"reset_keep": keep, "decay": 1.0}, max_active_player_job=2)
    name, main = "main_exploiter_default_0", "main_player_default_0"
    world.league.advance()
    first, late = (job for job in world.jobs if job["launch_player"] == name)
    assert first["versions"] == {name: 0, main: 0}
    returns = [[1.0, -1.0]] * 400
    assert world.league.finish_job({"job_id": first["job_id"], "results": ["wins"] * 400, "returns": returns})
    player, payoff = world.league.player(name), world.league.payoff
    assert player.is_strong_enough()
    world.train(name, PHASE)
    assert world.league.advance().mutated == (name,)
    assert payoff.record(name, main).counts() == (400 * keep, 0, 0, 400 * keep)
    assert payoff.margin(name, main) == (1.0 if keep else None)
    assert player.is_strong_enough() is (keep > 0)

    # What its old weights won is no win of the new ones.
    assert not world.finish(late, *["wins"] * 20)
    assert payoff.record(name, main).games == 400 * keep and payoff.ratings[name].elo == 1500
    again = world.league.advance().launched[0]
    assert again["launch_player"] == name and again["versions"] == {name: 1, main: 0}
    resumed = World(payoff={"reset_keep": keep, "decay": 1.0}, max_active_player_job=2)
    resumed.league.load_state_dict(json.loads(json.dumps(world.league.state_dict())))
    for one in (world, resumed):
        assert one.finish(again, *["losses"] * 20)
        assert one.league.payoff.record(name, main).losses == 20 and one.league.payoff.ratings[name].elo < 1500
        assert keep or not one.league.player(name).is_strong_enough()


def test_teams_of_a_player_that_starts_anew_are_forgotten_too():
    world = World(use="round_robin", categories={"c": {"battle_active_player": 3}})
    payoff, (one, two, three) = world.league.payoff, ids(world.league.active_players)
    assert payoff.update({"sides": [[one, two], [three]], "results": ["wins"] * 10})
    payoff.reset(two)
    assert payoff.record((one, two), three).games == payoff.record(two, three).games == 0
    assert payoff.record(one, three).games > 8 and payoff.met(one) == [three]


def refuse(*_):
    raise OSError("disk full")


@pytest.mark.parametrize("refused", ["_save", "_load"])
def test_weights_that_cannot_be_saved_or_loaded_freeze_nobody_and_the_next_pass_tries_again(refused):
    world = World(players={"league_exploiter": {"one_phase_step": PHASE, "mutate_prob": 1.0}})
    world.league.advance()
    works = getattr(world.league, refused)
    setattr(world.league, refused, refuse)
    name = "league_exploiter_default_0"
    world.train(name, 2 * PHASE)
    before = world.league.state_dict()
    with pytest.raises(OSError, match="disk full"):
        world.league.advance()
    assert world.league.state_dict() == before  # random streams and all
    setattr(world.league, refused, works)
    done = world.league.advance()
    assert ids(done.snapshots) == [f"{name}_200"] and done.mutated == (name,)


def test_whoever_was_frozen_before_another_ones_weights_were_refused_is_told_of():
    world = World()
    world.league.advance()
    for name in ("main_player_default_0", "main_exploiter_default_0"):
        world.train(name, 2 * PHASE)
    load, world.league._load = world.league._load, refuse
    assert ids(world.league.advance().snapshots) == ["main_player_default_0_200"]
    with pytest.raises(OSError, match="disk full"):
        world.league.advance()
    world.league._load = load
    assert ids(world.league.advance().snapshots) == ["main_exploiter_default_0_200"]


def test_psro_measures_its_snapshots_against_each_other():
    world = World(use="psro", players={"best_responder": {"one_phase_step": 10}})
    name = "best_responder_default_0"
    untrained = 0
    for step in range(1, 300):
        world.train(name, min(step, 60))
        for job in world.league.advance().launched:
            strengths = [world.league.player(side[0]).total_agent_step for side in job["sides"]]
            untrained += not job["train"]
            assert job["train"] is (job["sides"][0] == [name])
            world.finish(job, *["wins" if strengths[0] > strengths[1] else "losses"] * 3)
    snapshots = ids(world.league.historical_players)
    rates = world.league.payoff[snapshots, snapshots]
    assert untrained == 3 * math.comb(len(snapshots), 2)
    assert (rates == np.tri(len(snapshots), k=-1) + np.eye(len(snapshots)) / 2).all()
    # The newest beats all: the mixture is that one.
    assert {world.league.active_players[0].get_opponent().player_id for _ in range(20)} == {snapshots[-1]}


def test_psro_asks_for_the_games_that_are_missing_once_however_many_jobs_are_in_flight():
    payoff = {"decay": 1.0, "min_win_rate_games": 50}
    world = World(
        use="psro", players={"best_responder": {"one_phase_step": 10}}, payoff=payoff, max_active_player_job=4
    )
    world.train("best_responder_default_0", 60)
    jobs = list(world.league.advance().launched)
    assert len(world.league.historical_players) == 2
    measured = [job["env"]["episodes"] for job in jobs if not job["train"]]
    assert len(jobs) == len(measured) == 4, "with a game unknown, nobody can learn to answer its mixture"
    assert sum(measured) <= 50 + 3, measured


# Settings.


@pytest.mark.parametrize(
    ("cfg", "text"),
    [
        ({"use": "alphastr"}, "unknown league 'alphastr' .did you mean 'alphastar'"),
        ({"use": "arena.league.battle_record:BattleRecord"}, "expected a class that extends BaseLeagueManager"),
        ({"player": {}}, "league.player: unknown key; did you mean 'players'"),
        ({"categories": {}}, "expected at least one category"),
        ({"categories": {"a/b": {"main_player": 1}}}, "categories: expected names of letters.*found 'a/b'"),
        ({"categories": {"x_0": {"main_player": 1}}}, "found 'x_0'"),
        ({"categories": {"a": {"main_player": 1}, "b": {}}}, "categories.b: expected at least one active player"),
        ({"categories": {"a": {"main_player": 0}}}, "categories.a: expected at least one active player"),
        ({"categories": {"a": {"main_player": -1}}}, "expected a number of at least 0"),
        ({"categories": {"a": {"man_player": 1}}}, "unknown player type 'man_player' .did you mean 'main_player'"),
        ({"players": {"main_playr": {}}}, "players.main_playr: .*did you mean 'main_player'"),
        ({"players": {"main_player": {"branch_probs": {"pfsp": 0.9}}}}, "sum to 1, found a sum of 0.9"),
        ({"categories": {"a": {"main_exploiter": 1}}}, "expected a MainPlayer among the active players, found none"),
        ({"categories": {"a": {"league_exploiter": 2}}}, "expected a first historical player to meet, found none"),
        ({"pretrained": {"default": "nowhere.safetensors"}}, "expected a weights file, found none at 'nowhere"),
        ({"pretrained": {"standard": "x"}}, "no such category; expected some of default"),
        ({"payoff": {"type": "solo"}}, "main_player_default_0: expected a battle payoff"),
        ({"use": "solo", "payoff": {"type": "battle"}}, "expected a solo payoff"),
        ({"use": "solo", "categories": {"a": {"solo_active_player": 2}}}, "one active player"),
        ({"payoff": {"type": "battle", "decay": 0.5}}, "every win rate would stay at 0.5"),
        ({"use": "round_robin", "categories": {"a": {"battle_active_player": 1}}}, "two active players"),
        ({"sides": 1}, "sides: expected a number of at least 2"),
        ({"max_active_player_job": 0}, "max_active_player_job: expected a number of at least 1"),
    ],
)
def test_a_league_that_cannot_work_is_refused_before_it_starts(cfg, text):
    with pytest.raises(ConfigError, match=text):
        create_league(cfg, *[lambda *_: None] * 3)


def test_a_league_of_exploiters_works_from_pretrained_weights(tmp_path):
    path = tmp_path / "w.safetensors"
    path.write_bytes(b"weights")
    world = World(
        categories={"a": {"league_exploiter": 2}}, pretrained={"a": str(path)}, players={"league_exploiter": {}}
    )
    assert ids(world.league.historical_players) == ["league_exploiter_a_0_pretrained"]
    assert len(world.league.advance().launched) == 2


def test_a_user_adds_a_league_and_a_player_from_a_file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from arena.league.alphastar import MainPlayer\n"
        "from arena.league.kinds import AlphaStarLeague\n"
        "class BoldPlayer(MainPlayer):\n"
        "    pass\n"
        "class Mine(AlphaStarLeague):\n"
        "    pass\n"
    )
    world = World(use=f"{path}:Mine", categories={"c": {f"{path}:BoldPlayer": 1, "main_exploiter": 1}})
    assert type(world.league).__name__ == "Mine" and isinstance(world.league, BaseLeagueManager)
    assert ids(world.league.active_players) == ["bold_player_c_0", "main_exploiter_c_0"]
    assert world.league.advance().launched[1]["opponent"] == "bold_player_c_0"


# Resume.


def season(world, passes, rng):
    """Play a league for some passes; returns the jobs."""
    start = len(world.jobs)
    for _ in range(passes):
        world.league.advance()
        for job in world.league.jobs_in_flight[:3]:
            world.finish(job, *rng.choice(["wins", "draws", "losses"], 4).tolist())
            player = world.league.player(job["launch_player"])
            world.train(player.player_id, player.total_agent_step + 30)
    return world.jobs[start:]


@pytest.mark.parametrize("use", ["alphastar", "self_play", "round_robin", "psro"])
def test_a_league_that_is_resumed_hands_out_the_same_jobs(use):
    settings = {"use": use, "max_active_player_job": 5, "seed": 5}
    if use != "alphastar":
        name = {"self_play": "self_player", "psro": "best_responder"}.get(use, "battle_active_player")
        branches = {"self_play": {"self": 0.5, "history": 0.5}, "psro": {"mixture": 1.0}}
        probs = branches.get(use, {"round_robin": 0.4, "nearest": 0.3, "uniform": 0.3})
        settings["players"] = {name: {"one_phase_step": 100, "branch_probs": probs}}
    world, again = World(**settings), World(**settings)
    season(world, 60, np.random.default_rng(1))
    assert len(world.league.historical_players) > 4 and world.league.jobs_in_flight
    again.league.load_state_dict(json.loads(json.dumps(world.league.state_dict())))
    assert again.league.state_dict() == world.league.state_dict()
    expected, found = (season(one, 60, np.random.default_rng(2)) for one in (world, again))
    assert found == expected and len(found) > 60
    assert again.league.state_dict() == world.league.state_dict()
    assert not any(target.endswith("/0.safetensors") for kind, _, target in again.log if kind == "save")


def test_a_solo_league_is_resumed():
    world, again = World(use="solo"), World(use="solo")
    world.league.advance()
    world.finish(world.jobs[0], 3.5)
    again.league.load_state_dict(json.loads(json.dumps(world.league.state_dict())))
    assert again.league.payoff.results == (3.5,)
    assert again.league.advance().launched == world.league.advance().launched


def test_settings_that_changed_before_a_resume_are_named_in_the_log(caplog):
    world = World()
    season(world, 5, np.random.default_rng(1))
    state = json.loads(json.dumps(world.league.state_dict()))
    World().league.load_state_dict(state)
    assert not caplog.text
    settings = {"main_player": {"one_phase_step": PHASE}, "main_exploiter": {"one_phase_step": 7}}
    World(payoff={"decay": 0.9}, players=settings).league.load_state_dict(state)
    assert "setting payoff.decay was 0.99 when the league was saved and is 0.9 now" in caplog.text
    assert f"setting players.main_exploiter.one_phase_step was {PHASE}" in caplog.text
    assert "setting players.league_exploiter was {" in caplog.text and len(caplog.records) == 3


def test_another_league_is_not_resumed():
    state = World().league.state_dict()
    with pytest.raises(ConfigError, match="resume with the configuration"):
        World(categories={"default": {"main_player": 2}}, players={}).league.load_state_dict(state)
    with pytest.raises(ConfigError, match="found version 99"):
        World().league.load_state_dict({**state, "version": 99})


# A league with known strengths.


class Learners(World):
    """A league whose players grow with their steps from a strength of their own, and lose it when they are reset."""

    def __init__(self, stream, **cfg):
        self.strength = {}
        super().__init__(**cfg)
        self.rng = np.random.default_rng(stream)
        players = self.league.payoff.roster.players
        self.start = {player.player_id: 0.5 * i for i, player in enumerate(self.league.active_players)}
        self.strength = {p.player_id: self.start[p.player_id if p.active else p.parent_id] for p in players}

    def save(self, source, target):
        _, player_id, _ = source.split("/")
        self.strength[f"{player_id}_{target.split('/')[-1].removesuffix('.safetensors')}"] = self.strength[player_id]

    def load(self, player_id, path):
        self.strength[player_id] = self.start[player_id]

    def play(self, passes, games):
        for _ in range(passes):
            for job in self.league.advance().launched:
                home, away = (self.strength[side[0]] for side in job["sides"])
                wins = self.rng.random(games) < 1 / (1 + math.exp(away - home))
                assert self.finish(job, *["wins" if won else "losses" for won in wins])
                self.strength[job["launch_player"]] += 0.01
                player = self.league.player(job["launch_player"])
                self.train(player.player_id, player.total_agent_step + 1)


@pytest.mark.tier("all")
def test_ratings_recover_the_order_of_a_simulated_league():
    categories = {name: {"main_player": 1, "main_exploiter": 1, "league_exploiter": 2} for name in "abc"}
    phases = {kind: {"one_phase_step": 60} for kind in ("main_player", "main_exploiter", "league_exploiter")}
    world = Learners(11, categories=categories, players=phases, seed=3)
    world.play(passes=480, games=5)
    league = world.league
    frozen = ids(league.historical_players)
    strengths = [world.strength[name] for name in frozen]
    assert league.payoff.games == 480 * 12 * 5
    assert len(frozen) > 24
    assert any(issubclass(player.origin, MainExploiter) for player in league.historical_players)
    assert kendalltau(strengths, [league.payoff.ratings[name].mu for name in frozen]).statistic >= 0.95
    assert kendalltau(strengths, [league.payoff.ratings[name].elo for name in frozen]).statistic >= 0.9


def test_the_league_needs_neither_mpi_nor_torch():
    code = "import sys, arena.league.kinds; print({'torch', 'mpi4py'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "set()"
