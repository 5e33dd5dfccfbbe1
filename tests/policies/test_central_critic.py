"""If these fail, a central critic reads something else than the global state, or acting depends on it."""

import numpy as np
import pytest
import torch
from gymnasium import spaces as gym_spaces

from arena.common.trees import map_space, map_tree, put, tree_leaves
from arena.envs.interface import EntitySpaces
from arena.experience.rollout import Rollout
from arena.policies.loader import build
from arena.policies.local import Alone
from arena.policies.on_policy.paths import CompiledPath, TorchPath
from arena.policies.on_policy.ppo import PPO
from arena.policies.on_policy.settings import PPOSettings
from arena.policies.on_policy.value_scale import ValueScale

OWN = gym_spaces.Box(-1, 1, (3,), np.float32)
STATES = {
    "vector": gym_spaces.Box(-1, 1, (2, 2), np.float64),
    "bytes": gym_spaces.Box(0, 255, (4,), np.uint8),
    "nested": gym_spaces.Dict(goal=gym_spaces.Discrete(3), rest=gym_spaces.Box(-1, 1, (2,), np.float32)),
}
LANES = 4


def spaces(state="vector", action=None):
    return EntitySpaces("a", OWN, action or gym_spaces.Discrete(3), global_state=STATES[state])


def make(state="vector", seed=0, **settings):
    usual = {"horizon": 16, "minibatches": 2, "epochs": 2, "critic": "central", "normalize_rewards": False}
    return PPO(spaces(state), PPOSettings(**{**usual, **settings}), lanes=LANES, seed=seed)


def play(policy, seed=1, reward=None, rollout=None):
    """Fill a rollout with noise; ``reward`` returns the rewards of all lanes, given the state that they acted in."""
    rng = np.random.default_rng(seed)
    space = policy._spaces.global_state
    fresh = rollout is None
    if fresh:
        rollout = Rollout(policy._spaces, policy.extras, horizon=policy.horizon, lanes=LANES)
    lanes, no = slice(0, LANES), np.zeros(LANES, bool)
    over, earned = no, np.zeros(LANES)

    def leaf(sub):
        if isinstance(sub, gym_spaces.Box) and sub.dtype != np.uint8:
            return rng.normal(size=(LANES, *sub.shape)).astype(sub.dtype)
        return rng.integers(0, 255 if sub.dtype == np.uint8 else sub.n, (LANES, *sub.shape)).astype(sub.dtype)

    for slot in range(rollout.horizon + 1):
        starts, over = (~no if slot == 0 else over), (rng.random(LANES) < 0.1) & ~over
        ended = over if slot else no
        seen = rng.normal(size=(LANES, 3)).astype(np.float32)
        state = map_space(space, leaf)
        if slot or fresh:
            rollout.observe(slot, lanes, seen, earned, ended, no, ~over, starts, None, None, state)
        earned = rng.normal(size=LANES) if reward is None else reward(state)
        if slot < rollout.horizon:
            starts = rollout.starts[slot]
            decision = policy.act(rollout.observations[slot], starts=starts, lanes=lanes, learning=True)
            rollout.decide(slot, lanes, decision)
        else:
            rollout.finish(lanes, policy.bootstrap(seen, starts=starts, lanes=lanes))
    policy.complete(rollout)
    return rollout


def weights_after(policy, rollout):
    policy.learn(rollout, Alone())
    return torch.cat([tensor.double().flatten() for tensor in policy.weights().values()])


@pytest.mark.parametrize("state", ["vector", "bytes"])
@pytest.mark.parametrize(
    "settings",
    [{}, {"value_normalization": False}, {"value_clip": 0.1}, {"normalize_observations": True}],
    ids=str,
)
def test_the_compiled_path_learns_what_torch_does(state, settings):
    fast, slow = (make(state, **settings) for _ in range(2))
    assert isinstance(fast._path, CompiledPath)
    slow._path = TorchPath(slow.networks, slow.distribution, slow.gradient)
    for number in range(3):
        rollouts = [play(policy, seed=number) for policy in (fast, slow)]
        for name in ("choice", "log_prob", "value"):
            np.testing.assert_allclose(rollouts[0].extras[name][:16], rollouts[1].extras[name][:16], atol=2e-5)
        torch.testing.assert_close(
            *(weights_after(policy, rollout) for policy, rollout in zip((fast, slow), rollouts, strict=True)),
            atol=2e-5,
            rtol=1e-4,
        )


