"""If these fail, every policy learns from wrong advantages."""

import numpy as np
import pytest

from arena.policies.on_policy.returns import advantages


def reference(rewards, values, terminated, truncated, valid, next_slot, gamma, gae_lambda):
    """The sum of the paper's equation 16, followed transition by transition through one lane at a time."""
    horizon, lanes = rewards.shape
    found = np.zeros((horizon, lanes))
    for lane in range(lanes):
        for slot in range(horizon):
            at, weight = slot, 1.0
            while at < horizon and valid[at, lane]:
                following = 0.0 if terminated[at, lane] else values[next_slot[at, lane], lane]
                found[slot, lane] += weight * (rewards[at, lane] + gamma * following - values[at, lane])
                if terminated[at, lane] or truncated[at, lane]:
                    break
                at, weight = next_slot[at, lane], weight * gamma * gae_lambda
    return found


def random_data(seed, horizon=23, lanes=5, gaps=False):
    rng = np.random.default_rng(seed)
    rewards = rng.normal(size=(horizon, lanes)).astype(np.float32)
    values = rng.normal(size=(horizon + 1, lanes)).astype(np.float32)
    terminated = rng.random((horizon, lanes)) < 0.1
    truncated = (rng.random((horizon, lanes)) < 0.1) & ~terminated
    valid = np.ones((horizon, lanes), bool)
    next_slot = np.tile(np.arange(1, horizon + 1)[:, None], (1, lanes))
    if gaps:
        valid[:] = False
        for lane in range(lanes):
            slot = int(rng.integers(0, 3))
            while slot < horizon:
                after = slot + int(rng.integers(1, 5))
                if after <= horizon:  # else it has not ended when the rollout does
                    valid[slot, lane], next_slot[slot, lane] = True, after
                slot = after
    else:
        # The slot after an episode's end shows the final observation, on which nobody acts.
        valid[1:] = ~(terminated | truncated)[:-1]
    return rewards, values, terminated & valid, truncated & valid, valid, next_slot


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("gaps", [False, True], ids=["everybody acts", "turn-based"])
@pytest.mark.parametrize(("gamma", "gae_lambda"), [(0.99, 0.95), (1.0, 1.0), (0.9, 0.0), (0.0, 0.5)])
def test_same_as_the_sum_in_the_paper(seed, gaps, gamma, gae_lambda):
    rewards, values, terminated, truncated, valid, next_slot = data = random_data(seed, gaps=gaps)
    expected = reference(*data, gamma, gae_lambda)
    found = advantages(rewards, values, terminated, truncated, valid, next_slot, gamma=gamma, gae_lambda=gae_lambda)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=1e-5)


def one_step(**flags):
    found = advantages(
        np.array([[1.0]], np.float32),
        np.array([[10.0], [100.0]], np.float32),
        *(np.array([[flags.get(name, False)]]) for name in ("terminated", "truncated")),
        np.array([[flags.get("valid", True)]]),
        np.array([[1]]),
        gamma=0.5,
        gae_lambda=0.9,
    )
    return found.item()


def test_a_terminated_episode_has_no_future():
    assert one_step(terminated=True) == 1 - 10


def test_a_truncated_episode_goes_on_with_the_value_of_its_final_observation():
    assert one_step(truncated=True) == 1 + 0.5 * 100 - 10


def test_what_is_no_transition_has_no_advantage():
    assert one_step(valid=False) == 0


def test_the_next_episode_does_not_leak_into_the_one_before():
    rewards, values, terminated, truncated, valid, next_slot = random_data(3)
    terminated[10], truncated[11] = True, True
    valid[:12] = True
    before = advantages(rewards, values, terminated, truncated, valid, next_slot, gamma=0.99, gae_lambda=0.95)
    rewards[12:] += 1000
    values[13:] += 1000
    after = advantages(rewards, values, terminated, truncated, valid, next_slot, gamma=0.99, gae_lambda=0.95)
    np.testing.assert_array_equal(before[:12], after[:12])


def test_rewards_of_void_transitions_do_not_matter():
    rewards, values, terminated, truncated, valid, next_slot = random_data(4)
    valid[7, 2] = False
    before = advantages(rewards, values, terminated, truncated, valid, next_slot, gamma=0.99, gae_lambda=0.95)
    rewards[7, 2] = np.nan
    after = advantages(rewards, values, terminated, truncated, valid, next_slot, gamma=0.99, gae_lambda=0.95)
    np.testing.assert_array_equal(before, after)
