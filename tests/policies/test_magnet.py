"""The magnet of PPO: a wrong gradient, or a magnet that is lost in a resume, makes self-play go round again."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from arena.common.errors import ConfigError
from arena.envs.interface import EntitySpaces
from arena.policies.distributions.discrete import Categorical
from arena.policies.on_policy.settings import PPOSettings
from tests.policies.test_ppo import Alone, make, play, rollout_for


@pytest.mark.parametrize(
    "space", [spaces.Discrete(4), spaces.MultiDiscrete([3, 3]), spaces.MultiDiscrete([2, 5])], ids=str
)
@pytest.mark.parametrize("masked", [False, True])
def test_the_gradient_in_closed_form_is_that_of_autograd(space, masked):
    distribution, random = Categorical(space), np.random.default_rng(0)
    own, other = random.standard_normal((2, 7, distribution.outputs)).astype(np.float32)
    mask = (random.random(own.shape) < 0.7).astype(np.int8) if masked else None
    if mask is not None:
        mask[:, 0] = mask[:, -1] = mask[:, distribution.outputs // 2] = 1
    tensor = torch.tensor(own, requires_grad=True)
    divergence = distribution.divergence(
        tensor, torch.from_numpy(other), None if mask is None else torch.from_numpy(mask)
    )
    assert (divergence >= -1e-6).all()
    divergence.sum().backward()
    np.testing.assert_allclose(distribution.divergence_gradient(own, other, mask), tensor.grad, atol=1e-6)
    assert distribution.divergence(tensor, tensor.detach(), None).abs().max() < 1e-6


def updated(**settings):
    policy = make(magnet_coefficient=0.5, magnet_rate=0.25, **settings)
    policy.learn(play(policy, rollout_for(policy), seed=0), Alone())
    return policy


def test_the_magnet_follows_the_policy_slowly():
    fresh, policy = make(magnet_coefficient=0.5), updated()
    first, last, magnet = fresh.weights(), policy.weights(), policy.state_dict()
    name = "policy_head.weight"
    expected = first[name] + 0.25 * (last[name] - first[name])
    torch.testing.assert_close(magnet[f"magnet.{name}"], expected)
    assert not torch.equal(last[name], first[name])


def test_it_holds_the_policy_back_from_the_second_update_on():
    def moved(coefficient):
        policy = make(magnet_coefficient=coefficient, magnet_rate=0.01, learning_rate=1e-2)
        for seed in range(6):
            policy.learn(play(policy, rollout_for(policy), seed=seed), Alone())
        return float((policy.weights()["policy_head.weight"] - make().weights()["policy_head.weight"]).norm())

    assert moved(10.0) < 0.7 * moved(1e-9)


def test_a_resumed_policy_has_its_magnet_and_goes_on_to_equal_bits():
    policy = updated()
    resumed = make(magnet_coefficient=0.5, magnet_rate=0.25)
    resumed.load_state_dict(policy.state_dict())
    resumed.load_worker_state(policy.worker_state())
    for each in (policy, resumed):
        each.learn(play(each, rollout_for(each), seed=1), Alone())
    for name, tensor in policy.state_dict().items():
        assert torch.equal(tensor, resumed.state_dict()[name]), name
    assert not any(name.startswith("magnet.") for name in policy.weights()), "snapshots are as they were"
    assert not any(name.startswith("magnet.") for name in make().state_dict())


def test_what_has_no_magnet_is_refused():
    box = EntitySpaces("x", spaces.Box(-1, 1, (3,), np.float32), spaces.Box(-1, 1, (2,), np.float32))
    with pytest.raises(ConfigError, match="expected Discrete or MultiDiscrete actions beside it, found Box"):
        PPOSettings(magnet_coefficient=0.1).check_spaces("ppo", box)
    with pytest.raises(ValueError, match="expected a network without a memory beside it"):
        PPOSettings(magnet_coefficient=0.1, gru=8)
