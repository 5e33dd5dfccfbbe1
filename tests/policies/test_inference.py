"""A policy as a module for other libraries computes what the policy itself does: actions, masks, states."""

import numpy as np
import pytest
import torch

from arena.common.trees import tree_leaves
from arena.envs.interface import EntitySpaces
from arena.policies.inference import MASK, NEXT_STATE, START, STATE, inference_of
from tests.policies.policy_cases import CASES, ROWS, masks, observed, trained


@pytest.mark.parametrize("name", CASES)
def test_the_module_says_what_the_policy_does(name):
    case = CASES[name]
    policy = trained(case)
    inference = policy.inference()
    names = [tensor.name for tensor in inference.inputs]
    state = np.zeros((ROWS, *inference.inputs[-2].shape), np.float32) if STATE in names else None
    seen = set()
    for slot in range(6):
        observations, flags = observed(case, slot), masks(case, slot)
        starts = np.random.default_rng(slot).random(ROWS) < (1 if slot == 0 else 0.2)
        expected = policy.act(
            observations, action_mask=flags, starts=starts, lanes=slice(0, ROWS), deterministic=True
        ).actions
        given = [*tree_leaves(observations), *([flags] if MASK in names else [])]
        given += [state, starts] if START in names else []
        for tensor, array in zip(inference.inputs, given, strict=True):
            assert (tensor.shape, tensor.dtype) == (array.shape[1:], array.dtype), tensor.name
        with torch.inference_mode():
            found = [tensor.numpy() for tensor in inference.module(*map(torch.from_numpy, given))]
        for tensor, array in zip(inference.outputs, found, strict=True):
            assert (tensor.shape, tensor.dtype) == (array.shape[1:], array.dtype), tensor.name
        if inference.outputs[-1].name == NEXT_STATE:
            state = found.pop()
        for mine, theirs in zip(found[1:], tree_leaves(expected), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)
        seen |= {leaf.tobytes() for leaf in found[1:]}
    assert len(seen) >= 6  # they differ from slot to slot


def test_a_network_of_a_user_s_own_normalises_nothing():
    case = CASES["vector"]
    entity = EntitySpaces("player", case.observation, case.action)
    assert inference_of(entity, torch.nn.Linear(5, 4)).normalization == {}


def test_the_module_follows_the_policy_s_weights():
    policy = trained(CASES["vector"])
    inference = policy.inference()
    assert set(inference.module.network.state_dict()) == set(policy.weights())
    row = torch.zeros(1, 5)
    before = inference.module(row)[0]
    policy.load_weights({name: tensor + 1 for name, tensor in policy.weights().items()})
    assert not torch.equal(before, inference.module(row)[0])
