"""If these fail, workers learn too often or too rarely, or from rows that are not those they have collected."""

import math

import numpy as np
import pytest
from gymnasium import spaces as gym_spaces

from arena.common.errors import ConfigError
from arena.envs.interface import EntitySpaces
from arena.experience.feed import ReplayFeed
from arena.experience.replay import Replay
from arena.experience.rollout import Rollout
from arena.experience.rows import Transitions
from arena.experience.sum_tree import SumTree
from arena.experience.update_ratio import UpdateRatio
from arena.policies.interface import Decision
from arena.policies.local import Alone, Lockstep

DTYPE = np.dtype([("a", np.float32), ("b", np.uint8, (3,))], align=True)


def rows(*numbers):
    found = np.zeros(len(numbers), DTYPE)
    found["a"], found["b"] = numbers, np.array(numbers)[:, None]
    return found


def held(replay):
    out = np.zeros(len(replay), DTYPE)
    replay.take(np.arange(len(replay)), out)
    assert (out["b"] == out["a"][:, None]).all()
    return sorted(out["a"].tolist())


def test_the_oldest_rows_make_room():
    replay = Replay(DTYPE, 5)
    assert len(replay) == 0
    replay.append(rows(1, 2, 3))
    assert held(replay) == [1, 2, 3]
    replay.append(rows(4, 5, 6, 7))
    assert held(replay) == [3, 4, 5, 6, 7]
    replay.append(rows(*range(10, 23)))
    assert held(replay) == [18, 19, 20, 21, 22]
    replay.append(rows(30))
    assert held(replay) == [19, 20, 21, 22, 30]


def test_places_are_drawn_evenly():
    replay = Replay(DTYPE, 8)
    replay.append(rows(*range(11)))
    places = replay.draw(1000, 32, np.random.default_rng(0))
    counts = np.bincount(places.ravel(), minlength=8)
    assert places.shape == (1000, 32) and len(counts) == 8 and abs(counts / 4000 - 1).max() < 0.1


@pytest.mark.parametrize("appended", [3, 5, 12])
def test_a_replay_goes_on_where_it_was_stored_also_with_another_capacity(appended):
    replay, same, smaller, larger = (Replay(DTYPE, capacity) for capacity in (5, 5, 2, 9))
    replay.append(rows(*range(appended)))
    for other in (same, smaller, larger):
        other.load_state({name: array.copy() for name, array in replay.state().items()})
    assert held(smaller) == [appended - 2, appended - 1] and held(larger) == held(replay)
    for other in (replay, same):
        other.append(rows(100, 101, 102, 103))
    assert (replay.state()["rows"] == same.state()["rows"]).all() and replay.appended == same.appended
    larger.append(rows(200))
    assert held(larger)[-1] == 200 and len(larger) == min(appended, 5) + 1


def test_a_stored_replay_of_other_rows_is_refused():
    replay = Replay(np.dtype([("a", np.float64, (9,))]), 5)
    replay.append(np.zeros(2, np.dtype([("a", np.float64, (9,))])))
    with pytest.raises(ConfigError, match="expected rows of 8 bytes, found 72"):
        Replay(DTYPE, 5).load_state(replay.state())


@pytest.mark.parametrize("ratio", [0.29, 1 / 3, 1.0, 2.5])
def test_gradient_steps_per_transition_are_exact(ratio):
    pace = UpdateRatio(ratio=ratio, batch_size=64, warmup=100)
    random, stored, total = np.random.default_rng(0), 0, 0
    while pace.collected < 3_000_000:
        fresh = int(random.integers(0, 4000))
        stored = min(stored + fresh, 1000)
        total += pace.burst(Alone(), fresh, stored).steps
        assert pace.steps == total
    assert total == int(round(ratio * (pace.collected - pace.free), 6))


def test_what_is_collected_to_warm_up_pays_for_nothing_after_a_loss_of_the_replay_too():
    pace = UpdateRatio(ratio=1, batch_size=8, warmup=10)
    assert [pace.burst(Alone(), 4, stored).steps for stored in (4, 8)] == [0, 0] and pace.warming_up
    assert [pace.burst(Alone(), 4, stored).steps for stored in (12, 16)] == [4, 4] and not pace.warming_up
    again = UpdateRatio(ratio=1, batch_size=8, warmup=10)
    again.load_state(pace.state())
    assert [again.burst(Alone(), 4, stored).steps for stored in (4, 8, 12)] == [0, 0, 4] and not again.warming_up


def test_workers_share_a_batch_and_one_without_rows_has_no_part_in_it():
    def work(stored):
        def call(group):
            return UpdateRatio(ratio=1, batch_size=10, warmup=1).burst(group, 3, stored[group.rank])

        return Lockstep(len(stored)).run(call)

    assert [(burst.steps, burst.rows) for burst in work([5, 0, 5])] == [(9, 5), (9, 0), (9, 5)]
    assert [burst.rows for burst in work([5, 5, 5])] == [3, 4, 3]


class Settings:
    gamma, n_step, capacity, batch_size, ratio, warmup = 0.9, 2, 40, 8, 0.5, 16


SPACES = EntitySpaces("a", gym_spaces.Box(-9, 9e9, (1,)), gym_spaces.Discrete(9))


def transitions_of(lanes):
    return Transitions(SPACES, {}, lanes=lanes, gamma=Settings.gamma, n_step=Settings.n_step)


