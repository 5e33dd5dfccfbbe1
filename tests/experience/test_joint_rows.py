"""If these fail, critics of several agents learn from rewards, ends or actions of the wrong agent, step or copy."""

from typing import NamedTuple

import numpy as np
import pytest
from gymnasium import spaces as gym_spaces

from arena.envs.interface import EntitySpaces
from arena.experience.joint_layout import Kind
from arena.experience.joint_rows import JointTransitions
from arena.experience.rollout import Rollout
from arena.experience.rows import Transitions
from arena.policies.interface import Decision

STATE = gym_spaces.Box(-9, 9e9, (2,), np.float64)
SPACES = EntitySpaces("a", gym_spaces.Box(-9, 9e9, (1,), np.float64), gym_spaces.Discrete(9), 2, STATE)
EXTRAS = {"choice": ((), np.int64)}
GAMMA, COPIES = 0.5, 2


class Slot(NamedTuple):
    """Data of one copy in one slot; rewards, ends and presence by entity."""

    rewards: np.ndarray
    over: np.ndarray
    cut: np.ndarray
    acting: np.ndarray
    starts: bool = False
    void: bool = False


def copy_of(random, entities, length):
    """Draw the slots of one copy: entities die one by one, come late, or are cut together, and faults occur."""
    slots: list[Slot] = []
    none, zeros = np.zeros(entities, bool), np.zeros(entities)
    while len(slots) < length:
        here = random.random(entities) < 0.5
        here[0] = True
        slots.append(Slot(zeros, none, none, here, starts=True))
        done = none
        while True:
            active = here & ~done
            rewards = random.integers(-8, 9, entities) * active * 1.0
            kind = random.choice(["act"] * 5 + ["dies", "comes", "cut", "void"])
            if kind in ("cut", "void"):
                slots.append(Slot(rewards, none, active if kind == "cut" else none, none, void=kind == "void"))
                break
            over = active & (np.arange(entities) == random.integers(entities)) if kind == "dies" else none
            done = done | over
            here = here | (kind == "comes")
            slots.append(Slot(rewards, over, none, here & ~done))
            if not slots[-1].acting.any():
                break
    return slots[:length]


def history(random, entities):
    """Draw 29 slots of each copy."""
    return [copy_of(random, entities, 29) for _ in range(COPIES)]


