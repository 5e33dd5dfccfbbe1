"""A league in the run: jobs reach environments and policies, results reach the payoff once each; a resume continues."""

import json
import re
import shutil
import sqlite3
from itertools import combinations, pairwise

import numpy as np
import pytest

from arena.records.checkpoints import Checkpoints
from arena.tensors.weights import read_tensors
from benchmarks import league_strength
from benchmarks.determinism import kill_everything

from .launching import player, run_arena, succeed
from .test_resume import newest, start

pytestmark = pytest.mark.rooms("league", "root", "worker")

EPISODES = 16
SETTINGS = {"hidden": [8], "horizon": 16, "learning_rate": 0.01, "learning_rate_schedule": "linear"}


def league(use="alphastar", phase=1_500, players=("main_player", "main_exploiter", "league_exploiter"), **more):
    return {
        "steps": 6_000,
        "env": {"use": "matrix_game", "settings": {"rounds": 4}, "num_envs": 8},
        "policies": {"p": {"use": "ppo", "settings": SETTINGS}},
        "league": {
            "use": use,
            "episodes": EPISODES,
            "publish_every": 0,
            "settings": {
                "categories": {"default": dict.fromkeys(players, 1)},
                "players": {name: {"one_phase_step": phase} for name in players},
            },
        },
        **more,
    }


def told(directory, question):
    with sqlite3.connect(directory / "arena.sqlite") as database:
        return database.execute(question).fetchall()


def log_of(directory):
    return (directory / "log" / "arena.log").read_text("utf-8")


def check_totals(directory):
    """Hold what the league has counted against the episodes that were recorded: nothing twice, nothing lost."""
    path, manifest = newest(directory.parent.parent)
    games = manifest["league"]["manager"]["payoff"]["games"]
    assert told(directory, "SELECT count(*) FROM episodes WHERE counted") == [(games,)]
    twice = "SELECT 1 FROM episodes GROUP BY attempt, match, copy, ended_at HAVING count(*) > 1"
    assert told(directory, twice) == []
    if not told(directory, "SELECT 1 FROM rollbacks"):  # games of weights that were given up belong to nobody
        of_two = "SELECT episode FROM episode_entities GROUP BY episode HAVING count(DISTINCT player) = 2"
        between = told(directory, f"SELECT count(*) FROM episodes WHERE counted AND id IN ({of_two})")
        assert told(directory, "SELECT sum(games) FROM game_totals") == between, "each game is in one pair"
    per_job = dict(told(directory, "SELECT job, count(*) FROM episodes WHERE counted GROUP BY job"))
    ended = told(directory, "SELECT id, result FROM jobs WHERE ended IS NOT NULL")
    for job, result in ended:
        assert per_job.get(job, 0) == json.loads(result)["episodes"] <= EPISODES, job
    whole = sum(per_job.get(job) == EPISODES for job, _ in ended)
    assert whole > len(ended) / 2, "but for jobs of players that started anew meanwhile, all episodes count"
    return path, manifest


def logged_episodes(directory):
    """Return the number of job episodes that the environment processes of the last attempt report."""
    total = 0
    for path in directory.glob("log/rank-*.log"):
        attempts = path.read_text("utf-8").split("environment process of match")
        lines = [line for line in attempts[-1].splitlines() if "episodes for jobs so far" in line]
        total += int(lines[-1].split("; ")[1].split()[0]) if lines else 0
    return total


@pytest.mark.slow
@pytest.mark.tier("default")
def test_players_are_frozen_restarted_and_met_again(tmp_path):
    outcome = succeed(run_arena(tmp_path, league(steps=10_000, phase=2_000, verify_replicas=True)))
    directory = outcome.directory
    check_totals(directory)
    players = told(directory, "SELECT player, parent, active, steps, path FROM league_players")
    frozen = {name: (parent, steps, path) for name, parent, active, steps, path in players if not active}
    parents = {parent for parent, *_ in frozen.values()}
    assert parents == {f"{name}_default_0" for name in ("main_player", "main_exploiter", "league_exploiter")}
    for name, (parent, steps, path) in frozen.items():
        weights = read_tensors(directory / path)
        assert name == f"{parent}_{steps}" and all(np.isfinite(array).all() for array in weights.values())
    met = {
        member
        for (job,) in told(directory, "SELECT job FROM jobs")
        for side in json.loads(job)["sides"][1:]
        for member in side
    }
    assert met & set(frozen) and "main_player_default_0" in met
    log = log_of(directory)
    assert "main_exploiter_default_0 is reset" in log and "main_player_default_0 is reset" not in log
    assert told(directory, "SELECT count(*) FROM ratings WHERE sigma > 0")[0][0] >= len(players)
    assert told(directory, "SELECT what FROM faults") == []

    # A player that starts anew has its first weights, and its schedules begin again.
    rises = [now for before, now in pairwise(learning_rates(directory, "main_exploiter")) if now > before]
    assert rises, "the learning rate never rose again"
    # It falls linearly to 0 over what is left of the budget, which is most of it the first time.
    assert rises[0] > 0.009
    assert all(now <= before for before, now in pairwise(learning_rates(directory, "main_player")))


