"""Environments of several agents come in as their own library has them."""

from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from arena.common.errors import ConfigError, ContractError
from arena.envs.adapters.kinds import adapt
from arena.envs.contract import EnvironmentContract
from arena.envs.factory import make_environment
from arena.envs.interface import Environment
from arena.envs.options import AdapterOptions

HERE = Path(__file__).parents[1] / "environments" / "conventions.py"


class TestTeam(EnvironmentContract):
    steps = 30

    @pytest.fixture(autouse=True, params=[{}, {"early": True}, {"team": True, "n_agents": 1}])
    def _settings(self, request: pytest.FixtureRequest) -> None:
        self.settings = request.param

    def make_environment(self) -> Environment:
        return make_environment(f"{HERE}:Team", self.settings, action_mask="info")


class TestCars(EnvironmentContract):
    steps = 30

    def make_environment(self) -> Environment:
        return make_environment(f"{HERE}:Cars")


class TestCarsTogether(EnvironmentContract):
    steps = 30

    def make_environment(self) -> Environment:
        return make_environment(f"{HERE}:OldCars", agents="parallel")


def test_tuple_agents_are_entities_with_their_rewards_and_a_state() -> None:
    environment = make_environment(f"{HERE}:Team", wrappers=[("TimeLimit", {"max_episode_steps": 4})])
    assert [entity.name for entity in environment.entities] == ["entity_0", "entity_1", "entity_2"]
    assert [entity.observation.shape for entity in environment.entities] == [(2,), (3,), (4,)]
    environment.reset(1)
    timesteps = [environment.step([np.int64(i) for i in range(3)]) for _ in range(4)]
    assert [list(timestep.rewards) for timestep in timesteps] == [[0.0, 1.0, 2.0]] * 4
    assert environment.state() == [4]
    assert timesteps[-1].truncated == (True,) * 3 and timesteps[-1].over and not any(timesteps[-1].terminated)


def test_an_agent_that_is_done_first_acts_no_more_and_its_action_is_zero() -> None:
    environment = make_environment(f"{HERE}:Team", {"early": True})
    environment.reset(1)
    timesteps = [environment.step([np.int64(2)] * 3) for _ in range(8)]
    assert [timestep.terminated[0] for timestep in timesteps] == [False, False, True] + [False] * 5
    assert timesteps[3].observations[0][1] == 0 and timesteps[3].observations[1][1] == 2
    assert timesteps[3].acting == (False, True, True)
    assert timesteps[-1].terminated == (False, True, True) and timesteps[-1].over


def test_a_team_reward_is_paid_to_each() -> None:
    environment = make_environment(f"{HERE}:Team", {"team": True})
    environment.reset(1)
    assert list(environment.step([np.int64(1)] * 3).rewards) == [3.0] * 3


def test_tuple_spaces_alone_make_no_team() -> None:
    class Pair(gymnasium.Env):
        observation_space = action_space = spaces.Tuple([spaces.Discrete(2)] * 2)

    assert [len(adapt(Pair(), AdapterOptions(how)).entities) for how in ("auto", "tuple")] == [1, 2]
    assert len(make_environment(f"{HERE}:Team", agents="single").entities) == 1
    with pytest.raises(ConfigError, match=r"env\.agents: parallel expects an RLlib MultiAgentEnv, found a gymnasium"):
        make_environment("gymnasium:CartPole-v1", agents="parallel")
    with pytest.raises(
        ConfigError, match=r"env\.agents: tuple expects a gymnasium\.Env .*, found a PettingZoo Parallel"
    ):
        make_environment("pettingzoo:mpe2.simple_tag_v3", agents="tuple")
    with pytest.raises(ConfigError, match=r"env\.agents: tuple expects .* Tuples of equal length, found Box"):
        make_environment("gymnasium:CartPole-v1", agents="tuple")


def test_rewards_of_rllib_agents_add_up_until_they_act_or_are_done() -> None:
    environment = make_environment(f"{HERE}:Cars")
    assert environment.turn_based
    assert environment.reset(1).acting == (True, False, False)
    timesteps = []
    while not timesteps or not timesteps[-1].over:
        timesteps.append(environment.step([np.int64(1)] * 3))
    # Steps 1, 4, 7 and 9 observe nobody: those before the end are passed inside.
    times = [timestep.infos[0]["time"] for timestep in timesteps]
    assert times == [2, 3, 5, 6, 8, 9] and timesteps[0].infos[0]["own"] == 2
    assert environment.env.acted[:4] == [{"a": 1}, {}, {"a": 1, "b": 1}, {"b": 1}]
    assert [timestep.rewards[0] for timestep in timesteps] == [2, 0, 0, 4, 2, 1]
    assert [timestep.rewards[1] for timestep in timesteps] == [0, 1, 2, 1, 0, 0]
    assert [timestep.terminated for timestep in timesteps][3:] == [
        (False, True, False),
        (False, False, False),
        (True, False, False),
    ]
    assert timesteps[-1].observations[0] == [8], "the last observation stands"
    assert not any(timestep.terminated[2] for timestep in timesteps), "c never acted, so it has no end"


def test_older_rllib_environments_have_one_space_for_all() -> None:
    environment = make_environment(f"{HERE}:OldCars")
    assert [entity.name for entity in environment.entities] == ["0", "1"]
    environment.reset(1)
    for _ in range(5):
        timestep = environment.step([np.int64(0), np.int64(1)])
    assert timestep.over and timestep.truncated == (True, True) and list(timestep.rewards) == [0.0, 1.0]