def fill(rollout, slot, time, copies, entities):
    """Feed one slot of all copies; an observation is copy, entity and time in one number."""
    now = [copy[time] for copy in copies]
    flat = lambda name, dtype=bool: np.array([getattr(s, name) for s in now], dtype).reshape(-1)  # noqa: E731
    each = lambda name: np.repeat([getattr(s, name) for s in now], entities)  # noqa: E731
    lanes = range(COPIES * entities)
    rollout.observe(
        slot,
        slice(0, len(lanes)),
        np.array([[1000.0 * lane + time] for lane in lanes]),
        flat("rewards", np.float64),
        flat("over"),
        flat("cut"),
        flat("acting"),
        each("starts"),
        np.array([[time, lane] for lane in lanes], np.int8),
        each("void"),
        np.array([[lane // entities, time] for lane in lanes], np.float64),
    )


def rollouts_of(copies, entities, horizon):
    """Yield rollouts of a horizon that follow each other."""
    lanes = COPIES * entities
    rollout = Rollout(SPACES, EXTRAS, horizon=horizon, lanes=lanes)
    fill(rollout, 0, 0, copies, entities)
    for first in range(0, len(copies[0]) - horizon, horizon):
        for slot in range(horizon):
            actions = np.array([1000 * lane + first + slot for lane in range(lanes)])
            rollout.decide(slot, slice(0, lanes), Decision(actions * 0, {"choice": actions}))
            fill(rollout, slot + 1, first + slot + 1, copies, entities)
        yield rollout
        rollout.begin()


def joint(entities, n_step):
    return JointTransitions([Kind(SPACES, entities, EXTRAS)], STATE, copies=COPIES, gamma=GAMMA, n_step=n_step)


def expected(copies, entities, end, n_step):
    """Return the rows (copy, begin, end, and for each entity presence, next presence, reward, discount)."""
    rows = []
    for number, copy in enumerate(copies):
        for begin in range(end):
            if not copy[begin].acting.any():
                continue
            rewards, dead = np.zeros(entities), np.zeros(entities, bool)
            for time in range(begin + 1, end + 1):
                slot, spanned = copy[time], time - begin
                if slot.starts or slot.void:
                    break
                rewards += np.where(dead, 0, GAMMA ** (spanned - 1) * slot.rewards)
                dead |= slot.over
                if slot.cut.any() or not slot.acting.any() or spanned == n_step:
                    arrays = (
                        copy[begin].acting,
                        (slot.acting | slot.cut) & ~slot.over,
                        rewards,
                        np.where(dead, 0, GAMMA**spanned),
                    )
                    rows.append((number, begin, time, *(array.tolist() for array in arrays)))
                    break
    return rows


@pytest.mark.parametrize("seed", range(100))
def test_joint_rows_are_those_of_a_reference_however_the_slots_are_split_into_rollouts(seed):
    random = np.random.default_rng(seed)
    entities, horizon, n_step = (int(random.integers(1, most)) for most in (4, 10, 6))
    copies = history(random, entities)
    transitions, found, begun = joint(entities, n_step), [], 0
    for rollout in rollouts_of(copies, entities, horizon):
        begun += transitions.count_begun(rollout)
        for row in transitions.rows(rollout):
            first, last = row["0.observation.0"][0, 0], row["0.next.0"][0, 0]
            copy, begin, end = int(first // 1000 // entities), int(first % 1000), int(last % 1000)
            lanes = copy * entities + np.arange(entities)
            assert row["0.observation.0"][:, 0].tolist() == row["0.choice"].tolist() == (1000 * lanes + begin).tolist()
            assert row["0.next.0"][:, 0].tolist() == (1000 * lanes + end).tolist()
            assert row["0.next_mask"].tolist() == [[end, lane] for lane in lanes]
            assert row["state.0"].tolist() == [copy, begin] and row["next_state.0"].tolist() == [copy, end]
            flags = row["present"].tolist(), row["next_present"].tolist()
            found.append((copy, begin, end, *flags, row["reward"].tolist(), row["discount"].tolist()))
    end = (len(copies[0]) - 1) // horizon * horizon
    assert sorted(found) == sorted(expected(copies, entities, end, n_step))
    assert begun == sum(any(slot.acting) for copy in copies for slot in copy[:end])


@pytest.mark.parametrize("n_step", [1, 2, 3, 4])
def test_the_rows_of_a_team_of_one_are_those_of_its_entity(n_step):
    copies = history(np.random.default_rng(n_step), 1)
    lone = Transitions(SPACES, EXTRAS, lanes=COPIES, gamma=GAMMA, n_step=n_step)
    transitions = joint(1, n_step)
    for rollout in rollouts_of(copies, 1, 7):
        own, team = lone.rows(rollout), transitions.rows(rollout)
        assert len(own) == len(team)
        for name in ("observation.0", "choice", "next.0", "next_mask"):
            assert (own[name] == team[f"0.{name}"][:, 0]).all()
        assert (own["reward"] == team["reward"][:, 0]).all() and (own["discount"] == team["discount"][:, 0]).all()


def test_the_value_of_a_team_whose_episodes_are_cut_by_time_is_that_of_the_endless_one():
    """With 1 per step and a discount of one half, the endless chain is worth 2; taken for an end, the cut costs it."""
    yes, no, ones = np.ones(2, bool), np.zeros(2, bool), np.ones(2)
    episode = [Slot(0 * ones, no, no, yes, starts=True), *[Slot(ones, no, no, yes)] * 3, Slot(ones, no, yes, no)]
    copies = [(episode * 6)[:29]] * COPIES
    for n_step in (1, 3):
        transitions = joint(2, n_step)
        rows = np.concatenate([transitions.rows(rollout) for rollout in rollouts_of(copies, 2, 4)])
        assert len(rows) > 20 and rows["next_present"].all()
        value = np.zeros(2)
        for _ in range(60):
            value = (rows["reward"] + rows["discount"] * value).mean(0)
        assert np.abs(value - 2).max() < 1e-6