@pytest.mark.parametrize("state", list(STATES))
@pytest.mark.parametrize("memory", [{}, {"lstm": 8}, {"gru": 8}], ids=str)
def test_values_are_those_of_the_state_and_the_first_pass_finds_the_probabilities_that_acted(state, memory):
    policy = make(state, **memory)
    rollout = play(policy)
    value = rollout.extras["value"].copy()
    assert value.std() > 0.01
    tensors = map_tree(lambda array: torch.from_numpy(array[:16].reshape(-1, *array.shape[2:])), rollout.observations)
    states = map_tree(lambda array: torch.from_numpy(array[:16].reshape(-1, *array.shape[2:])), rollout.global_state)
    memories = torch.from_numpy(rollout.extras["memory"][0]) if memory else None
    starts = torch.from_numpy(rollout.starts[:16]) if memory else None
    with torch.no_grad():
        expected = policy.networks(tensors, starts, memories, states).values.numpy().reshape(16, LANES)
    np.testing.assert_allclose(value[:16], expected, atol=1e-5)
    metrics = make(state, epochs=1, minibatches=1, **memory).learn(rollout, Alone())
    assert abs(metrics["kl"]) < 1e-6
    for leaf in tree_leaves(rollout.global_state):
        put(leaf, slice(None), leaf[::-1].copy())
    policy.load_worker_state(make(state, **memory).worker_state())
    policy.complete(rollout)
    assert np.abs(rollout.extras["value"] - value).max() > 0.01, "the values do not depend on the state"


def test_a_memory_is_brought_up_to_date_for_policy_and_critic():
    policy = make(lstm=8)
    rollout = play(policy)
    before = policy._states.clone()
    policy.learn(rollout, Alone())
    with torch.no_grad():
        tensors = torch.from_numpy(rollout.observations[:16]).flatten(0, 1)
        states = torch.from_numpy(rollout.global_state[:16]).flatten(0, 1)
        memories = torch.from_numpy(rollout.extras["memory"][0])
        expected = policy.networks(tensors, torch.from_numpy(rollout.starts[:16]), memories, states).state
    torch.testing.assert_close(policy._states, expected)
    assert (policy._states != before).any(2).any(0).all()


def test_the_critic_explains_returns_that_only_the_state_shows():
    explained = {}
    for critic in ("own", "central"):
        policy = make(critic=critic, gamma=0.0, horizon=64, epochs=10, minibatches=4, learning_rate=3e-3)
        for number in range(12):
            rollout = play(policy, number, reward=lambda state: 10 * np.sign(state[:, 0, 0]))
            explained[critic] = policy.learn(rollout, Alone())["explained_variance"]
    assert explained["central"] > 0.8 and explained["own"] < 0.2, explained


def test_what_acts_needs_no_state_and_takes_the_same_weights():
    learner = make(seed=3)
    learner.learn(play(learner), Alone())
    player = build("ppo", spaces()._replace(global_state=None), dict(learner.settings), lanes=LANES, seed=9)
    player.load_weights(learner.weights())
    seen = np.random.default_rng(0).normal(size=(LANES, 3)).astype(np.float32)
    decisions = [policy.act(seen, deterministic=True).actions for policy in (learner, player)]
    np.testing.assert_array_equal(*decisions)
    np.testing.assert_array_equal(learner.probabilities(seen), player.probabilities(seen))
    names = [tensor.name for tensor in learner.inference().inputs]
    assert names == [tensor.name for tensor in player.inference().inputs] == ["observation"]


@pytest.mark.parametrize("shared", [True, "encoder"])
def test_a_central_critic_shares_nothing(shared):
    with pytest.raises(ValueError, match="expected shared: false or null"):
        PPOSettings(critic="central", shared=shared)


def test_a_new_variance_changes_no_value_and_a_new_mean_changes_all_alike():
    head, scale = torch.nn.Linear(4, 1), ValueScale()
    features = torch.randn(6, 4)
    for mean, variance in ((-300.0, 5_000.0), (-200.0, 1_000.0), (5.0, 1.0)):
        before = scale.values(head(features).detach().numpy())
        change = scale.recenter(mean)
        scale.rescale(variance, head)
        np.testing.assert_allclose(scale.values(head(features).detach().numpy()), before + change, rtol=1e-4, atol=1e-3)
        targets = np.float32([1.5, -400])
        np.testing.assert_allclose(scale.values(scale.outputs(targets)), targets, rtol=1e-4)


@pytest.mark.parametrize("ends", [False, True])
def test_the_mean_value_is_that_which_agrees_with_its_targets(ends):
    """A reward of -1 in each step: -1 / (1 - gamma) for ever, and less where episodes end."""
    policy = make(gamma=0.9, horizon=64, learning_rate=1e-9)
    rollout = play(policy, reward=lambda state: -np.ones(LANES))
    if not ends:
        rollout.truncated |= rollout.terminated
        rollout.terminated[:] = False
    rollout.rewards[rollout.valid] = -1
    policy.learn(rollout, Alone())
    mean, _ = policy.networks.value_scale.numbers()
    assert mean == pytest.approx(-10, rel=1e-4) if not ends else -9 < mean < -4


def test_normalised_values_learn_large_returns_that_others_do_not():
    explained = {}
    for normalised in (False, True):
        policy = make(value_normalization=normalised, gamma=0.0, horizon=64, epochs=10, minibatches=4)
        for number in range(12):
            rollout = play(policy, number, reward=lambda state: 300 + 100 * np.sign(state[:, 0, 0]))
            explained[normalised] = policy.learn(rollout, Alone())["explained_variance"]
    assert explained[True] > 0.5 > explained[False], explained