def learning_rates(directory, player_type):
    rows = told(
        directory,
        f"SELECT value FROM metrics WHERE player = '{player_type}_default_0' AND name = 'learning_rate' "
        "ORDER BY updates",
    )
    return [rate for (rate,) in rows]


@pytest.mark.tier("default")
def test_a_league_that_was_killed_goes_on_and_counts_every_game_once(tmp_path):
    # A fast machine takes 25,000 steps before the first checkpoint is due, and has nothing left to go on with then.
    config = league(players=("main_player", "main_exploiter"), steps=75_000, checkpoint={"every": 1.0})
    process = start(tmp_path, config)
    kill_everything(process)
    _, before = newest(tmp_path)
    outcome = succeed(run_arena(tmp_path, config, "--resume"))
    _, after = check_totals(outcome.directory)
    earlier, later = (m["league"]["manager"] for m in (before, after))
    assert [p["player_id"] for p in later["historical"]][: len(earlier["historical"])] == [
        p["player_id"] for p in earlier["historical"]
    ]
    assert later["next_job"] > earlier["next_job"] and later["payoff"]["games"] > earlier["payoff"]["games"]
    for name, state in earlier["active"].items():
        assert later["active"][name]["total_agent_step"] >= state["total_agent_step"]
        assert after["updates"][name] > before["updates"][name]
        assert after["steps"][name] >= 25_000
    # What the environment processes of the second attempt have played for jobs that ended is what it has on record, but
    # for the jobs that were under way when the matches closed.
    found = told(outcome.directory, "SELECT count(*) FROM episodes WHERE attempt = 2 AND job IS NOT NULL")[0][0]
    assert 0 <= found - logged_episodes(outcome.directory) < EPISODES * len(later["active"])
    for name, steps in after["steps"].items():
        assert told(outcome.directory, f"SELECT steps FROM league_players WHERE player = '{name}'") == [(steps,)]
        own = f"SELECT max(steps) FROM episode_entities WHERE player = '{name}'"
        assert 0.95 * steps <= told(outcome.directory, own)[0][0] <= 1.05 * steps
    pairs = [frozenset(pair) for pair in told(outcome.directory, "SELECT home, away FROM payoff")]
    assert len(pairs) == len(set(pairs)), "a pair has one row"


def test_whoever_has_spent_its_budget_rests_and_learns_again_when_the_run_goes_on(tmp_path):
    """A best responder is through long before the main player, at the end of its first phase."""
    config = league(players=("main_player", "best_responder"), phase=2_000, steps=2_000)
    config["league"]["settings"]["players"]["main_player"]["env"] = {"num_envs": 1}
    config["policies"]["p"]["settings"]["epochs"] = (
        60  # so that few updates pass between the order of a restart and its turn
    )
    name = "best_responder_default_0"
    directory = succeed(run_arena(tmp_path, config)).directory
    first = log_of(directory)
    assert "main_player_default_0 is finished" in first.split(f"{name} is finished after 2,")[1]
    assert f"{name} is reset" not in first and f"{name} is frozen" not in first

    succeed(run_arena(tmp_path, {**config, "steps": 12_500}, "--resume"))
    later = log_of(directory).removeprefix(first)
    assert f"{name} is frozen as {name}_2" in later and later.count(f"{name} is reset after") >= 2
    check_learning(directory, name, attempt=2)

    # A restart that was ordered, but came too late to be carried out, is carried out when the run goes on.
    path, manifest = newest(tmp_path)
    del manifest["sha256"]
    state = manifest["league"]
    number, steps = state["restarts"][name][0] + 1, manifest["steps"][name]
    state["pending_restarts"] = {name: [f"players/{name}/0.safetensors", number]}
    state["manager"]["active"][name]["last_enough_step"] = steps
    manifest["finished"] = False
    again = Checkpoints(path.parent)
    directory_of_next = again.begin(manifest["number"] + 1)
    for file in path.glob("*.safetensors"):
        shutil.copy(file, directory_of_next)
    again.complete(manifest["number"] + 1, manifest)
    succeed(run_arena(tmp_path, {**config, "steps": 12_500}, "--resume"))
    last, manifest = newest(tmp_path)
    assert list(manifest["league"]["pending_restarts"]) == [name], "without steps to learn in it stays what it is"
    assert (last / f"{name}.safetensors").read_bytes() == (path / f"{name}.safetensors").read_bytes()
    succeed(run_arena(tmp_path, {**config, "steps": 15_500}, "--resume"))
    assert f"{name} is reset after {steps:,} steps" in log_of(directory)
    check_learning(directory, name, attempt=4)
    began = 0  # each phase is as long as its schedule, however long it took to start anew
    for what, step in re.findall(rf"{name} (is frozen as {name}_|is reset after )([\d,]+)", log_of(directory)):
        if what.startswith("is reset"):
            began = int(step.replace(",", ""))
        else:
            assert int(step) >= began + 2_000
    _, manifest = newest(tmp_path)
    assert manifest["league"]["restarts"][name][0] >= number


