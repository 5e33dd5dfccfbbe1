"""If these fail, small networks learn by another loss than the rest."""

import numpy as np
import pytest
import torch
from gymnasium import spaces as gym_spaces

from arena.common.trees import map_tree
from arena.envs.interface import EntitySpaces
from arena.policies.distributions.of_spaces import distribution
from arena.policies.on_policy.loss import LOSSES, Batch, loss, loss_gradients
from arena.policies.on_policy.settings import PPOSettings

ACTIONS = [gym_spaces.Discrete(3), gym_spaces.MultiDiscrete([2, 4]), gym_spaces.Box(-1, 1, (2,))]


def sample(found, count, seed=0):
    """Return the network outputs for a random batch, and the batch: far from the one that acted, to be clipped."""
    rng = np.random.default_rng(seed)

    def normal(*shape):
        return rng.normal(size=shape).astype(np.float32)

    outputs, values, free = normal(count, found.outputs), normal(count), normal(len(found.parameters)) * 0.3
    mask = None
    if found.flags:
        mask = (rng.random((count, found.flags)) < 0.8).astype(np.int8)
        mask[:, [0, 2]] = 1
    choice = found.sample(outputs, free, mask, rng, False)
    log_prob = found.differentiate(outputs, free, choice, mask).log_prob + 0.3 * normal(count)
    batch = Batch(normal(count, 2), mask, choice, log_prob, values + normal(count), normal(count), normal(count))
    return outputs, values, free, batch


@pytest.mark.parametrize("action", ACTIONS, ids=str)
@pytest.mark.parametrize("settings", [{}, {"entropy_coefficient": 0.1}, {"value_clip": 0.3}], ids=str)
def test_the_closed_form_is_what_autograd_finds(action, settings):
    found = distribution(EntitySpaces("a", gym_spaces.Box(-1, 1, (2,)), action))
    settings = PPOSettings(value_coefficient=0.7, **settings)
    outputs, values, free, batch = sample(found, 400)
    leaves = [torch.from_numpy(array.copy()).requires_grad_() for array in (outputs, values, free)]
    tensors = Batch(*(None if field is None else map_tree(torch.from_numpy, field) for field in batch))
    total, losses = loss(*leaves, tensors, found, settings)
    total.backward()

    mine = loss_gradients(outputs, values, free, batch, found, settings)
    assert 0.2 < mine.losses[LOSSES.index("clip_fraction")] < 0.8  # both sides of the bounds are in it
    np.testing.assert_allclose(mine.losses, losses.numpy(), rtol=1e-4, atol=1e-6)
    for found_here, leaf in zip(mine[:3], leaves, strict=True):
        if leaf.numel():
            np.testing.assert_allclose(found_here, leaf.grad.numpy(), rtol=1e-3, atol=1e-6)


def test_samples_are_picked_from_all_fields():
    batch = sample(distribution(EntitySpaces("a", gym_spaces.Box(-1, 1, (2,)), ACTIONS[0])), 6)[-1]
    few = batch.at(np.array([4, 1]))
    absent = ("global_state", "magnet")
    assert all(getattr(batch, name) is None and getattr(few, name) is None for name in absent)
    present = len(batch) - len(absent)
    for all_of_it, picked in zip(batch[:present], few[:present], strict=True):
        np.testing.assert_array_equal(picked, all_of_it[[4, 1]])
