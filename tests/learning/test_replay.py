"""If these fail, workers learn too often or too rarely, or from rows that are not those they have collected."""

import numpy as np
import pytest
from gymnasium import spaces as gym_spaces

from arena.common.errors import ConfigError
from arena.envs.interface import EntitySpaces
from arena.learning.feed import ReplayFeed
from arena.learning.pace import Pace
from arena.learning.replay import Replay
from arena.learning.rollout import Rollout
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
    pace = Pace(ratio=ratio, batch_size=64, warmup=100)
    random, stored, total = np.random.default_rng(0), 0, 0
    while pace.collected < 3_000_000:
        fresh = int(random.integers(0, 4000))
        stored = min(stored + fresh, 1000)
        total += pace.burst(Alone(), fresh, stored).steps
        assert pace.steps == total
    assert total == int(round(ratio * (pace.collected - pace.free), 6))


def test_what_is_collected_to_warm_up_pays_for_nothing_after_a_loss_of_the_replay_too():
    pace = Pace(ratio=1, batch_size=8, warmup=10)
    assert [pace.burst(Alone(), 4, stored).steps for stored in (4, 8)] == [0, 0] and pace.warming_up
    assert [pace.burst(Alone(), 4, stored).steps for stored in (12, 16)] == [4, 4] and not pace.warming_up
    again = Pace(ratio=1, batch_size=8, warmup=10)
    again.load_state(pace.state())
    assert [again.burst(Alone(), 4, stored).steps for stored in (4, 8, 12)] == [0, 0, 4] and not again.warming_up


def test_workers_share_a_batch_and_one_without_rows_has_no_part_in_it():
    def work(stored):
        def call(group):
            return Pace(ratio=1, batch_size=10, warmup=1).burst(group, 3, stored[group.rank])

        return Lockstep(len(stored)).run(call)

    assert [(burst.steps, burst.rows) for burst in work([5, 0, 5])] == [(9, 5), (9, 0), (9, 5)]
    assert [burst.rows for burst in work([5, 5, 5])] == [3, 4, 3]


class Settings:
    gamma, n_step, capacity, batch_size, ratio, warmup = 0.9, 2, 40, 8, 0.5, 16


SPACES = EntitySpaces("a", gym_spaces.Box(-9, 9e9, (1,)), gym_spaces.Discrete(9))


def collect(feed, group, rollouts, lanes):
    """Feed rollouts of four slots; return the steps that each has paid for."""
    rollout, paid, row = Rollout(SPACES, {}, horizon=4, lanes=lanes), [], np.zeros(lanes, bool)
    for number in range(rollouts):
        for slot in range(0 if number == 0 else 1, 5):
            values = np.full((lanes, 1), float(number * 4 + slot), np.float32)
            rollout.observe(slot, slice(0, lanes), values, np.ones(lanes), row, row, ~row, row)
            if slot < 4:
                rollout.decide(slot, slice(0, lanes), Decision(np.zeros(lanes, np.int64), {}))
        batches = [batch.copy() for batch in feed.minibatches(rollout, group)]
        assert all((batch["discount"] == np.float32(0.81)).all() for batch in batches)
        paid.append((len(batches), sorted({len(batch) for batch in batches})))
        rollout.begin()
    return paid


def test_one_worker_of_four_lanes_pays_for_the_same_steps_as_two_of_two():
    def work(lanes):
        feed = lambda: ReplayFeed(SPACES, {}, Settings(), lanes=lanes, random=np.random.default_rng(1))  # noqa: E731
        return lambda group: collect(feed(), group, 6, lanes)

    (alone,) = Lockstep(1).run(work(4))
    both = Lockstep(2).run(work(2))
    assert alone == [(0, []), *[(8, [8])] * 5]
    assert both == [[(0, []), *[(8, [4])] * 5]] * 2


def test_a_feed_goes_on_where_it_was_stored():
    def feed():
        return ReplayFeed(SPACES, {}, Settings(), lanes=2, random=np.random.default_rng(1))

    first, second = feed(), feed()
    assert first.state() == {} and len(first) == 0
    collect(first, Alone(), 7, 2)
    second.load_state({name: array.copy() for name, array in first.state().items()})
    second.pace.load_state(first.pace.state())
    assert collect(second, Alone(), 1, 2) == [(4, [8])]
    assert len(second) == len(first) == 40
