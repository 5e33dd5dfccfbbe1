"""If these fail, PPO acts by one distribution and learns from another, or plays forbidden actions."""

import numpy as np
import pytest
import torch
from gymnasium import spaces as gym_spaces

from arena.common.errors import ConfigError
from arena.common.seeding import new_generator
from arena.envs.interface import EntitySpaces
from arena.policies.distributions.of_spaces import distribution

OBSERVATION = gym_spaces.Box(-1, 1, (2,))
SPACES = [
    gym_spaces.Discrete(4),
    gym_spaces.Discrete(3, start=-1),
    gym_spaces.MultiDiscrete([3, 3]),
    gym_spaces.MultiDiscrete([2, 5, 3]),
    gym_spaces.MultiDiscrete([[2, 3], [4, 2]]),
    gym_spaces.MultiBinary(3),
    gym_spaces.Box(-2, 4, (2,)),
    gym_spaces.Box(-np.inf, np.inf, (1, 2)),
    gym_spaces.Box(np.array([-1, 0], np.float32), np.array([1, np.inf], np.float32)),
    gym_spaces.Tuple([gym_spaces.Discrete(3), gym_spaces.Box(-1, 1, (2,))]),
    gym_spaces.Dict(go=gym_spaces.MultiDiscrete([2, 3]), look=gym_spaces.Dict(at=gym_spaces.MultiBinary(2))),
]


def make(space, mask_size=0, log_std=0.0):
    return distribution(EntitySpaces("a", OBSERVATION, space, mask_size), log_std)


def member(space, actions, index):
    if isinstance(space, gym_spaces.Dict):
        return {key: member(sub, actions[key], index) for key, sub in space.spaces.items()}
    if isinstance(space, gym_spaces.Tuple):
        return tuple(member(sub, actions[i], index) for i, sub in enumerate(space.spaces))
    return actions[index]


def draw(found, count, seed=0, mask=None, deterministic=False, scale=1.0):
    rng = np.random.default_rng(seed)
    outputs = rng.normal(size=(count, found.outputs)).astype(np.float32) * scale
    free = np.array(found.parameters, np.float32)
    choice = found.sample(outputs, free, mask, new_generator(seed), deterministic)
    return outputs, free, choice


def masks(found, count, seed=0):
    return (np.random.default_rng(seed).random((count, found.flags)) < 0.5).astype(np.int8)


@pytest.mark.parametrize("space", SPACES, ids=str)
@pytest.mark.parametrize("masked", [False, True], ids=["free", "masked"])
@pytest.mark.parametrize("by_entropy", [0.0, -0.3], ids=["bare", "entropy"])
@pytest.mark.parametrize("exploration", [0.0, 0.3], ids=["own", "exploring"])
def test_derivatives_in_closed_form_are_those_of_autograd(space, masked, by_entropy, exploration):
    found = make(space, log_std=-0.3)
    found.exploration = exploration
    mask = masks(found, 300) if masked and found.flags else None
    outputs, free, choice = draw(found, 300, mask=mask)
    assert choice.dtype == np.float32 and choice.shape == (300, found.choices)
    by_log_prob = np.random.default_rng(9).normal(size=300).astype(np.float32)

    by_outputs, by_free = (torch.from_numpy(array.copy()).requires_grad_() for array in (outputs, free))
    log_prob, entropy = found.evaluate(
        by_outputs, by_free, torch.from_numpy(choice), None if mask is None else torch.from_numpy(mask)
    )
    (log_prob @ torch.from_numpy(by_log_prob) + by_entropy * entropy.sum()).backward()

    slopes = found.differentiate(outputs, free, choice, mask)
    assert slopes.log_prob.shape == slopes.entropy.shape == (300,)
    np.testing.assert_allclose(slopes.log_prob, log_prob.detach().numpy(), atol=2e-5)
    np.testing.assert_allclose(slopes.entropy, entropy.detach().numpy(), atol=2e-5)
    mine = slopes.backward(by_log_prob, by_entropy)
    np.testing.assert_allclose(mine[0], by_outputs.grad.numpy(), atol=2e-5)
    if len(free):
        np.testing.assert_allclose(mine[1], by_free.grad.numpy(), rtol=1e-4, atol=1e-3)
    assert all(array.dtype == np.float32 for array in (slopes.log_prob, slopes.entropy, *mine))


@pytest.mark.parametrize("space", SPACES, ids=str)
@pytest.mark.parametrize("deterministic", [False, True], ids=["sampled", "mode"])
def test_actions_are_members_of_the_space(space, deterministic):
    found = make(space)
    for mask in (None, masks(found, 200) if found.flags else None):
        _, _, choice = draw(found, 200, mask=mask, deterministic=deterministic, scale=5.0)
        actions = found.actions(choice)
        assert all(space.contains(member(space, actions, i)) for i in range(200))


@pytest.mark.parametrize(
    "space", [gym_spaces.Discrete(5), gym_spaces.MultiDiscrete([2, 4]), gym_spaces.MultiBinary(2)], ids=str
)
@pytest.mark.parametrize("exploration", [0.0, 0.4], ids=["own", "exploring"])
def test_frequencies_are_the_probabilities(space, exploration):
    found = make(space)
    found.exploration = exploration
    outputs = np.tile(np.random.default_rng(1).normal(size=(1, found.outputs)).astype(np.float32), (60_000, 1))
    choice = found.sample(outputs, np.empty(0, np.float32), None, new_generator(3), False)
    log_prob = found.differentiate(outputs, np.empty(0, np.float32), choice, None).log_prob
    values, index, counts = np.unique(choice, axis=0, return_index=True, return_counts=True)
    probabilities = np.exp(log_prob[index])
    assert len(values) > 2
    assert probabilities.sum() == pytest.approx(1, abs=1e-4)  # every choice was seen
    np.testing.assert_allclose(counts / 60_000, probabilities, atol=0.01)


