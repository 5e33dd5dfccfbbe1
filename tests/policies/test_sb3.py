"""If these fail, algorithms of Stable-Baselines3 do not run as they are, or their replicas drift apart."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from arena.common.errors import ConfigError
from arena.policies.local import Alone, Lockstep
from arena.policies.sb3 import StableBaselines3
from arena.tensors.gradients import FlatGradient


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


PPO = {"n_steps": 32, "batch_size": 32, "n_epochs": 2, "seed": 3}
SAC = {"learning_starts": 20, "batch_size": 8, "seed": 3}


class Group:
    """The custom loop's group, over the workers of this process."""

    def __init__(self, member):
        self.member, self.rank, self.size = member, member.rank, member.size
        self.flat, self.logged, self.averages = {}, {}, 0

    def average_gradients(self, model, weight=1.0):
        self.averages += 1
        if model not in self.flat:
            self.flat[model] = FlatGradient(model.parameters())
        self.flat[model].gather()
        self.flat[model].average(self.member, weight)

    def broadcast(self, model):
        for tensor in model.state_dict().values():
            array = tensor.numpy() * (self.rank == 0)
            array = array.astype(np.float32)
            self.member.sum_in_place(array)
            tensor.copy_(torch.from_numpy(array))

    def log(self, **scalars):
        self.logged.update(scalars)


def alone():
    return Group(Alone())


def vector(name, copies=3, mode=AutoresetMode.SAME_STEP):
    return SyncVectorEnv([lambda: gymnasium.make(name)] * copies, autoreset_mode=mode)


@pytest.mark.parametrize("copies", [1, 3])
@pytest.mark.parametrize(
    ("algorithm", "name", "arguments"),
    [
        ("PPO", "CartPole-v1", PPO),
        ("A2C", "CartPole-v1", {}),
        ("DQN", "CartPole-v1", {"learning_starts": 20}),
        ("SAC", "Pendulum-v1", SAC),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_algorithm_learns_acts_and_goes_on_from_its_state(algorithm, name, arguments, copies):
    env = gymnasium.make(name) if copies == 1 else vector(name, copies)
    group = alone()
    policy = StableBaselines3(env, group, algorithm=algorithm, arguments=arguments)
    before = policy.state_dict()
    policy.run(120)
    state = policy.state_dict()
    assert group.averages > 0
    assert any(not torch.equal(state[key], before[key]) for key in before if key.startswith("policy/"))
    assert int(state["num_timesteps"]) >= 120
    observation, _ = env.reset(seed=0)
    assert np.shape(policy.act(observation)) == env.action_space.shape

    other = StableBaselines3(env, alone(), algorithm=algorithm, arguments={**arguments, "seed": 9})
    other.load_state_dict(state)
    assert other.state_dict().keys() == state.keys()
    assert all(torch.equal(value, state[key]) for key, value in other.state_dict().items())
    other.run(40)
    assert int(other.state_dict()["num_timesteps"]) >= int(state["num_timesteps"]) + 40


@pytest.mark.parametrize(("algorithm", "name", "arguments"), [("PPO", "CartPole-v1", PPO), ("SAC", "Pendulum-v1", SAC)])
def test_replicas_stay_equal_while_each_collects_its_own_data(algorithm, name, arguments):

    def work(member):
        policy = StableBaselines3(gymnasium.make(name), Group(member), algorithm=algorithm, arguments=arguments)
        policy.run(64)
        return policy.state_dict()

    first, second = Lockstep(2).run(work)
    assert algorithm != "SAC" or "log_ent_coef" in first
    for key, value in first.items():
        assert torch.equal(value, second[key]), key


def test_its_metrics_reach_the_group():
    group = alone()
    StableBaselines3(vector("CartPole-v1"), group, arguments=PPO).run(400)
    assert {"train/loss", "train/approx_kl", "rollout/ep_rew_mean"} <= group.logged.keys()
    assert all(isinstance(value, float) for value in group.logged.values())


def test_truncated_episodes_of_copies_keep_their_final_observation():
    """The algorithm bootstraps from it; the observation that it steps on from is already the next episode's."""
    env = vector("Pendulum-v1", 2)  # every episode is truncated at 200 steps
    policy = StableBaselines3(env, alone(), arguments=PPO)
    copies = policy.model.env
    copies.reset()
    for _ in range(200):
        observations, _, done, infos = copies.step(np.zeros((2, 1), np.float32))
    assert done.all()
    for copy, info in enumerate(infos):
        assert info["TimeLimit.truncated"] is True
        assert not np.allclose(info["terminal_observation"], observations[copy])
        assert info["episode"]["l"] == 200


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"algorithm": "PP0"}, "settings of policy 'sb3': algorithm"),
        ({"algorithm": "SAC"}, "refuses to build SAC with MlpPolicy: .*Discrete"),
        ({"arguments": {"n_stepz": 3}}, "refuses to build PPO .*n_stepz"),
    ],
    ids=["unknown algorithm", "wrong space", "unknown argument"],
)
def test_what_cannot_be_built_is_explained(settings, message):
    with pytest.raises(ConfigError, match=message):
        StableBaselines3(gymnasium.make("CartPole-v1"), alone(), **settings)


def test_copies_that_reset_a_step_late_are_refused_with_the_remedy():
    with pytest.raises(ConfigError, match="set env.autoreset: same_step, or num_envs: 1"):
        StableBaselines3(vector("CartPole-v1", mode=AutoresetMode.NEXT_STEP), alone())


@pytest.mark.parametrize(
    "settings",
    [{"arguments": {"target_kl": 0.1}}, {"algorithm": "DQN", "arguments": {"train_freq": [1, "episode"]}}],
    ids=["target_kl", "train_freq"],
)
def test_what_would_let_workers_wait_for_ever_is_refused_in_a_group(settings):
    group = alone()
    StableBaselines3(gymnasium.make("CartPole-v1"), group, algorithm="PPO", arguments={"target_kl": 0.1})
    group.size = 2
    with pytest.raises(ConfigError, match="in a group of several workers"):
        StableBaselines3(gymnasium.make("CartPole-v1"), group, **settings)
