"""Roles of ranks: every rank has one role, every seat one worker, matches stay inside nodes where they fit."""

from collections import Counter, defaultdict
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.common.errors import ConfigError
from arena.config.environment import EnvConfig
from arena.config.rounds import TableRow
from arena.config.table import Seat
from arena.plan.assignment import Plan
from arena.plan.layout import plan, ranks_needed, reduced

APART, IN_WORKER = (EnvConfig(use="touchdown", in_worker=in_worker) for in_worker in (False, True))


def row(seats: tuple[Seat, ...], replicas: int | Literal["auto"] = 1, in_worker: bool = False) -> TableRow:
    return TableRow(seats, replicas, IN_WORKER if in_worker else APART)


def seats(*players: str) -> tuple[Seat, ...]:
    return tuple(Seat(player, (entity,)) for entity, player in enumerate(players))


DUEL = seats("blue", "blue", "red", "red")

players, replicas = st.sampled_from(["blue", "red", "green"]), st.one_of(st.just("auto"), st.integers(1, 4))
rows = st.lists(
    st.one_of(
        st.builds(
            row, st.lists(players, min_size=1, max_size=6).map(lambda names: seats(*names)), replicas, st.just(False)
        ),
        st.builds(row, players.map(seats), replicas, st.just(True)),
    ),
    min_size=1,
    max_size=5,
)


def size(row: TableRow) -> int:
    return len(row.seats) if row.in_worker else 1 + len(row.seats)


@st.composite
def tables_and_nodes(draw):
    """A table and the nodes of enough ranks for it."""
    table = draw(rows)
    ranks = ranks_needed(table) + draw(st.integers(0, 40))
    nodes = draw(st.integers(1, 8))
    return table, draw(st.lists(st.integers(0, nodes - 1), min_size=ranks, max_size=ranks))


def nodes_of(planned: Plan, match: int) -> set[int]:
    return {planned.assignments[rank].node for rank in planned.seating[match]}


def apart(table: list[TableRow], learners: dict[str, int]) -> list[TableRow]:
    """Return a table whose players have learners."""
    return [
        row._replace(learners={s.player: learners[s.player] for s in row.seats if s.player in learners})
        for row in table
    ]


@given(tables_and_nodes(), st.dictionaries(players, st.integers(1, 3)), st.data())
def test_learners_divide_the_workers_of_their_player_among_them(drawn, wanted, data):
    table, node_of_rank = drawn
    table = apart(table, wanted)
    node_of_rank = node_of_rank + [0] * (ranks_needed(table) - len(node_of_rank))
    planned = plan(table, node_of_rank)
    busy = [rank for ranks in (*planned.seating, *planned.learners.values()) for rank in ranks]
    assert len(busy) == len(set(busy))
    assert sorted([0, *busy, *planned.idle]) == list(range(len(node_of_rank)))
    for player, ranks in planned.learners.items():
        workers = planned.groups[player]
        assert len(ranks) <= min(wanted[player], len(workers))
        assert planned.leader(player) == ranks[0]
        parts = [planned.samplers_of(player, learner) for learner in range(len(ranks))]
        assert [number for part in parts for number in part] == list(range(len(workers)))
        assert all(planned.learner_of(player, number) == n for n, part in enumerate(parts) for number in part)
        assert all(planned.assignments[rank][2:6] == ("learner", None, None, player) for rank in ranks)
        assert planned.learning([player]) == sorted(ranks)
        for rank, part in zip(ranks, parts, strict=True):  # beside its first worker, where its match is on one node
            match, _ = planned.places[player][part.start]
            mates = {planned.assignments[r].node for r in planned.seating[match]}
            assert len(mates) > 1 or planned.assignments[rank].node in mates or len(nodes_with_room(planned)) > 1
    fewer = data.draw(st.integers(1, len(node_of_rank)))
    replicas = reduced(table, fewer)
    assert plan(table, node_of_rank[:fewer], replicas=replicas).assignments[0].role == "root"


def nodes_with_room(planned: Plan) -> set[int]:
    return {one.node for one in planned.assignments}


def test_a_runner_has_all_seats_of_its_match():
    table = apart([row(DUEL, 2, in_worker=True)], {"blue": 2, "red": 1})
    planned = plan(table, [0] * 6)
    assert planned.groups == {"blue": (1, 1, 4, 4), "red": (1, 1, 4, 4)}
    assert planned.places["red"] == ((0, 2), (0, 3), (1, 2), (1, 3))
    assert planned.learners == {"blue": (2, 5), "red": (3,)}
    assert planned.match_ranks(1) == (4, (4, 4, 4, 4))
    assert planned.assignments[4] == (4, 0, "runner", 1, None, None, True)
    with pytest.raises(ConfigError, match=r"6 ranks \(1 root \+ 2 runners \+ 3 learners\), found 5"):
        plan(table, [0] * 5)