def test_exploration_draws_evenly_from_what_is_allowed():
    found = make(gym_spaces.Discrete(4))
    found.exploration = 1.0
    outputs = np.tile(np.array([9.0, 0.0, -9.0, 3.0], np.float32), (30_000, 1))
    mask = np.tile(np.array([1, 0, 1, 1], np.int8), (30_000, 1))
    choice = found.sample(outputs, np.empty(0, np.float32), mask, new_generator(3), False)
    np.testing.assert_allclose(np.bincount(choice.ravel().astype(int)) / 30_000, [1 / 3, 0, 1 / 3, 1 / 3], atol=0.01)
    slopes = found.differentiate(outputs, np.empty(0, np.float32), choice, mask)
    np.testing.assert_allclose(np.exp(slopes.log_prob), 1 / 3, rtol=1e-5)


def test_entropy_is_the_mean_of_minus_the_log_probability():
    for space in (gym_spaces.MultiDiscrete([2, 4]), gym_spaces.MultiBinary(3), gym_spaces.Box(-1, 1, (2,))):
        found = make(space, log_std=-0.5)
        outputs = np.tile(np.random.default_rng(1).normal(size=(1, found.outputs)).astype(np.float32), (60_000, 1))
        free = np.array(found.parameters, np.float32)
        choice = found.sample(outputs, free, None, new_generator(3), False)
        slopes = found.differentiate(outputs, free, choice, None)
        assert -slopes.log_prob.mean() == pytest.approx(slopes.entropy[0], abs=0.02)


def test_gaussians_have_the_right_mean_and_deviation():
    found = make(gym_spaces.Box(-10, 10, (1,)), log_std=np.log(0.05))
    outputs = np.full((20_000, 1), 0.3, np.float32)
    choice = found.sample(outputs, np.array(found.parameters, np.float32), None, new_generator(0), False)
    actions = found.actions(choice)
    assert actions.mean() == pytest.approx(3.0, abs=0.02)  # 0.3 of the way from the middle to the bound
    assert actions.std() == pytest.approx(0.5, abs=0.02)


def test_actions_are_clipped_but_choices_are_not():
    found = make(gym_spaces.Box(0, 4, (1,)))
    choice = np.array([[-3.0], [0.0], [3.0]], np.float32)
    assert found.actions(choice).ravel().tolist() == [0, 2, 4]


@pytest.mark.parametrize("space", [gym_spaces.Discrete(6), gym_spaces.MultiDiscrete([4, 2])], ids=str)
@pytest.mark.parametrize("deterministic", [False, True], ids=["sampled", "mode"])
def test_forbidden_actions_are_never_chosen_and_get_no_gradient(space, deterministic):
    found = make(space, found_flags(space))
    mask = masks(found, 5000)
    mask[:, [0, 4]] = 1  # in every run of flags something is allowed
    outputs, free, choice = draw(found, 5000, mask=mask, deterministic=deterministic, scale=8.0)
    offsets = np.array([0]) if isinstance(space, gym_spaces.Discrete) else np.array([0, 4])
    chosen = choice.astype(int) + offsets
    assert np.take_along_axis(mask, chosen, 1).all()
    logits = torch.from_numpy(outputs).requires_grad_()
    again, entropy = found.evaluate(logits, torch.from_numpy(free), torch.from_numpy(choice), torch.from_numpy(mask))
    (again.sum() + entropy.sum()).backward()
    by_hand, _ = found.differentiate(outputs, free, choice, mask).backward(np.ones(5000, np.float32), 1.0)
    for slopes in (logits.grad.numpy(), by_hand):
        assert np.isfinite(slopes).all()
        assert not slopes[mask == 0].any()


def found_flags(space):
    return make(space).flags


@pytest.mark.parametrize("space", [gym_spaces.Discrete(6), gym_spaces.MultiDiscrete([4, 2])], ids=str)
def test_a_lane_that_allows_nothing_gets_some_member_of_the_space(space):
    """An entity that does not act may come with an empty mask; its answer is ignored, but must be well-formed."""
    found = make(space)
    nothing = np.zeros((500, found.flags), np.int8)
    outputs, free, choice = draw(found, 500, mask=nothing)
    assert np.isfinite(found.differentiate(outputs, free, choice, nothing).log_prob).all()
    assert all(space.contains(action) for action in found.actions(choice))


def test_the_mode_is_the_likeliest_choice():
    found = make(gym_spaces.MultiDiscrete([3, 2]))
    outputs = np.array([[0.1, 0.9, 0.5, 2.0, 1.0]], np.float32)
    choice = found.sample(outputs, np.empty(0, np.float32), None, new_generator(0), True)
    assert choice.tolist() == [[1, 0]]


def test_spaces_and_masks_that_cannot_be_served_are_named():
    with pytest.raises(ConfigError, match="entity 'a': this policy cannot choose from Text"):
        make(gym_spaces.Text(4))
    with pytest.raises(ConfigError, match="cannot choose from Box.*uint8"):
        make(gym_spaces.Box(0, 255, (1,), np.uint8))
    with pytest.raises(ConfigError, match="expected an action mask of 6 flags .* found 5"):
        make(gym_spaces.MultiDiscrete([4, 2]), 5)