def check_learning(directory, name, attempt):
    """Check that a best responder learned in an attempt: its schedule began again, and no snapshot is like another."""
    question = f"SELECT value FROM metrics WHERE player = '{name}' AND name = 'learning_rate' AND attempt = {attempt}"
    rates = [rate for (rate,) in told(directory, question)]
    assert max(rates) > 0.008, rates
    frozen = told(directory, f"SELECT path FROM league_players WHERE parent = '{name}'")
    weights = [read_tensors(directory / path) for (path,) in frozen]
    assert len(weights) >= 3
    for one, other in combinations(weights, 2):
        assert any((one[key] != other[key]).any() for key in one)


@pytest.mark.parametrize("in_worker", [False, True])
def test_what_a_job_says_reaches_policy_and_environment(tmp_path, in_worker):
    settings = {
        "one_phase_step": 100_000,
        "forward": {"exploration": {"start": 1.0, "end": 1.0}},
        "data": {"learning_rate": 0.05},
        "env": {"settings": {"wage": 2.0}, "options": {"bonus": 0.5}, "num_envs": 3, "episodes": 7},
    }
    config = {
        "steps": 2_000,
        "env": {"use": f"{player('jobs:Pays')}", "num_envs": 4, "in_worker": in_worker},
        "policies": {"p": {"use": "ppo", "settings": {"learning_rate_schedule": "constant"}}},
        "league": {"use": "solo", "settings": {"players": {"solo_active_player": settings}}},
    }
    outcome = succeed(run_arena(tmp_path, config))
    returns = told(outcome.directory, "SELECT DISTINCT return FROM episode_entities")
    assert returns == [(4 * 2.5,)]
    assert {copy for (copy,) in told(outcome.directory, "SELECT DISTINCT copy FROM episodes")} == {0, 1, 2}
    ended = told(outcome.directory, "SELECT result FROM jobs WHERE ended IS NOT NULL")
    assert ended and {json.loads(result)["episodes"] for (result,) in ended} == {7}
    rates = told(outcome.directory, "SELECT DISTINCT value FROM metrics WHERE name = 'learning_rate'")
    assert rates == [(0.05,)]
    _, manifest = newest(tmp_path)
    assert set(manifest["league"]["manager"]["payoff"]["results"]) == {10.0}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"league": {"use": "alphastar", "team_size": 2}}, "seats play 4 entities, but matrix_game has 2"),
        (
            {"policies": {"p": {"use": f"{player('behaviours:Steady')}"}}},
            "expected policies that separate act from learn",
        ),
    ],
)
def test_a_league_that_cannot_be_played_is_refused_in_one_message(tmp_path, change, message):
    outcome = run_arena(tmp_path, {**league(), **change})
    assert outcome.code == 2
    assert message in outcome.errors
    assert "Traceback" not in outcome.errors


@pytest.mark.slow
def test_by_its_defaults_a_main_player_does_not_unlearn_what_it_could():
    """A league of 160,000 steps: no smaller run tells defaults that learn from those that lose to their own past."""
    assert league_strength.main(["--quick"]) == 0
