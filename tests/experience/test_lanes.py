"""Lanes that act on request collect the transitions of a plain list, and the columns of a Collector."""

from typing import Any, NamedTuple

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.envs.interface import EntitySpaces
from arena.experience.lanes import LaneColumns
from arena.experience.rollout import Decision, Rollout
from arena.experience.rows import Transitions
from arena.policies.loader import build
from arena.policies.on_policy.returns import advantages

POLE = EntitySpaces("pole", spaces.Box(-9, 9, (4,), np.float32), spaces.Discrete(2))
COUNTER = EntitySpaces("counter", spaces.Box(0, 1e9, (1,), np.float64), spaces.Discrete(10**9))


def arrivals(count: int, seed: int) -> list[dict[str, Any]]:
    """Return what comes to a lane in ``count`` exchanges: episodes of some steps, terminated or truncated."""
    random, found, starts, over, cut = np.random.default_rng(seed), [], True, False, False
    for _ in range(count):
        if over or cut:
            starts, over, cut = True, False, False
        elif not starts and random.random() < 0.2:
            over = bool(random.random() < 0.5)
            cut = not over
        else:
            starts = not found
        done = over or cut
        found.append(
            {
                "observations": random.normal(size=(1, 4)).astype(np.float32),
                "earned": np.array([0.0 if starts else random.normal()]),
                "over": np.array([over]),
                "cut": np.array([cut]),
                "acting": np.array([not done]),
                "starts": np.array([starts]),
            }
        )
        starts = False
    return found


def collected(policy: Any, came: list[dict[str, Any]], horizon: int, updates: int) -> list[Rollout]:
    """Return the rollouts that a collector makes of what comes to one lane."""
    rollouts, rollout, arriving = [], Rollout(POLE, policy.extras, horizon=horizon, lanes=1), iter(came)
    here = slice(0, 1)
    for update in range(updates):
        for slot in range(horizon + 1):
            if slot or not update:
                now = next(arriving)
                rollout.observe(
                    slot,
                    here,
                    now["observations"],
                    now["earned"],
                    now["over"],
                    now["cut"],
                    now["acting"],
                    now["starts"],
                )
            if slot < horizon:
                rollout.decide(slot, here, policy.act(now["observations"], starts=now["starts"], learning=True))
            else:
                rollout.finish(here, policy.bootstrap(now["observations"], starts=now["starts"]))
        rollouts.append(copy_of(rollout))
        rollout.begin()
    return rollouts


def copy_of(rollout: Rollout) -> Rollout:
    found = Rollout(
        POLE, {name: (a.shape[2:], a.dtype) for name, a in rollout.extras.items()}, horizon=rollout.horizon, lanes=1
    )
    for name in ("observations", "actions", "earned", "over", "cut", "void", "acting", "starts"):
        getattr(found, name)[...] = getattr(rollout, name)
    for name in ("rewards", "terminated", "truncated", "valid", "next_slot"):
        getattr(found, name)[...] = getattr(rollout, name)
    for name, array in rollout.extras.items():
        found.extras[name][...] = array
    return found


def test_a_lane_has_the_collectors_columns_bit_for_bit() -> None:
    horizon, updates = 16, 12
    came = arrivals(horizon * updates + 1, seed=3)
    ordinary, acts_on_request = (build("ppo", POLE, {"horizon": horizon}, lanes=1, seed=5) for _ in range(2))
    ordinary.recomputes_outputs = acts_on_request.recomputes_outputs = False
    expected = collected(ordinary, came, horizon, updates)
    columns, rollout = LaneColumns(POLE, acts_on_request.extras, horizon=horizon, lanes=3), None
    lane, rollouts = np.array([1]), []
    for number, now in enumerate(came):
        rollout = rollout or Rollout(POLE, acts_on_request.extras, horizon=horizon, lanes=1)
        columns.observe(
            lane,
            now["observations"],
            *(now[k] for k in ("earned", "over", "cut")),
            np.array([False]),
            now["acting"],
            now["starts"],
        )
        if number and number % horizon == 0:  # the collector decides on the last observation when it has learned
            decision = Decision(np.zeros(1, np.int64), {"value": acts_on_request.bootstrap(now["observations"])})
            columns.decide(lane, decision)
            assert columns.move_full(rollout, 0) == 1
            rollouts.append(rollout)
            rollout = None
            columns.slots[lane] = 1
        columns.decide(lane, acts_on_request.act(now["observations"], starts=now["starts"], learning=True))
    assert len(rollouts) == updates
    for mine, theirs in zip(rollouts, expected, strict=True):
        for name in ("observations", "acting", "starts"):
            np.testing.assert_array_equal(getattr(mine, name), getattr(theirs, name), name)
        for name in ("earned", "over", "void"):  # what came in slot 0 belongs to the rollout before
            np.testing.assert_array_equal(getattr(mine, name)[1:], getattr(theirs, name)[1:], name)
        for name in ("rewards", "terminated", "valid", "next_slot"):
            np.testing.assert_array_equal(getattr(mine, name), getattr(theirs, name), name)
        np.testing.assert_array_equal(mine.cut[1:-1], theirs.cut[1:-1])
        acted = theirs.acting[:-1]
        np.testing.assert_array_equal(mine.actions[:-1][acted], theirs.actions[:-1][acted])
        np.testing.assert_array_equal(mine.extras["value"], theirs.extras["value"])
        np.testing.assert_array_equal(mine.extras["log_prob"][:-1], theirs.extras["log_prob"][:-1])
        for each in (mine, theirs):
            each.advantages = advantages(  # type: ignore[attr-defined]
                *(each.rewards, each.extras["value"], each.terminated, each.truncated, each.valid, each.next_slot),
                gamma=0.99,
                gae_lambda=0.95,
            )
        np.testing.assert_array_equal(mine.advantages, theirs.advantages)  # type: ignore[attr-defined]


