"""Output of --dry-run: people decide on a large job by it, so its counts are exact."""

import pytest

from arena.config.run import RunConfig
from arena.plan.describe import describe, summary, versus
from arena.plan.layout import plan
from arena.plan.memory import MemoryNeeds

DUEL = {
    "name": "duel",
    "steps": 400_000,
    "env": {"use": "touchdown", "num_envs": 8},
    "policies": {"blue": {"use": "ppo"}, "red": {"use": "random", "frozen": True}},
    "matches": [{"seats": ["blue", "blue", ["red", "red"]], "entities": [0, 1, 2, 5]}],
}
ROUND_ROBIN = {
    "name": "all",
    "steps": 1_000,
    "env": {"use": "touchdown"},
    "policies": {name: {"use": "ppo"} for name in ("red", "blue", "green", "yellow")},
    "round_robin": {"policies": ["red", "blue", "green", "yellow"], "team_size": 2, "replicas": 5},
}


@pytest.fixture
def view():
    """Describe a configuration on ranks of some nodes."""

    def view(data, node_of_rank, names=None, index=0):
        config = RunConfig.model_validate(data)
        round_ = config.round_list()[index]
        return describe(plan(round_.rows, node_of_rank), config, round_, names)

    return view


def test_a_small_plan_is_shown_rank_by_rank(view):
    lines = view(DUEL, [0] * 6).splitlines()
    assert lines[0] == "duel: 400,000 transition steps for each learning policy"
    assert [line.split() for line in lines[2:9]] == [
        ["rank", "node", "role", "match", "seat", "entities", "player"],
        ["0", "node", "0", "root"],
        ["1", "node", "0", "environment", "0", "touchdown", "x8"],
        ["2", "node", "0", "worker", "0", "0", "0", "blue"],
        ["3", "node", "0", "worker", "0", "1", "1", "blue"],
        ["4", "node", "0", "worker", "0", "2", "2,", "5", "red"],
        ["5", "node", "0", "idle"],
    ]


def test_groups_and_idle_ranks_are_named(view):
    text = view(DUEL, [0] * 8)
    assert "8 ranks: 1 root, 1 environment process, 3 workers, 3 idle; 1 match\n" in text
    assert "group blue: 2 workers of ppo\n" in text
    assert "group red: 1 worker of random, frozen\n" in text
    assert "idle: ranks 5-7 (node 0); the smallest match takes 4 ranks\n" in text


NOTHING, REPLAY = MemoryNeeds({}, {}, {}), MemoryNeeds({}, {}, {"blue": 3_000_000_000})


def test_replays_are_part_of_the_memory_and_divided_among_workers():
    config = RunConfig.model_validate(DUEL)
    round_ = config.round_list()[0]
    planned = plan(round_.rows, [0, 0, 0, 1, 1])
    without, full = NOTHING.of_nodes(planned), REPLAY.of_nodes(planned)
    assert {node: full[node] - without[node] for node in full} == {0: 1500, 1: 1500}
    text = describe(planned, config, round_, needs=REPLAY)
    assert "memory: about 3.6 GB, 1.8 GB of it on node 1" in text
    assert ": 3.0 GB for the full replay of blue, 600 MB for processes; networks need memory" in text


def test_copies_and_rollouts_are_part_of_the_memory_of_the_ranks_that_hold_them():
    config = RunConfig.model_validate(DUEL)
    planned = plan(config.round_list()[0].rows, [0, 0, 1, 2, 3])
    needs = MemoryNeeds({0: 250_000_000}, {(0, 0): 62_500_000, (0, 2): 87_500_000}, {})  # of each of 8 copies
    more = {node: size - NOTHING.of_nodes(planned)[node] for node, size in needs.of_nodes(planned).items()}
    assert more == {0: 2000, 1: 500, 2: 0, 3: 700}
    assert needs.describe(planned).startswith("2.0 GB for environment copies and their messages, 1.2 GB for rollouts")
    assert needs.remedy(planned) == "lower num_envs"


APART = {
    **DUEL,
    "env": {"use": "touchdown", "in_worker": True},
    "policies": {
        "blue": {"use": "ppo", "learners": 2, "max_lag": 4, "steps": 2_000},
        "red": {"use": "ppo", "learners": 1, "max_lag": 0},
    },
}


