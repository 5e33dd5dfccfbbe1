"""Matches that keep to a core without need leave other cores idle; those that do not, where they could, wait longer."""

import pytest

from arena.config.run import load_config
from arena.plan.layout import plan, ranks_of_run
from arena.plan.pinning import ANYWHERE, Place, cores_of_matches, place_of
from arena.system.cores import Cores

NO_LIMIT = float("inf")
MATCH = {"env": {"use": "touchdown", "settings": {"team_size": 1}}, "seats": ["a", "b"]}


def machine(ranks, cores, limit=NO_LIMIT, first=0):
    return dict.fromkeys(range(first, first + ranks), Cores(frozenset(range(cores)), limit))


def seating(matches, first=1, ranks=3):
    return [tuple(range(first + ranks * m, first + ranks * (m + 1))) for m in range(matches)]


@pytest.mark.parametrize(
    ("matches", "cores", "expected"),
    [
        (1, 1, [0]),
        (2, 2, [0, 1]),
        (5, 2, [0, 1, 0, 1, 0]),
        (1, 2, []),  # its ranks are faster side by side
        (3, 2, []),  # one core would have twice the work of the other
        (7, 8, []),
    ],
)
def test_matches_are_spread_evenly_where_every_core_has_enough(matches, cores, expected):
    found = cores_of_matches(seating(matches), machine(1 + 3 * matches, cores))
    assert found == dict(enumerate(expected))


def test_a_match_that_spans_machines_leaves_all_to_the_kernel():
    assert cores_of_matches(seating(4), machine(12, 2)) == {}


def test_each_machine_counts_its_own_matches():
    here = machine(6, 2, first=7)
    assert cores_of_matches(seating(4), here) == {2: 0, 3: 1}


def test_ranks_that_were_bound_already_stay_where_they_are():
    here = {rank: Cores(frozenset({rank % 2}), NO_LIMIT) for rank in range(13)}
    assert cores_of_matches(seating(4), here) == {}


def test_a_machine_that_is_shared_with_others_is_left_to_the_kernel():
    assert cores_of_matches(seating(4), machine(13, 2, limit=1.5)) == {}


def place(tmp_path, matches, **changes):
    path = tmp_path / "config.yaml"
    policies = {"a": {"use": "ppo"}, "b": {"use": "random"}}
    path.write_text(repr({"name": "x", "steps": 10, "env": MATCH["env"], "policies": policies, "matches": matches}))
    config = load_config(path, [f"{key}={value}" for key, value in changes.items()])
    (round_,) = config.round_list()
    planned = plan(round_.rows, [0] * ranks_of_run(config))
    return place_of(1, planned, round_, config, machine(ranks_of_run(config), 1))


def test_matches_that_share_a_core_know_each_other(tmp_path):
    assert place(tmp_path, [{"seats": ["a", "b"], "replicas": 3}]) == Place(0, (1, 4, 7))


@pytest.mark.parametrize(
    "changes",
    [
        {"pin_matches": "false"},
        {"threads_per_rank": 4},
        {"env.manager": "subprocess"},
        {"env.num_envs": 2, "env.batches": 2},
    ],
    ids=str,
)
def test_ranks_that_need_more_than_a_core_or_answer_out_of_turn_go_where_they_like(tmp_path, changes):
    assert place(tmp_path, [{"seats": ["a", "b"], "replicas": 3}], **changes) == ANYWHERE


@pytest.mark.parametrize(
    "other",
    [{"seats": ["b", "b"]}, {"seats": ["a", "b"], "env": {"num_envs": 8}}, {"seats": [["a", "a"]]}],
    ids=["players", "environment", "seats"],
)
def test_matches_that_cost_different_amounts_are_left_to_the_kernel(tmp_path, other):
    assert place(tmp_path, [{"seats": ["a", "b"]}, other]) == ANYWHERE
