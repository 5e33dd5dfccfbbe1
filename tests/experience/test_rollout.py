"""If these fail, policies learn from transitions that never happened, or miss some that did."""

import numpy as np
import pytest
from gymnasium import spaces as gym_spaces

from arena.envs.interface import EntitySpaces
from arena.experience.rollout import Rollout
from arena.policies.interface import Decision

SPACES = EntitySpaces("a", gym_spaces.Box(-9, 99, (1,)), gym_spaces.Discrete(9))
EXTRAS = {"value": ((), np.float32)}


def make(horizon, lanes, spaces=SPACES):
    return Rollout(spaces, EXTRAS, horizon=horizon, lanes=lanes)


def tell(rollout, slot, record, lanes=None, **more):
    """Observe (observation, reward, terminated, truncated, acting, starts) of each lane."""
    lanes = lanes or slice(0, rollout.lanes)
    observation, reward, terminated, truncated, acting, starts = map(np.array, zip(*record, strict=True))
    flags = [flag.astype(bool) for flag in (terminated, truncated, acting, starts)]
    rollout.observe(slot, lanes, observation[:, None].astype(np.float32), reward.astype(np.float64), *flags, **more)


def choose(rollout, slot, action, lanes=None):
    lanes = lanes or slice(0, rollout.lanes)
    count = len(range(rollout.lanes)[lanes])
    rollout.decide(slot, lanes, Decision(np.full(count, action), {"value": np.full(count, 10.0 * action)}))


def lane(rollout, name, index=0):
    return getattr(rollout, name)[:, index].tolist()


def test_an_episode_that_ends_leaves_one_slot_without_transition():
    rollout = make(4, 1)
    tell(rollout, 0, [(0, 0, 0, 0, 1, 1)])
    tell(rollout, 1, [(1, 5, 0, 0, 1, 0)])
    tell(rollout, 2, [(2, 6, 1, 0, 0, 0)])  # the final observation: nobody acts on it
    tell(rollout, 3, [(3, 0, 0, 0, 1, 1)])  # the next episode's first
    tell(rollout, 4, [(4, 7, 0, 1, 0, 0)])
    assert lane(rollout, "valid") == [True, True, False, True]
    assert lane(rollout, "rewards") == [5, 6, 0, 7]
    assert lane(rollout, "terminated") == [False, True, False, False]
    assert lane(rollout, "truncated") == [False, False, False, True]
    assert lane(rollout, "next_slot") == [1, 2, 3, 4]
    assert rollout.observations[:, 0, 0].tolist() == [0, 1, 2, 3, 4]


def test_mixed_lanes_are_kept_apart():
    rollout = make(2, 3)
    tell(rollout, 0, [(0, 0, 0, 0, 1, 1)] * 3)
    tell(rollout, 1, [(1, 1, 0, 0, 1, 0), (1, 2, 1, 0, 0, 0), (1, 3, 0, 1, 0, 0)])
    tell(rollout, 2, [(2, 4, 0, 0, 1, 0), (2, 0, 0, 0, 1, 1), (2, 0, 0, 0, 1, 1)])
    assert rollout.valid.tolist() == [[True] * 3, [True, False, False]]
    assert rollout.rewards.tolist() == [[1, 2, 3], [4, 0, 0]]


def test_turn_based_rewards_go_to_the_action_that_earned_them():
    rollout = make(5, 2)
    tell(rollout, 0, [(0, 0, 0, 0, 1, 1), (0, 0, 0, 0, 0, 1)])
    tell(rollout, 1, [(1, 0, 0, 0, 0, 0), (1, 0, 0, 0, 1, 0)])
    tell(rollout, 2, [(2, 3, 0, 0, 1, 0), (2, 0, 0, 0, 0, 0)])
    tell(rollout, 3, [(3, 1, 1, 0, 0, 0), (3, -1, 1, 0, 0, 0)])
    tell(rollout, 4, [(4, 0, 0, 0, 1, 1), (4, 0, 0, 0, 0, 1)])
    tell(rollout, 5, [(5, 0, 0, 0, 0, 0), (5, 0, 0, 0, 1, 0)])
    assert lane(rollout, "valid") == [True, False, True, False, False]
    assert lane(rollout, "rewards") == [3, 0, 1, 0, 0]
    assert lane(rollout, "terminated") == [False, False, True, False, False]
    assert rollout.next_slot[0, 0] == 2 and rollout.next_slot[2, 0] == 3
    assert lane(rollout, "valid", 1) == [False, True, False, False, False]
    assert lane(rollout, "rewards", 1) == [0, -1, 0, 0, 0]
    assert rollout.next_slot[1, 1] == 3


