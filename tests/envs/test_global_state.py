"""Global states: a central critic would learn from another state than the environment's, without a symptom."""

from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces

from arena.common.errors import ConfigError, ContractError
from arena.envs.contract import EnvironmentContract
from arena.envs.factory import make_environment
from arena.envs.interface import EntitySpaces, Environment, Timestep, state_space_of
from arena.protocol.global_state import JointObservation

STATEFUL = f"{Path(__file__).parents[1]}/environments/stateful.py"


@pytest.mark.parametrize("name", ["Corridor", "Pair", "Own"])
class TestStateful(EnvironmentContract):
    steps = 12

    @pytest.fixture(autouse=True)
    def _choose(self, name: str) -> None:
        self.name = name

    def make_environment(self) -> Environment:
        return make_environment(f"{STATEFUL}:{self.name}")


@pytest.mark.parametrize("name", ["Corridor", "Pair", "Own"])
def test_the_state_is_that_of_the_environment_in_the_dtype_of_its_space(name):
    environment = make_environment(f"{STATEFUL}:{name}")
    environment.reset(seed=1)
    for time in (1, 2, 3):
        environment.step([np.int64(1)] * len(environment.entities))
        state = environment.state()
        assert state.dtype == np.float64
        assert state.tolist() == [len(environment.entities), time]


@pytest.mark.parametrize("use", ["pettingzoo:mpe2.simple_spread_v3", "pettingzoo-aec:mpe2.simple_spread_v3"])
def test_pettingzoos_state_is_passed_on_by_both_adapters(use):
    environment = make_environment(use)
    environment.reset(seed=1)
    for _ in range(4):
        environment.step([np.int64(1)] * 3)
        np.testing.assert_array_equal(environment.state(), environment.env.state())
        assert environment.state().shape == environment.state_space.shape == (54,)


def test_an_environment_without_a_state_space_has_no_state():
    for use in ("gymnasium:CartPole-v1", "pettingzoo:classic.tictactoe_v3", "touchdown"):
        assert state_space_of(make_environment(use)) is None


def test_an_info_without_the_declared_state_is_a_breach_of_the_contract():
    environment = make_environment(f"{STATEFUL}:Corridor", {"forgets": True})
    environment.reset(seed=1)
    with pytest.raises(ContractError, match=r'must put the global state into info\["state"\]'):
        environment.state()


def test_a_state_space_that_is_not_supported_is_refused():
    with pytest.raises(ConfigError, match="state_space Text.* is not supported"):
        make_environment(f"{STATEFUL}:Own", {"kind": "text"})


def step(observations, acting, ends=None):
    count = len(observations)
    ends = ends or [False] * count
    return Timestep(observations, [0.0] * count, ends, [False] * count, [{}] * count, acting, [None] * count, False)


KINDS = [
    EntitySpaces("scout", spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(2)),
    EntitySpaces("guard", spaces.Discrete(3), spaces.Discrete(2)),
    EntitySpaces("camera", spaces.Box(0, 255, (1, 2), np.uint8), spaces.Discrete(2)),
]
SEEN = [np.array([0.5, -1], np.float32), np.int64(2), np.array([[255, 0]], np.uint8)]


def test_the_joint_observation_has_all_observations_and_who_is_present():
    joint = JointObservation(KINDS, turn_based=False)
    vector, done = np.full(joint.space.shape, 9, np.float32), joint.begin()
    joint.write(vector, step(SEEN, [True, True, True]), done)
    assert vector.tolist() == [0.5, -1, 0, 0, 1, 1, 0, 1, 1, 1]
    joint.write(vector, step(SEEN, [True, False, True], ends=[False, True, False]), done)
    assert vector.tolist() == [0.5, -1, 0, 0, 1, 1, 0, 1, 1, 1], "it ends here, and is seen a last time"
    joint.write(vector, step(SEEN, [True, False, True]), done)
    assert vector.tolist() == [0.5, -1, 0, 0, 0, 1, 0, 1, 0, 1], "it has ended"


def test_in_a_turn_based_game_an_entity_that_waits_is_present():
    joint = JointObservation(KINDS, turn_based=True)
    vector, done = np.zeros(joint.space.shape, np.float32), joint.begin()
    joint.write(vector, step(SEEN, [False, True, False]), done)
    assert vector[-3:].tolist() == [1, 1, 1]


@pytest.mark.parametrize("use", ["pettingzoo:mpe2.simple_spread_v3", "pettingzoo-aec:mpe2.simple_spread_v3"])
class TestAgentId(EnvironmentContract):
    steps = 90

    @pytest.fixture(autouse=True)
    def _choose(self, use: str) -> None:
        self.use = use

    def make_environment(self) -> Environment:
        return make_environment(self.use, agent_id=True)


def test_observations_show_who_observes_and_the_state_is_as_before():
    numbered = make_environment("pettingzoo:mpe2.simple_spread_v3", agent_id=True)
    plain = make_environment("pettingzoo:mpe2.simple_spread_v3")
    for environment in (numbered, plain):
        environment.reset(seed=4)
    actions = [np.int64(1)] * 3
    for number, (seen, bare) in enumerate(
        zip(numbered.step(actions).observations, plain.step(actions).observations, strict=True)
    ):
        assert seen[:18].tobytes() == bare.tobytes()
        assert seen[18:].tolist() == [float(number == i) for i in range(3)]
    np.testing.assert_array_equal(numbered.state(), plain.state())
    board = make_environment("pettingzoo:classic.connect_four_v3", agent_id=True)
    assert [board.reset(seed=1).observations[i]["agent_id"] for i in range(2)] == [0, 1]
    assert board.entities[0].mask_size == 7


def test_a_single_entity_has_no_number():
    with pytest.raises(ConfigError, match="env.agent_id: expected an environment with several entities, found one"):
        make_environment("gymnasium:CartPole-v1", agent_id=True)