@given(tables_and_nodes())
def test_every_rank_has_one_role_and_every_seat_one_worker(drawn):
    table, node_of_rank = drawn
    planned = plan(table, node_of_rank)
    assert [one.rank for one in planned.assignments] == list(range(len(node_of_rank)))
    assert [one.node for one in planned.assignments] == node_of_rank
    assert [one.role for one in planned.assignments].count("root") == 1
    assert planned.assignments[0].role == "root"

    seated = [rank for ranks in planned.seating for rank in ranks]
    assert len(seated) == len(set(seated))
    assert sorted([0, *seated, *planned.idle]) == list(range(len(node_of_rank)))

    for match in planned.matches:
        environment, workers = planned.match_ranks(match.index)
        inside = table[match.row].in_worker
        assert planned.assignments[environment].role == ("worker" if inside else "environment")
        assert planned.assignments[environment].match == match.index
        assert (environment in workers) == inside
        assert len(workers) == len(match.seats)
        for number, (rank, seat) in enumerate(zip(workers, match.seats, strict=True)):
            one = planned.assignments[rank]
            assert (one.role, one.match, one.seat, one.player) == ("worker", match.index, number, seat.player)


@given(tables_and_nodes())
def test_matches_are_those_of_the_table(drawn):
    table, node_of_rank = drawn
    planned = plan(table, node_of_rank)
    assert [match.index for match in planned.matches] == list(range(len(planned.matches)))
    assert [(match.row, match.replica) for match in planned.matches] == sorted(
        (match.row, match.replica) for match in planned.matches
    )
    replicas = Counter(match.row for match in planned.matches)
    for number, row in enumerate(table):
        assert replicas[number] >= 1 if row.replicas == "auto" else replicas[number] == row.replicas
    assert all(match.seats == table[match.row].seats for match in planned.matches)


@given(tables_and_nodes())
def test_groups_hold_each_player_s_workers_in_the_order_of_matches_and_seats(drawn):
    planned = plan(*drawn)
    expected = defaultdict(list)
    for match in planned.matches:
        for rank, seat in zip(planned.match_ranks(match.index)[1], match.seats, strict=True):
            expected[seat.player].append(rank)
    assert planned.groups == {player: tuple(ranks) for player, ranks in expected.items()}


@given(tables_and_nodes())
def test_auto_leaves_no_room_for_another_match(drawn):
    table, node_of_rank = drawn
    automatic = [size(row) for row in table if row.replicas == "auto"]
    if automatic:
        assert len(plan(table, node_of_rank).idle) < min(automatic)


@given(tables_and_nodes())
def test_no_match_spans_nodes_that_would_fit_in_what_was_left_of_one(drawn):
    table, node_of_rank = drawn
    planned = plan(table, node_of_rank)
    left = Counter(planned.assignments[rank].node for rank in planned.idle)
    for match in planned.matches:
        nodes = nodes_of(planned, match.index)
        if len(nodes) > 1:
            assert size(table[match.row]) > max(left.values(), default=0)


@given(tables_and_nodes())
def test_the_same_question_has_the_same_answer(drawn):
    # Every rank computes the plan for itself and follows it.
    assert plan(*drawn) == plan(*drawn)


def test_the_opening_example_takes_six_ranks_in_order():
    planned = plan([row(DUEL)], [0] * 6)
    assert [one.role for one in planned.assignments] == ["root", "environment"] + ["worker"] * 4
    assert planned.groups == {"blue": (2, 3), "red": (4, 5)}
    assert planned.match_ranks(0) == (1, (2, 3, 4, 5))


def test_a_match_whose_worker_steps_its_environment_takes_one_rank():
    planned = plan([row(seats("blue"), 2, in_worker=True)], [0] * 3)
    assert [one.role for one in planned.assignments] == ["root", "worker", "worker"]
    assert [planned.match_ranks(match) for match in (0, 1)] == [(1, (1,)), (2, (2,))]
    with pytest.raises(ConfigError, match=r"needs 3 ranks \(1 root \+ 2 workers\), found 2"):
        plan([row(seats("blue"), 2, in_worker=True)], [0] * 2)


def test_matches_stay_inside_nodes_of_any_numbering():
    node_of_rank = [rank % 3 for rank in range(16)]  # ranks dealt to the nodes in turn
    planned = plan([row(DUEL, 3)], node_of_rank)
    assert [nodes_of(planned, match) for match in range(3)] == [{0}, {1}, {2}]