def collect(feed, group, rollouts, lanes):
    """Feed rollouts of four slots; return the steps that each has paid for."""
    rollout, paid, row = Rollout(SPACES, {}, horizon=4, lanes=lanes), [], np.zeros(lanes, bool)
    for number in range(rollouts):
        for slot in range(0 if number == 0 else 1, 5):
            values = np.full((lanes, 1), float(number * 4 + slot), np.float32)
            rollout.observe(slot, slice(0, lanes), values, np.ones(lanes), row, row, ~row, row)
            if slot < 4:
                rollout.decide(slot, slice(0, lanes), Decision(np.zeros(lanes, np.int64), {}))
        feed.store(rollout, group)
        batches = [batch.rows.copy() for batch in feed.minibatches(group)]
        assert all((batch["discount"] == np.float32(0.81)).all() for batch in batches)
        paid.append((len(batches), sorted({len(batch) for batch in batches})))
        rollout.begin()
    return paid


def test_one_worker_of_four_lanes_pays_for_the_same_steps_as_two_of_two():
    def work(lanes):
        feed = lambda: ReplayFeed(transitions_of(lanes), Settings(), random=np.random.default_rng(1))  # noqa: E731
        return lambda group: collect(feed(), group, 6, lanes)

    (alone,) = Lockstep(1).run(work(4))
    both = Lockstep(2).run(work(2))
    assert alone == [(0, []), *[(8, [8])] * 5]
    assert both == [[(0, []), *[(8, [4])] * 5]] * 2


def test_a_feed_goes_on_where_it_was_stored():
    def feed():
        return ReplayFeed(transitions_of(2), Settings(), random=np.random.default_rng(1))

    first, second = feed(), feed()
    assert first.state() == {} and len(first) == 0
    collect(first, Alone(), 7, 2)
    second.load_state({name: array.copy() for name, array in first.state().items()})
    second.pace.load_state(first.pace.state())
    assert collect(second, Alone(), 1, 2) == [(4, [8])]
    assert len(second) == len(first) == 40


@pytest.mark.parametrize("places", [1, 2, 7, 64, 100])
def test_a_sum_tree_is_what_brute_force_finds(places):
    random = np.random.default_rng(places)
    tree, priorities = SumTree(places), np.zeros(places)
    assert tree.total == 0 and tree.least == math.inf
    for _ in range(200):
        some = random.integers(0, places, random.integers(1, 9))
        values = random.random(len(some)) * 10.0 ** random.integers(-6, 6)
        tree.set(some, values)
        priorities[some] = values
        assert math.isclose(tree.total, priorities.sum()) and tree.least == priorities[priorities > 0].min()
        assert (tree.get(np.arange(places)) == priorities).all()
        edges = np.cumsum(priorities)
        targets = random.random(50) * tree.total
        near = np.abs(edges[:, None] - targets).min(0) < 1e-9 * tree.total  # where rounding may decide otherwise
        expected = np.searchsorted(edges, targets, side="right")
        found = tree.find(targets)
        assert (found[~near] == expected[~near]).all() and (priorities[found] > 0).all()
    assert priorities[tree.find(np.array([tree.total * (1 + 1e-12)]))] > 0


def test_rows_are_drawn_by_their_priorities_with_the_weights_of_cpprb():
    errors, random = np.random.default_rng(0).random(64) * 10, np.random.default_rng(0)
    replay = Replay(np.dtype([("a", np.float32)]), 64, alpha=0.6)
    replay.append(np.zeros(64, [("a", np.float32)]))
    replay.set_errors(np.arange(64), errors)
    drawn = np.bincount(np.concatenate([replay.draw_by_priority(64, random) for _ in range(2000)]), minlength=64)
    assert np.abs(drawn / (64 * 2000 * replay.shares(np.arange(64))) - 1).max() < 0.1
    cpprb = pytest.importorskip("cpprb")
    buffer = cpprb.PrioritizedReplayBuffer(64, {"a": {}}, alpha=0.6, eps=1e-6)
    buffer.add(a=np.zeros(64))
    buffer.update_priorities(np.arange(64), errors)
    sample = buffer.sample(64, beta=0.4)
    weights = (replay.least_share / replay.shares(np.arange(64))) ** 0.4
    assert np.allclose(sample["weights"], weights[sample["indexes"]], rtol=1e-3)


def test_priorities_go_on_where_they_were_stored():
    first, second = (Replay(DTYPE, 5, alpha=0.6) for _ in range(2))
    first.append(rows(*range(8)))
    first.set_errors(np.array([1, 0]), np.array([5.0, -0.1]))
    second.load_state({name: array.copy() for name, array in first.state().items()})
    for replay in (first, second):
        replay.append(rows(9))
    assert (first.shares(np.arange(5)) == second.shares(np.arange(5))).all()
    assert len(set(first.shares(np.arange(5)).tolist())) == 3


def test_weights_make_up_for_priorities_over_all_workers():
    """A row's probability times its weight is the same for all rows of all workers: the mean is that of them all."""

    def work(group):
        feed = ReplayFeed(transitions_of(2), Settings(), random=np.random.default_rng(group.rank), priority=1.0)
        rollout, no = Rollout(SPACES, {}, horizon=16, lanes=2), np.zeros(2, bool)
        found = []
        for slot in range(17):
            values = np.full((2, 1), float(slot), np.float32)
            rollout.observe(slot, slice(0, 2), values, np.ones(2), no, no, ~no, no)
        for number in range(2):
            feed.store(rollout, group)
            for batch in feed.minibatches(group):
                if number:
                    found.append(feed._replay.shares(feed._places) * batch.weights)
                else:
                    errors = np.random.default_rng(group.rank).random(len(batch.rows)) * (1 + 9 * group.rank)
                    feed.set_errors(errors)
        # What was set in the first burst stays as it is in the second.
        return np.concatenate(found)

    first, second = Lockstep(2).run(work)
    assert np.allclose(first, first[0]) and np.allclose(second, first[0])