def test_rewards_while_waiting_are_collected():
    rollout = make(3, 1)
    tell(rollout, 0, [(0, 0, 0, 0, 1, 1)])
    tell(rollout, 1, [(1, 2, 0, 0, 0, 0)])
    tell(rollout, 2, [(2, 3, 0, 0, 0, 0)])
    tell(rollout, 3, [(3, 4, 0, 0, 1, 0)])
    assert lane(rollout, "rewards") == [9, 0, 0]
    assert lane(rollout, "valid") == [True, False, False]


def test_an_action_whose_outcome_is_not_known_at_the_end_does_not_count():
    rollout = make(2, 1)
    tell(rollout, 0, [(0, 0, 0, 0, 1, 1)])
    tell(rollout, 1, [(1, 0, 0, 0, 1, 0)])
    tell(rollout, 2, [(2, 0, 0, 0, 0, 0)])
    assert lane(rollout, "valid") == [True, False]
    rollout.begin()
    tell(rollout, 1, [(3, 50, 0, 0, 1, 0)])  # and its reward is nobody's in the next rollout
    tell(rollout, 2, [(4, 1, 0, 0, 1, 0)])
    assert lane(rollout, "valid") == [False, True]
    assert lane(rollout, "rewards") == [0, 1]


def test_the_next_rollout_begins_with_the_last_observation_and_nothing_else():
    rollout = make(2, 2)
    tell(rollout, 0, [(0, 0, 0, 0, 1, 1)] * 2)
    choose(rollout, 0, 1)
    tell(rollout, 1, [(1, 1, 0, 0, 1, 0)] * 2)
    choose(rollout, 1, 2)
    tell(rollout, 2, [(2, 1, 0, 0, 1, 0), (3, 1, 1, 0, 0, 0)])
    rollout.finish(slice(0, 2), np.array([7.0, 8.0]))
    assert rollout.extras["value"].tolist() == [[10, 10], [20, 20], [7, 8]]
    assert rollout.actions[:2].tolist() == [[1, 1], [2, 2]]
    rollout.begin()
    assert rollout.observations[0, :, 0].tolist() == [2, 3]
    assert rollout.acting[0].tolist() == [True, False]
    assert not rollout.valid.any() and not rollout.rewards.any()
    tell(rollout, 1, [(4, 9, 0, 0, 1, 0), (0, 0, 0, 0, 1, 1)])
    tell(rollout, 2, [(5, 1, 0, 0, 1, 0)] * 2)
    assert rollout.rewards[0].tolist() == [9, 0]
    assert rollout.valid[0].tolist() == [True, False]


def test_a_restart_in_the_middle_drops_the_open_transition():
    rollout = make(2, 1)
    tell(rollout, 0, [(0, 0, 0, 0, 1, 1)])
    tell(rollout, 1, [(1, 5, 0, 0, 1, 1)])
    tell(rollout, 2, [(2, 6, 0, 0, 1, 0)])
    assert lane(rollout, "valid") == [False, True]
    assert lane(rollout, "rewards") == [0, 6]


def test_the_outcome_of_a_crash_is_not_learned_from():
    rollout = make(1, 2)
    tell(rollout, 0, [(0, 0, 0, 0, 1, 1)] * 2)
    tell(rollout, 1, [(1, 5, 0, 1, 0, 0)] * 2, void=np.array([True, False]))
    assert rollout.valid.tolist() == [[False, True]]


def test_what_came_before_a_crash_in_the_same_episode_is_not_learned_from_either():
    rollout = make(4, 1)
    tell(rollout, 0, [(0, 0, 0, 0, 1, 0)])
    tell(rollout, 1, [(1, 1, 1, 0, 0, 0)])  # an episode that ends well
    tell(rollout, 2, [(2, 0, 0, 0, 1, 1)])
    tell(rollout, 3, [(3, 1, 0, 0, 1, 0)])
    tell(rollout, 4, [(4, 0, 0, 1, 0, 0)], void=np.array([True]))
    assert lane(rollout, "valid") == [True, False, False, False]


def test_a_crash_while_another_entity_is_at_turn_leaves_no_open_transition():
    rollout = make(3, 1)
    tell(rollout, 0, [(0, 0, 0, 0, 1, 1)])
    tell(rollout, 1, [(1, 0, 0, 0, 0, 0)])  # the opponent is at turn
    tell(rollout, 2, [(1, 0, 0, 1, 0, 0)], void=np.array([True]))
    tell(rollout, 3, [(5, 0, 0, 0, 1, 1)])
    assert lane(rollout, "valid") == [False, False, False]
    rollout.begin()
    for slot in (1, 2, 3):
        tell(rollout, slot, [(6, 2, 0, 0, 1, 0)])
    assert lane(rollout, "rewards") == [2, 2, 2]


