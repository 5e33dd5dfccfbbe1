"""The global state in the records of seats: a critic would learn from a state that never was, or a seat would see more
than its own data."""

from pathlib import Path

import numpy as np
import pytest

from arena.env_manager import ManagerSettings, create_env_manager
from arena.env_manager.faults import CopyFault
from arena.env_manager.source import EnvironmentSource
from arena.environment.batch_writer import BatchWriter
from arena.environment.global_state import StateSource
from arena.envs.interface import with_global_state
from arena.protocol.wire import blocks_of, make_observation_message

STATEFUL = f"{Path(__file__).parents[1]}/environments/stateful.py"
SPREAD = EnvironmentSource("pettingzoo:mpe2.simple_spread_v3", {})
OWN = EnvironmentSource(f"{STATEFUL}:Own", {})
CORRIDOR = EnvironmentSource(f"{STATEFUL}:Corridor", {})


class Match:
    """Copies of a match in one batch, and the records of its seats: the first of them receives the global state."""

    def __init__(self, source, manager="serial", state="auto", copies=2, seats=None):
        self.manager = create_env_manager(manager, source, copies, ManagerSettings(seed=3))
        entities = self.manager.entities
        self.seats = seats or [tuple(range(len(entities)))]
        state_source = StateSource(state, self.manager, entities)
        own = [
            with_global_state([entities[e] for e in seat], state_source.space if number == 0 else None)
            for number, seat in enumerate(self.seats)
        ]
        blocks = [blocks_of(each) for each in own]
        self.records = [make_observation_message(each, copies) for each in blocks]
        self.writer = BatchWriter(
            self.records,
            self.seats,
            blocks,
            entities,
            readers=[],
            looks_for_nan=True,
            state=None if state_source.space is None else state_source.of_batch(slice(0, copies)),
        )

    def exchange(self, action=1):
        """Reset the copies whose episode is over, step the others, and write the records."""
        manager = self.manager
        self.writer.begin()
        over = list(manager.env_done)
        for copy, starts in enumerate(over):
            if starts:
                manager.begin_reset(copy, 10 + copy)
            else:
                manager.begin_step(copy, [np.int64((action + copy) % 2)] * len(manager.entities))
        for copy, starts in enumerate(over):
            while manager.pending(copy):
                manager.poll(1.0)
            timestep = manager.result(copy)
            self.writer.write(copy, timestep, started=starts)
            self.writer.write_state(copy, timestep, started=starts)
        self.writer.finish()


@pytest.fixture
def match():
    made = []

    def make(*args, **keywords):
        made.append(Match(*args, **keywords))
        return made[-1]

    yield make
    for each in made:
        each.manager.close()


@pytest.mark.parametrize("manager", ["serial", "subprocess"])
def test_the_state_in_the_record_is_the_environments_bit_for_bit(match, manager):
    spread, own = match(SPREAD, manager), match(OWN, manager)
    for number in range(30):
        spread.exchange(number)
        # the state of simple_spread is what its agents observe, side by side
        observed = spread.records[0].observations[0].reshape(2, 54)
        assert spread.records[0].global_state.tobytes() == observed.tobytes() and observed.any()
        own.exchange(number)
        time = number % 6  # an episode of five steps, and its reset
        last = [(number + copy) % 2 if time else 0 for copy in range(2)]
        assert own.records[0].global_state.dtype == np.float64
        assert own.records[0].global_state.tolist() == [[last[0], time], [last[1], time]]


@pytest.mark.parametrize("manager", ["serial", "subprocess"])
def test_gymnasiums_info_carries_the_state_without_infos_at_the_seat(match, manager):
    corridor = match(CORRIDOR, manager)
    for time in range(6):
        corridor.exchange()
        assert corridor.records[0].global_state[:, 1].tolist() == [time, time]
        assert not corridor.writer.sides


@pytest.mark.parametrize("state", ["auto", "joint"])
def test_only_seats_that_request_the_state_have_room_for_it(match, state):
    spread = match(SPREAD, state=state, seats=[(0,), (1, 2)])
    spread.exchange()
    assert spread.records[1].global_state is None
    alone, width = spread.records[0], 54 if state == "auto" else 57
    assert alone.global_state.shape == (2, width)
    others = spread.records[1].observations[0].reshape(2, 36)
    joint = np.concatenate([alone.observations[0].reshape(2, 18), others], 1)
    np.testing.assert_array_equal(alone.global_state[:, :54], joint)
    assert (alone.global_state[:, 54:] == 1).all()


def test_no_state_is_computed_unless_a_seat_requests_it(match):
    source = EnvironmentSource(f"{STATEFUL}:Own", {"kind": "raises"})
    assert StateSource("none", match(OWN).manager, ()).space is None
    manager = create_env_manager("subprocess", source, 1)
    try:
        manager.reset()
        manager.step([[np.int64(1)]])
    finally:
        manager.close()


@pytest.mark.parametrize(
    ("kind", "what"),
    [("raises", "this state is a secret"), ("wrong", "expected a global state of shape")],
)
def test_a_state_that_fails_in_a_subprocess_is_a_fault_of_its_copy(match, kind, what):
    # the wrong shape comes from a state that the arena's own interface does not check before
    broken = match(EnvironmentSource(f"{STATEFUL}:Own", {"kind": kind}), "subprocess", copies=1)
    broken.manager.reads_state = False
    broken.manager.begin_reset(0, 1)
    while broken.manager.pending(0):
        broken.manager.poll(1.0)
    broken.manager.result(0)
    broken.manager.reads_state = True
    broken.manager.begin_step(0, [np.int64(1)])
    while broken.manager.pending(0):
        broken.manager.poll(1.0)
    with pytest.raises(CopyFault, match=what):
        broken.manager.result(0)


def test_a_state_of_another_shape_in_this_process_names_both_shapes(match):
    broken = match(EnvironmentSource(f"{STATEFUL}:Own", {"kind": "wrong"}))
    with pytest.raises(ValueError, match=r"expected a global state of shape \(2,\), as its space has it.*\(3,\)"):
        broken.exchange()