class Expected(NamedTuple):
    """A transition: what was seen is a number that no other observation has."""

    began: int
    action: int
    reward: float
    following: int
    terminated: bool


class PlainList:
    """Transitions of the events of one lane, as a list: the oracle."""

    def __init__(self, horizon: int) -> None:
        self.horizon, self.rows = horizon, 0
        self.done: list[tuple[int, Expected]] = []  # with the row in which each began
        self.open: tuple[int, int, int, float] | None = None  # row, observation, action, reward
        self.last: tuple[int, int, int, float] | None = None  # what was open before the last action
        self.taken_back: tuple[int, Expected] | None = None  # what the action completed that was taken back last
        self.episode = 0  # its first row

    def _close(self, reward: float, following: int, terminated: bool) -> None:
        if self.open is not None:
            row, seen, action, before = self.open
            self.done.append((row, Expected(seen, action, before + reward, following, terminated)))
        self.last, self.open, self.taken_back = self.open, None, None

    def act(self, seen: int, action: int, reward: float, *, starts: bool) -> None:
        if starts:
            self.open, self.taken_back, self.episode = None, None, self.rows
        self._close(reward, seen, False)
        self.open = self.rows, seen, action, 0.0
        self.rows += 1

    def end(self, seen: int, reward: float, terminated: bool) -> None:
        self._close(reward, seen, terminated)
        self.rows += 1

    def withdraw(self, *, cut: bool) -> None:
        """Undo the last action; what it completed stays open unless its column is full and sent, or it is truncated."""
        if self.taken_back is not None:
            self.done += [self.taken_back] if cut else []
            self.open = None if cut else self.open
            self.taken_back = None if cut else self.taken_back
            return
        if self.open is None:
            return
        row, gone = self.open[0], self.open[0] % self.horizon == 0
        self.open = None
        if self.last is not None and row > self.last[0] and not gone and not cut:
            self.taken_back = began, ended = self.done.pop()
            self.open = began, ended.began, ended.action, ended.reward

    def void(self) -> None:
        column = max(0, self.rows - 1) // self.horizon
        first = max(self.episode, column * self.horizon)
        if self.rows:
            self.done = [(row, each) for row, each in self.done if row < first]
        self.open = self.taken_back = None
        self.rows += 1

    def full(self) -> list[Expected]:
        columns = max(0, self.rows - 1) // self.horizon
        return [each for row, each in self.done if row < columns * self.horizon]


def check_events(events: list[list[str]], horizon: int) -> None:
    lanes = len(events)
    columns = LaneColumns(COUNTER, {"kept": ((), np.float32)}, horizon=horizon, lanes=lanes)
    oracles = [PlainList(horizon) for _ in range(lanes)]
    found: list[list[Expected]] = [[] for _ in range(lanes)]
    number, alive = 0, [False] * lanes  # whether an episode of the lane is under way
    rollout = Rollout(COUNTER, {"kept": ((), np.float32)}, horizon=horizon, lanes=lanes)
    spots: list[int] = []

    def exchange(lane: int, seen: int, reward: float, **flags: bool) -> None:
        row = {name: np.array([flags.get(name, False)]) for name in ("over", "cut", "void", "acting", "starts")}
        at = np.array([lane])
        columns.observe(at, np.array([[seen]], np.float64), np.array([reward]), **row)
        columns.decide(at, Decision(np.array([seen]), {"kept": np.array([seen], np.float32)}))
        owner = np.flatnonzero(columns.slots > horizon)
        if len(owner):
            rollout.clear()
            assert columns.move_full(rollout, 0) == 1
            spots.append(lane)
            for slot in np.flatnonzero(rollout.valid[:, 0]):
                after = rollout.next_slot[slot, 0]
                seen_at = rollout.observations[:, 0, 0]
                assert rollout.acting[slot, 0]
                assert rollout.extras["kept"][slot, 0] == np.float32(seen_at[slot])
                found[lane].append(
                    Expected(
                        int(seen_at[slot]),
                        int(rollout.actions[slot, 0]),
                        float(rollout.rewards[slot, 0]),
                        int(seen_at[after]),
                        bool(rollout.terminated[slot, 0]),
                    )
                )

    for turn in range(max(map(len, events))):
        for lane in range(lanes):
            if turn >= len(events[lane]):
                continue
            event, oracle, number = events[lane][turn], oracles[lane], number + 1
            reward = float(number % 7) if alive[lane] else 0.0
            if event == "act":
                oracle.act(number, number, reward, starts=not alive[lane])
                exchange(lane, number, reward, acting=True, starts=not alive[lane])
                alive[lane] = True
            elif not alive[lane]:
                continue
            elif event in ("terminate", "truncate"):
                alive[lane] = False
                oracle.end(number, reward, event == "terminate")
                exchange(lane, number, reward, over=event == "terminate", cut=event == "truncate")
            elif event == "void":
                alive[lane] = False
                oracle.void()
                exchange(lane, number, 0.0, void=True)
            else:  # vanish, retry: the last action was never carried out
                alive[lane] = event == "retry"
                oracle.withdraw(cut=event == "vanish")
                columns.withdraw(np.array([lane]), np.array([event == "vanish"]))
    for lane, oracle in enumerate(oracles):
        assert found[lane] == oracle.full()