def test_batches_of_lanes_arrive_on_their_own():
    rollout = make(2, 4)
    for batch in (slice(0, 2), slice(2, 4)):
        tell(rollout, 0, [(batch.start, 0, 0, 0, 1, 1)] * 2, batch)
        choose(rollout, 0, batch.start, batch)
    for batch in (slice(2, 4), slice(0, 2)):
        tell(rollout, 1, [(9, batch.start, 1, 0, 0, 0), (9, 1, 0, 0, 1, 0)], batch)
    tell(rollout, 2, [(9, 0, 0, 0, 1, 0)] * 2, slice(2, 4))
    assert not rollout.valid[:, :2].any()  # this batch's last record is still under way
    tell(rollout, 2, [(9, 0, 0, 0, 1, 0)] * 2, slice(0, 2))
    assert rollout.rewards[0].tolist() == [0, 1, 2, 1]
    assert rollout.terminated[0].tolist() == [True, False, True, False]
    assert rollout.actions[0].tolist() == [0, 0, 2, 2]


def test_nested_spaces_and_masks_are_stored_leaf_by_leaf():
    observation = gym_spaces.Dict(
        image=gym_spaces.Box(0, 255, (2, 2), np.uint8), rest=gym_spaces.Tuple([gym_spaces.Discrete(5)])
    )
    rollout = make(1, 2, EntitySpaces("a", observation, gym_spaces.Discrete(3), 3))
    no = np.zeros(2, bool)
    seen = {"image": np.full((2, 2, 2), 7, np.uint8), "rest": (np.array([3, 4]),)}
    mask = np.array([[1, 0, 1], [0, 1, 0]], np.int8)
    rollout.observe(0, slice(0, 2), seen, np.zeros(2), no, no, ~no, ~no, mask)
    assert rollout.observations["image"].dtype == np.uint8 and rollout.observations["image"].shape == (2, 2, 2, 2)
    assert rollout.observations["image"][0].min() == 7
    assert rollout.observations["rest"][0][0].tolist() == [3, 4]
    assert rollout.action_mask[0].tolist() == mask.tolist()
    rollout.observe(1, slice(0, 2), seen, np.zeros(2), no, no, ~no, no, 1 - mask)
    rollout.begin()
    assert rollout.action_mask[0].tolist() == (1 - mask).tolist()


@pytest.mark.parametrize("seed", range(5))
def test_no_reward_is_lost_or_counted_twice(seed):
    """Over several rollouts of a game in which every entity always acts, stored rewards add up to those received."""
    rng = np.random.default_rng(seed)
    rollout, over, received, stored = make(7, 3), np.zeros(3, bool), 0.0, 0.0
    no = np.zeros(3, bool)
    rollout.observe(0, slice(0, 3), np.zeros((3, 1)), np.zeros(3), no, no, ~no, ~no)
    for _ in range(6):
        for slot in range(1, 8):
            starts, over = over, (rng.random(3) < 0.3) & ~over
            rewards = np.where(starts, 0.0, rng.integers(1, 9, 3))
            received += rewards.sum()
            rollout.observe(slot, slice(0, 3), np.zeros((3, 1)), rewards, over, no, ~over, starts)
        stored += rollout.rewards.sum()
        rollout.begin()
    assert stored == received


@pytest.mark.parametrize("lanes", [(2,), (1, 3, 2)], ids=str)
def test_rollouts_travel_as_bytes_and_lie_side_by_side(lanes):
    spaces = EntitySpaces("a", gym_spaces.Dict(x=SPACES.observation, y=gym_spaces.Discrete(3)), SPACES.action, 9)
    random = np.random.default_rng(0)
    sent = [make(3, count, spaces) for count in lanes]
    for rollout in sent:
        rollout.buffer[:] = random.integers(0, 2, rollout.buffer.nbytes)
    arrived = [Rollout(spaces, EXTRAS, horizon=3, lanes=each.lanes, memory=np.zeros_like(each.buffer)) for each in sent]
    joined, first = make(3, sum(lanes), spaces), 0
    for theirs, mine in zip(arrived, sent, strict=True):
        theirs.buffer[:] = mine.buffer
        joined.take_lanes(theirs, first)
        for name in (
            "acting",
            "starts",
            "earned",
            "over",
            "cut",
            "void",
            "rewards",
            "valid",
            "next_slot",
            "action_mask",
        ):
            found = getattr(joined, name)[:, first : first + mine.lanes]
            np.testing.assert_array_equal(found, getattr(mine, name), err_msg=name)
        for key in "xy":
            found = joined.observations[key][:, first : first + mine.lanes]
            np.testing.assert_array_equal(found, mine.observations[key])
        np.testing.assert_array_equal(joined.extras["value"][:, first : first + mine.lanes], mine.extras["value"])
        first += mine.lanes
    last = sent[0]
    joined = make(3, last.lanes, spaces)
    joined.begin(last)
    np.testing.assert_array_equal(joined.observations["x"][0], last.observations["x"][3])
    np.testing.assert_array_equal(joined.acting[0], last.acting[3])
    np.testing.assert_array_equal(joined.action_mask[0], last.action_mask[3])
    assert not joined.valid.any()
