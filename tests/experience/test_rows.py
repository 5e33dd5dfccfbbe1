"""If these fail, off-policy algorithms learn from transitions that never happened, or miss some that did."""

from typing import NamedTuple

import numpy as np
from gymnasium import spaces as gym_spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.envs.interface import EntitySpaces
from arena.experience.rollout import Rollout
from arena.experience.rows import Transitions
from arena.policies.interface import Decision

SPACES = EntitySpaces("a", gym_spaces.Box(-9, 9e9, (1,), np.float64), gym_spaces.Discrete(9), mask_size=2)
EXTRAS = {"choice": ((), np.int64)}
GAMMA = 0.5


class Slot(NamedTuple):
    """Data of one lane in one slot."""

    reward: float = 0.0
    over: bool = False
    cut: bool = False
    acting: bool = True
    starts: bool = False
    void: bool = False


def rows_of(lanes, horizon, n_step):
    """Feed slots ``[lanes][slots]`` in rollouts of a horizon; return rows as tuples, and the transitions used."""
    count = len(lanes)
    transitions = Transitions(SPACES, EXTRAS, lanes=count, gamma=GAMMA, n_step=n_step)
    rollout, found = Rollout(SPACES, EXTRAS, horizon=horizon, lanes=count), []
    everything = slice(0, count)

    def observe(slot, time):
        now = [lane[time] for lane in lanes]
        column = lambda name, dtype=bool: np.array([getattr(one, name) for one in now], dtype)  # noqa: E731
        rollout.observe(
            slot,
            everything,
            np.array([[100.0 * lane + time] for lane in range(count)]),
            column("reward", np.float64),
            column("over"),
            column("cut"),
            column("acting"),
            column("starts"),
            np.array([[time, lane] for lane in range(count)], np.int8),
            column("void"),
        )

    observe(0, 0)
    for first in range(0, len(lanes[0]) - horizon, horizon):
        for slot in range(horizon):
            actions = np.array([100 * lane + first + slot for lane in range(count)])
            rollout.decide(slot, everything, Decision(actions * 0, {"choice": actions}))
            observe(slot + 1, first + slot + 1)
        for row in transitions.rows(rollout):
            assert row["observation.0"][0] == row["choice"]
            assert row["next_mask"].tolist() == [row["next.0"][0] % 100, row["next.0"][0] // 100]
            found.append((int(row["choice"]), int(row["next.0"][0]), float(row["reward"]), float(row["discount"])))
        rollout.begin()
    return found


def expected(lanes, end, n_step):
    """Return what ``rows_of`` should, by looking ahead from each action."""
    found = []
    for number, lane in enumerate(lanes):
        for begin in range(end):
            if not lane[begin].acting:
                continue
            reward, spanned = 0.0, 0
            for time in range(begin + 1, end + 1):
                slot = lane[time]
                if slot.starts or slot.void:
                    break
                reward += GAMMA**spanned * slot.reward
                if slot.acting or slot.over or slot.cut:
                    spanned += 1
                    if slot.over or slot.cut or spanned == n_step:
                        discount = 0.0 if slot.over else GAMMA**spanned
                        found.append((100 * number + begin, 100 * number + time, reward, discount))
                        break
    return found


@st.composite
def histories(draw):
    """Two lanes of 37 slots with ends, cuts, accidents and waiting."""

    def lane():
        slots, starts = [], True
        while len(slots) < 37:
            kind = draw(st.sampled_from(["act", "act", "act", "wait", "over", "cut", "void"]))
            reward = 0.0 if starts else draw(st.integers(-8, 8))
            if kind in ("act", "wait") or starts:
                slots.append(Slot(reward, acting=kind != "wait", starts=starts))
                starts = False
            elif kind == "void":
                slots.append(Slot(0.0, cut=True, acting=False, void=True))
                starts = True
            else:
                slots.append(Slot(reward, over=kind == "over", cut=kind == "cut", acting=False))
                starts = True
        return slots

    return [lane(), lane()]


@settings(max_examples=300, deadline=None)
@given(histories(), st.integers(1, 9), st.integers(1, 5))
def test_rows_are_those_of_a_reference_however_the_slots_are_split_into_rollouts(lanes, horizon, n_step):
    end = (len(lanes[0]) - 1) // horizon * horizon
    found = rows_of(lanes, horizon, n_step)
    assert sorted(found) == sorted(expected(lanes, end, n_step))


def test_the_value_of_a_chain_that_is_cut_every_five_steps_is_that_of_the_endless_one():
    """With 1 per step and a discount of one half, the endless chain is worth 2 everywhere."""
    one_episode = [Slot(starts=True), *[Slot(1.0)] * 4, Slot(1.0, cut=True, acting=False)]
    for n_step in (1, 3):
        rows = rows_of([(one_episode * 7)[:37]], 4, n_step)
        assert len(rows) > 20
        value = 0.0
        for _ in range(60):  # every observation has the same value, and so is what follows a cut
            value = np.mean([reward + discount * value for _, _, reward, discount in rows])
        assert abs(value - 2) < 1e-6


def test_what_is_open_is_forgotten_where_a_rollout_begins_with_an_episode():
    """After a change of matches, the old episode's actions have no outcome, and the new one's are its own."""
    transitions = Transitions(SPACES, EXTRAS, lanes=1, gamma=GAMMA, n_step=3)
    no, yes = np.zeros(1, bool), np.ones(1, bool)
    for number in range(3):
        rollout = Rollout(SPACES, EXTRAS, horizon=4, lanes=1)
        for slot in range(5):
            value = np.array([[100.0 * number + slot]])
            rollout.observe(slot, slice(0, 1), value, np.ones(1), no, no, yes, yes if slot == 0 else no)
            if slot < 4:
                rollout.decide(slot, slice(0, 1), Decision(np.zeros(1, int), {"choice": np.array([slot])}))
        rows = transitions.rows(rollout)
        begins, ends = rows["observation.0"][:, 0] - 100 * number, rows["next.0"][:, 0] - 100 * number
        assert begins.tolist() == [0, 1] and ends.tolist() == [3, 4]