EVENTS = st.sampled_from(["act"] * 8 + ["terminate", "truncate", "vanish", "retry", "void"])


@settings(max_examples=300, deadline=None)
@given(st.lists(st.lists(EVENTS, max_size=60), min_size=1, max_size=3), st.integers(1, 6))
def test_columns_hold_the_transitions_of_a_plain_list(events: list[list[str]], horizon: int) -> None:
    check_events(events, horizon) if any(events) else None


def test_each_column_is_closed_so_that_rows_of_a_replay_span_no_two_of_them() -> None:
    rows = Transitions(COUNTER, {}, lanes=2, gamma=0.5, n_step=3)
    columns = LaneColumns(COUNTER, {}, horizon=4, lanes=2)
    rollout = Rollout(COUNTER, {}, horizon=4, lanes=2)
    no = np.zeros(2, bool)
    for seen in range(5):
        both = np.array([0, 1])
        observations = np.array([[seen], [100.0 + seen]])
        columns.observe(both, observations, np.ones(2), no, no, no, ~no, no if seen else ~no)
        columns.decide(both, Decision(np.array([seen, seen]), {}))
    assert columns.move_full(rollout, 0) == 2
    found = rows.rows(rollout)
    assert found["observation.0"][:, 0].tolist() == [0, 1, 2, 3, 100, 101, 102, 103]
    assert found["next.0"][:, 0].tolist() == [3, 4, 4, 4, 103, 104, 104, 104]
    assert found["discount"].tolist() == [0.125, 0.125, 0.25, 0.5] * 2
    rollout.clear()
    assert not len(rows.rows(rollout))


def test_columns_that_are_not_full_are_learned_from_once_and_go_on() -> None:
    columns, no = LaneColumns(COUNTER, {}, horizon=8, lanes=3), np.array([False])
    rollout = Rollout(COUNTER, {}, horizon=8, lanes=6)

    def act(lane: int, seen: float) -> None:
        columns.observe(np.array([lane]), np.array([[seen]]), np.ones(1), no, no, no, ~no, np.array([seen == 0]))
        columns.decide(np.array([lane]), Decision(np.array([int(seen)]), {}))

    def learned() -> list[tuple[int, int]]:
        slots, lanes = np.nonzero(rollout.valid)
        seen = rollout.observations[..., 0]
        found = zip(seen[slots, lanes], seen[rollout.next_slot[slots, lanes], lanes], strict=True)
        return sorted((int(here), int(there)) for here, there in found)

    for seen in range(3):
        act(0, seen)
    act(2, 100)
    assert columns.filled == 2
    assert columns.move_all(rollout, 0) == 1
    assert learned() == [(0, 1), (1, 2)]
    assert rollout.truncated[1, 0]
    assert int(rollout.acting[:8].sum()) == 2
    rollout.clear()
    for seen in range(3, 11):  # from the last observation on, which is in slot 0 now
        act(0, seen)
    assert columns.move_full(rollout, 0) == 1
    act(2, 101)
    assert columns.move_all(rollout, 1) == 1
    assert learned() == [*((seen, seen + 1) for seen in range(2, 10)), (100, 101)]
    rows = Transitions(COUNTER, {}, lanes=6, gamma=0.5, n_step=3)
    assert len(rows.rows(rollout)) == len(learned())
    rollout.clear()
    assert not len(rows.rows(rollout))


def test_a_full_column_must_be_moved_before_its_lane_goes_on() -> None:
    columns, no, one = LaneColumns(COUNTER, {}, horizon=1, lanes=2), np.array([False]), np.array([1])
    for _ in range(2):
        columns.observe(one, np.zeros((1, 1)), np.zeros(1), no, no, no, ~no, no)
    with pytest.raises(RuntimeError, match="lane 1 has a full column"):
        columns.observe(one, np.zeros((1, 1)), np.zeros(1), no, no, no, ~no, no)