def test_large_matches_get_the_room_that_small_ones_could_do_without():
    # Nodes have 2 and 5 free ranks. First come, first served would put the small match on the large node only if it
    # were full; the large one fits only there.
    planned = plan([row(seats("blue")), row(DUEL)], [0, 0, 0, 1, 1, 1, 1, 1])
    assert nodes_of(planned, 0) == {0}
    assert nodes_of(planned, 1) == {1}
    planned = plan([row(seats("blue")), row(DUEL)], [1, 1, 1, 0, 0, 0, 0, 0])
    assert nodes_of(planned, 0) == {1}
    assert nodes_of(planned, 1) == {0}


def test_a_match_larger_than_every_node_spans_them_and_leaves_the_others_alone():
    planned = plan([row(seats(*["blue"] * 6)), row(seats("red", "red"), 2)], [0] * 4 + [1] * 4 + [2] * 6)
    assert len(nodes_of(planned, 0)) > 1
    assert all(len(nodes_of(planned, match)) == 1 for match in (1, 2))


@pytest.mark.parametrize(
    ("table", "ranks", "message"),
    [
        (
            [row(DUEL)],
            4,
            "this table needs 6 ranks (1 root + 1 environment process + 4 workers), found 4; start",
        ),
        (
            [row(DUEL, 30)],
            150,
            "this table needs 151 ranks (1 root + 30 environment processes + 120 workers), found 150; start",
        ),
        (
            [row(seats("blue"), "auto"), row(seats("red"))],
            1,
            "this table needs 5 ranks (1 root + 2 environment processes + 2 workers), found 1; start",
        ),
    ],
)
def test_too_few_ranks_name_the_needed_number(table, ranks, message):
    with pytest.raises(ConfigError) as refused:
        plan(table, [0] * ranks)
    needed = message.split()[3]
    assert str(refused.value) == f"{message} it with mpirun -n {needed}"


@pytest.mark.parametrize(
    ("table", "ranks", "replicas"),
    [
        ([row(DUEL, "auto")], 6, [1]),
        ([row(DUEL, "auto")], 16, [3]),
        ([row(DUEL, "auto")], 15, [2]),
        ([row(seats("blue"), "auto"), row(seats("red"), "auto")], 11, [3, 2]),
        ([row(DUEL, "auto"), row(seats("red"), "auto")], 12, [1, 3]),  # 4 are left after one each
        ([row(DUEL, "auto"), row(seats("red"), "auto")], 13, [2, 1]),  # 5 are left, and it is the first one's turn
        ([row(DUEL, 2), row(seats("red"), "auto")], 15, [2, 2]),
    ],
)
def test_auto_rows_take_turns(table, ranks, replicas):
    counted = Counter(match.row for match in plan(table, [0] * ranks).matches)
    assert [counted[row] for row in range(len(table))] == replicas


def test_a_hundred_thousand_ranks_are_planned_at_once():
    planned = plan([row(DUEL, "auto")], [rank // 64 for rank in range(100_001)])
    assert len(planned.matches) == 20_000
    assert planned.idle == ()
    # Of 64 ranks a node gives 12 matches and 4 ranks to matches that span nodes.
    assert sum(len(nodes_of(planned, match.index)) == 1 for match in planned.matches) >= 12 * 1562


# Ranks that are gone -----------------------------------------------------------------------------------------------


@given(rows, st.integers(1, 60))
def test_a_reduced_table_fits_and_drops_no_more_than_it_must(table, ranks):
    replicas = reduced(table, ranks)
    needed = 1 + sum(number * size(row) for number, row in zip(replicas, table, strict=True))
    assert needed <= ranks
    planned = plan(table, [0] * ranks, replicas=replicas)
    assert [sum(m.row == row for m in planned.matches) for row in range(len(table))] == replicas
    if ranks >= ranks_needed(table):
        assert replicas == [1 if row.replicas == "auto" else row.replicas for row in table]


def test_the_most_numerous_row_gives_way_first_and_rows_keep_their_places():
    table = [row(DUEL, 3), row(seats("blue"), 1), row(DUEL, 2)]
    assert reduced(table, 27) == [2, 1, 2]
    assert reduced(table, 17) == [1, 1, 1]
    assert reduced(table, 8) == [1, 1, 0]
    assert reduced(table, 1) == [0, 0, 0]
    assert [match.row for match in plan(table, [0] * 8, replicas=[0, 1, 1]).matches] == [1, 2]


def test_spares_are_kept_from_rows_that_take_all_they_get():
    table = [row(seats("blue"), "auto")]
    assert len(plan(table, [0] * 9).matches) == 4
    assert plan(table, [0] * 9, spares=2).idle == (7, 8)
    with pytest.raises(ConfigError, match=r"needs 5 ranks .* 2 spares"):
        plan(table, [0] * 4, spares=2)