def test_an_rllib_agent_that_was_not_listed_is_a_sentence() -> None:
    environment = make_environment(f"{HERE}:OldCars")
    environment.reset(1)
    environment.env.stranger = "truck"
    with pytest.raises(ContractError, match=r"possible_agents; found 'truck', which is not among 0, 1 \(.*line \d+\)"):
        environment.step([np.int64(0)] * 2)


def test_rllib_agents_that_take_turns_are_not_parallel() -> None:
    environment = make_environment(f"{HERE}:Cars", agents="parallel")
    assert not environment.turn_based
    environment.reset(1)
    with pytest.raises(ContractError, match=r"found nothing for 'a' \(leave env.agents out if agents take turns\)"):
        environment.step([np.int64(0)] * 3)


def test_objects_called_agents_make_no_rllib_environment() -> None:
    class Crowd(gymnasium.Env):
        observation_space = spaces.Dict({"near": spaces.Discrete(2)})
        action_space = spaces.Discrete(2)
        agents = ({"unhashable": 1},)

    assert [entity.name for entity in adapt(Crowd()).entities] == ["entity_0"]


def test_observe_keeps_some_keys_for_all_or_by_name() -> None:
    class Pictures(gymnasium.Env):
        observation_space = spaces.Dict(
            {"image": spaces.Box(0, 1, (3,), np.float32), "lane": spaces.Discrete(2), "mission": spaces.Text(9)}
        )
        action_space = spaces.Discrete(2)

        def reset(self, seed=None, options=None):
            return {"image": np.ones(3), "lane": 1, "mission": "go"}, {}

    with pytest.raises(ConfigError, match=r"leave out 'mission': env\.observe: \[image, lane\]"):
        adapt(Pictures())
    kept = adapt(Pictures(), AdapterOptions(observe=["lane", "image"]))
    assert set(kept.entities[0].observation) == set(kept.reset(1).observations[0]) == {"lane", "image"}
    alone = adapt(Pictures(), AdapterOptions(observe={"entity_0": "image"}))
    assert alone.entities[0].observation.shape == (3,) and (alone.reset(1).observations[0] == 1).all()
    with pytest.raises(ConfigError, match=r"\(image, lane, mission\), found 'imge' \(did you mean 'image'\?\)"):
        adapt(Pictures(), AdapterOptions(observe=["imge"]))
    with pytest.raises(ConfigError, match=r"expected names of entities \(entity_0\), found 'entty_0' \(did you mean"):
        make_environment("gymnasium:CartPole-v1", observe={"entty_0": "image"})
    with pytest.raises(ConfigError, match=r"expected an entity that observes a Dict, found Box"):
        make_environment("gymnasium:CartPole-v1", observe=["image"])


@pytest.mark.parametrize("use", ["gymnasium:Taxi-v4", f"{HERE}:Team"])
def test_masks_in_infos_are_obeyed_where_the_file_states_it(use: str) -> None:
    assert make_environment(use).reset(1).action_masks[0] is None
    environment = make_environment(use, action_mask="info")
    timestep = environment.reset(1)
    native = getattr(environment, "env").unwrapped  # noqa: B009 (an attribute of the adapters alone)
    for _ in range(5):
        expected = native.action_mask(native.s) if "Taxi" in use else [native.time % 2 == 0, 1, 1]
        assert (timestep.action_masks[0] == expected).all()
        timestep = environment.step([np.int64(1)] * len(environment.entities))


def test_a_step_without_the_mask_that_the_file_promises_is_a_fault() -> None:
    environment = make_environment("gymnasium:CartPole-v1", action_mask="info")
    with pytest.raises(ContractError, match=r'an action mask into info\["action_mask"\] or info\["avail_actions"\]'):
        environment.reset(1)
    with pytest.raises(ConfigError, match="env.action_mask: info promises action masks, but its action space is Box"):
        make_environment("gymnasium:Pendulum-v1", action_mask="info")


def test_masks_that_the_file_does_not_want_stay_in_the_observation() -> None:
    environment = make_environment("pettingzoo:classic.tictactoe_v3", action_mask="none")
    assert environment.entities[0].mask_size == 0
    assert set(environment.entities[0].observation) == {"observation", "action_mask"}


@pytest.mark.parametrize("use", ["openspiel:kuhn_poker", "matrix_game"])
def test_environments_without_an_adapter_take_no_options(use: str) -> None:
    with pytest.raises(ConfigError, match=r"env\.observe: expected none for an? .*, found 'image'"):
        make_environment(use, observe="image")


class TestBattle(EnvironmentContract):
    steps = 30

    def make_environment(self) -> Environment:
        return make_environment(f"{HERE}:Battle")


@pytest.mark.parametrize("five", [False, True])
@pytest.mark.parametrize("fight", [False, True])
def test_pymarl_teams_have_masks_a_state_and_results(fight: bool, five: bool) -> None:
    environment = make_environment(f"{HERE}:Battle", {"fight": fight, "five": five})
    timestep = environment.reset(1)
    assert [entity.name for entity in environment.entities] == ["agent_0", "agent_1"]
    for step in range(5):
        dead = step >= 3
        assert list(timestep.action_masks[1]) == ([1, 0, 0] if dead else [0, 1, 1])
        timestep = environment.step([np.int64(2), np.int64(0 if dead else 1)])
        assert list(timestep.rewards) == [2.0 if dead else 3.0] * 2
        assert list(environment.state()) == [step + 1, 1]  # type: ignore[attr-defined]
    assert timestep.over and timestep.terminated == (fight,) * 2 and timestep.truncated == (not fight,) * 2
    assert timestep.infos[0]["metrics"] == {"battle_won": float(fight), "dead_allies": 1.0}
    assert timestep.infos[0]["outcome"] == ("win" if fight else "loss")