def test_learners_are_planned_with_their_memory():
    data = {**APART, "matches": [{"seats": ["blue", "red"], "replicas": 2}]}
    config = RunConfig.model_validate(data)
    round_ = config.round_list()[0]
    planned = plan(round_.rows, [0, 0, 0, 1, 1, 1])
    text = describe(planned, config, round_, needs=REPLAY)
    assert "learning policy (2,000 for blue)\n" in text
    assert "6 ranks: 1 root, 0 environment processes, 2 runners, 0 workers, 3 learners, 0 idle; " in text
    assert "group blue: 2 workers of ppo, 2 learners; workers are at most 4 updates behind\n" in text
    assert "group red: 2 workers of ppo, 1 learner; workers take turns with them\n" in text
    without, full = NOTHING.of_nodes(planned), REPLAY.of_nodes(planned)
    assert sum(full.values()) - sum(without.values()) == 3000
    assert all(full[planned.assignments[rank].node] - 1500 >= 330 for rank in planned.learners["blue"])


def test_a_plan_of_many_learners_is_short_and_made_at_once(view):
    data = {**APART, "matches": [{"seats": ["blue", "red"], "replicas": "auto"}] * 100}
    data["policies"] = {name: {"use": "ppo", "learners": 100, "max_lag": 4} for name in ("blue", "red")}
    text = view(data, [rank // 50 for rank in range(100_000)])
    assert len(text.splitlines()) < 80
    assert "100,000 ranks: 1 root, 0 environment processes, 99,799 runners, 0 workers, 200 learners, 0 idle; " in text
    assert "100 learners of blue" in text


def test_nodes_have_their_names(view):
    text = view(DUEL, [0, 0, 1, 1, 1, 1], ["n17", "n18"])
    assert "0     n17   root" in text
    assert "2     n18   environment" in text
    assert "idle: rank 1 (n17)" in text


def test_the_round_robin_is_thirty_matches_on_151_ranks(view):
    text = view(ROUND_ROBIN, [0] * 151)
    expected = (
        "151 ranks: 1 root, 30 environment processes, 120 workers, 0 idle; 30 matches of 6 pairings x 5 replicas\n"
    )
    assert expected in text
    assert "0-4      row 0 x5  red,red vs blue,blue          touchdown    1-25     node 0" in text
    assert "25-29    row 5 x5  green,green vs yellow,yellow  touchdown    126-150  node 0" in text
    for player in ROUND_ROBIN["policies"]:
        assert f"group {player}: 30 workers of ppo\n" in text
    assert "\nidle:" not in text


def test_memory_is_estimated_for_the_fullest_node(view):
    # 1 root, 1 environment process and 2 workers on node 0, a worker and an idle rank on node 1: 435 and 210 MB.
    assert "memory: about 0.6 GB, 0.4 GB of it on node 0" in view(DUEL, [0, 0, 0, 0, 1, 1])


def test_pages_stay_short_for_many_ranks_and_rows(view):
    many = {**ROUND_ROBIN, "matches": [{"seats": ["red", "blue"], "replicas": "auto"}] * 100}
    del many["round_robin"]
    text = view(many, [rank % 50 for rank in range(100_000)])
    assert len(text.splitlines()) < 80
    assert max(map(len, text.splitlines())) < 250
    assert "and 40 more rows" in text
    assert "100,000 ranks: 1 root, 33,333 environment processes, 66,666 workers, 0 idle; " in text
    assert "33,333 matches of 100 pairings, 333 to 334 replicas of each" in text


def test_rounds_say_which_they_are_and_what_is_copied_after_them(view):
    rounds = [{"matches": [{"seats": ["blue", "green"]}], "copy": {"others": "best"}, "steps": 5, "repeat": 2}]
    data = {**ROUND_ROBIN, "rounds": rounds}
    del data["round_robin"]
    first = view(data, [0] * 4, index=1).splitlines()[0]
    assert first == "all, round 2 of 2: 5 transition steps for each learning policy, then copy best over others"


def test_players_without_a_seat_are_told(view):
    data = {**ROUND_ROBIN, "matches": [{"seats": ["blue", "green"]}]}
    del data["round_robin"]
    assert "group red: no worker\n" in view(data, [0] * 4)


def test_brackets_are_one_worker_with_several_entities():
    config = RunConfig.model_validate(DUEL)
    (row,) = config.round_list()[0].rows
    assert versus(row.seats) == "blue,blue vs [red red]"
    assert summary(plan([row], [0] * 5)) == "5 ranks: 1 root, 1 environment process, 3 workers, 0 idle; 1 match"
