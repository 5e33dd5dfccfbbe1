"""Observation messages of a step: a wrong flag or a missed infinity would be learned from, without a symptom."""

import numpy as np
import pytest
from gymnasium import spaces

from arena.env_manager.faults import NotANumberError
from arena.environment.batch_writer import BatchWriter
from arena.envs.interface import EntitySpaces, Timestep
from arena.protocol.wire import STEADY, blocks_of, make_observation_message


def told(shape=(3,), entities=1, readers=()):
    """Return the records of one seat that plays all entities of one copy, and the seat's own record."""
    each = [EntitySpaces(f"entity_{i}", spaces.Box(-1, 1, shape), spaces.Discrete(2)) for i in range(entities)]
    record = make_observation_message(blocks_of(each), 1)
    everybody = tuple(range(entities))
    return BatchWriter([record], [everybody], [blocks_of(each)], each, readers=readers, looks_for_nan=True), record


def step(shape=(3,), entities=1, flags=tuple, **changes):
    no, yes = flags([False] * entities), flags([True] * entities)
    seen, paid = [np.ones(shape, np.float32)] * entities, [0.5] * entities
    usual = Timestep(seen, paid, no, no, [{}] * entities, yes, [None] * entities, False)
    return usual._replace(**changes)


def tell(records, timestep, started=False):
    records.begin()
    records.write(0, timestep, started=started)
    records.finish()


@pytest.mark.parametrize("reward", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("steps_before", [1, 3])
def test_a_reward_that_is_not_finite_is_a_fault_of_the_environment(reward, steps_before):
    records, _ = told()
    for number in range(steps_before):
        tell(records, step(), started=number == 0)
    with pytest.raises(NotANumberError, match="a reward that is not finite"):
        tell(records, step(rewards=[reward]))


@pytest.mark.parametrize("flags", [tuple, list])
def test_the_usual_step_is_plain_and_says_the_same_however_its_flags_are_given(flags):
    records, record = told(entities=2)
    tell(records, step(entities=2, flags=flags), started=True)
    assert not record.header[0] & STEADY and record.started.all()
    for reward in (1.0, 2.0):
        tell(records, step(entities=2, flags=flags, rewards=[reward, -reward]))
        assert record.header[0] & STEADY
        assert record.rewards.tolist() == [[reward, -reward]]
        assert record.acting.all() and not (record.started.any() or record.over.any() or record.terminated.any())
    tell(records, step(entities=2, terminated=flags([True, False]), acting=flags([False, True])))
    assert not record.header[0] & STEADY
    assert record.terminated.tolist() == [[True, False]] and record.acting.tolist() == [[False, True]]
    tell(records, step(entities=2, flags=flags, acting=flags([False, True])))
    assert not record.header[0] & STEADY and not record.terminated.any()


def test_a_copy_that_rested_is_told_of_in_full_again():
    records, record = told()
    for number in range(3):
        tell(records, step(), started=number == 0)
    records.begin()
    records.write_idle(0)
    records.finish()
    assert not record.header[0] & STEADY and not record.acting.any()
    tell(records, step())
    assert record.acting.all() and not record.header[0] & STEADY
    tell(records, step())
    assert record.header[0] & STEADY


def test_infos_go_beside_the_record_of_those_who_read_them_only_where_there_are_some():
    records, record = told(readers=[0])
    tell(records, step(), started=True)
    assert record.header[1] == 0 and not records.sides
    tell(records, step(infos=[{"x": 1}]))
    assert record.header[1] == 1 and records.sides[0].infos == {0: [{"x": 1}]}
    tell(records, step())
    assert record.header[1] == 0 and not records.sides


def test_observations_without_numbers_hold_no_nan():
    records, _ = told(shape=(0,))
    tell(records, step(shape=(0,)), started=True)
    assert not records.has_nan()
    records.check(0)
