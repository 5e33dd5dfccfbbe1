"""If these fail, a policy acts, learns, is judged or is exported by other statistics than those that belong to it."""

import copy

import numpy as np
import pytest
import torch
from gymnasium import spaces as gym_spaces
from torch import nn

from arena.common.errors import ConfigError
from arena.policies.encoders.composite import Encoder, share_normalization
from arena.policies.loader import load_weights
from arena.policies.local import Alone, Lockstep
from arena.policies.normalization import Normalization
from arena.policies.on_policy.reward_scale import RewardScale
from arena.policies.on_policy.settings import PPOSettings
from arena.policies.settings.networks import EncoderSettings
from arena.tensors.weights import write_tensors
from tests.policies import test_multi_agent as teams
from tests.policies import test_off_policy as off_policy
from tests.policies import test_ppo as ppo
from tests.policies.policy_cases import IMAGE

ON = {"normalize_observations": True}


def statistics(policy):
    return {name: tensor for name, tensor in policy.weights().items() if ".normalization." in name}


def learned(policy, updates=3, seed=0):
    """Let a policy of ``ppo`` learn; return it, and the observations of valid transitions by update."""
    rollout, seen = ppo.rollout_for(policy), []
    for number in range(updates):
        ppo.play(policy, rollout, seed + number, start=number == 0)
        rollout.observations *= [3, 100, 0.1]
        policy.complete(rollout)
        seen.append(rollout.observations[:-1][rollout.valid].astype(np.float64))
        policy.learn(rollout, Alone())
        rollout.begin()
    return policy, seen


# Statistics


def test_statistics_are_those_of_all_transitions_that_were_learned_from():
    policy, seen = learned(ppo.make(**ON))
    rows = np.concatenate(seen)
    found = statistics(policy)
    prefix = "actor.encoder.leaves.0.normalization."
    assert found[prefix + "count"] == len(rows)
    np.testing.assert_allclose(found[prefix + "mean"], rows.mean(0), rtol=1e-9)
    np.testing.assert_allclose(found[prefix + "shift"], rows.mean(0), rtol=1e-6)
    np.testing.assert_allclose(found[prefix + "factor"], 1 / rows.std(0), rtol=1e-5)
    assert len(found) == 5  # policy and value network have the same
    assert policy.networks.critic.encoder.normalizations == policy.networks.encoder.normalizations


def test_workers_with_other_lanes_and_without_transitions_have_equal_statistics_of_all():
    weights = ppo.make(**ON).weights()
    lanes, seen = (2, 1, 3), [None] * 3

    def work(member):
        policy = ppo.make(lanes[member.rank], seed=member.rank, **ON)
        policy.load_weights(weights)
        rollout, rows = ppo.rollout_for(policy, lanes[member.rank]), []
        for number in range(3):
            ppo.play(policy, rollout, 10 * member.rank + number, start=number == 0)
            if member.rank == 1:
                rollout.valid[:] = False
            rows.append(rollout.observations[:-1][rollout.valid])
            policy.learn(rollout, member)
            rollout.begin()
        seen[member.rank] = np.concatenate(rows)
        return policy

    policies = Lockstep(3).run(work)
    states = [policy.state_dict() for policy in policies]
    assert all(torch.equal(ppo.flat(states[0]), ppo.flat(state)) for state in states[1:])
    mean = next(tensor for name, tensor in statistics(policies[0]).items() if name.endswith("mean"))
    np.testing.assert_allclose(mean, np.concatenate(seen).astype(np.float64).mean(0), rtol=1e-9)


def test_the_first_rollout_is_measured_only_and_ratios_are_one_in_the_first_epoch():
    policy = ppo.make(lanes=4, epochs=1, minibatches=1, **ON)
    rollout = ppo.rollout_for(policy)
    ppo.play(policy, rollout, 0)
    before = policy.weights()
    assert policy.learn(rollout, Alone())["samples"] == 0
    changed = {name for name, tensor in policy.weights().items() if not torch.equal(tensor, before[name])}
    assert changed and changed <= statistics(policy).keys()
    rollout.begin()
    ppo.play(policy, rollout, 1, start=False)
    metrics = policy.learn(rollout, Alone())
    assert metrics["samples"] > 0 and metrics["kl"] == pytest.approx(0, abs=1e-6) and metrics["clip_fraction"] == 0
    started = ppo.make(**ON)
    started.load_weights(policy.weights())
    ppo.play(started, rollout, 2)
    assert started.learn(rollout, Alone())["samples"] > 0  # a warm start has a scale


def test_acting_never_changes_statistics():
    policy, _ = learned(ppo.make(**ON))
    before = policy.state_dict()
    for seed in range(3):
        policy.act(np.random.default_rng(seed).normal(size=(4, 3)).astype(np.float32) + 50)
        policy.probabilities(np.full((4, 3), 9, np.float32))
    assert torch.equal(ppo.flat(before), ppo.flat(policy.state_dict()))


def test_a_number_that_is_not_finite_stops_all_workers():
    policy, rollout = ppo.make(**ON), None
    rollout = ppo.play(policy, ppo.rollout_for(policy), 0)
    rollout.observations[3, 1, 0] = np.inf
    with pytest.raises(FloatingPointError, match="expected finite observations"):
        policy.learn(rollout, Alone())


def test_results_are_bounded_and_a_constant_that_moves_does_not_explode():
    normalization = Normalization(2, 10.0)
    normalization.add(np.array([[5.0, 0.0], [5.0, 2.0]]), Alone())
    x = normalization(torch.tensor([[5.0, 1.0], [6.0, 3.0], [-1e9, float("nan")]]))
    assert x[:2].tolist() == [[0, 0], [10, pytest.approx(2)]]
    assert x[2, 0] == -10 and x[2, 1].isnan()
    empty = Normalization(2, 10.0)
    empty.add(np.zeros((0, 2)), Alone())
    assert empty.is_empty and empty(torch.tensor([[0.5, -20.0]])).tolist() == [[0.5, -10]]


def test_images_and_discrete_parts_are_left_alone():
    space = gym_spaces.Dict(
        {"image": IMAGE, "number": gym_spaces.Discrete(3), "flags": gym_spaces.MultiBinary(2), "x": ppo.VECTOR}
    )
    kinds = {"flags": None, "image": None, "number": None, "x": Normalization}
    encoder = Encoder(space, EncoderSettings(normalize_observations=True, observation_clip=3.0))
    for path, normalization in zip(encoder.paths, encoder.normalizations, strict=True):
        assert normalization is None if kinds[path[0]] is None else normalization.clip == 3
    with pytest.raises(ConfigError, match=r"expected an observation with a vector of numbers \(Box\), found Discrete"):
        ppo.make(spaces=ppo.SPACES._replace(observation=gym_spaces.Discrete(3)), **ON)
    with pytest.raises(ConfigError, match="leave it out"):
        off_policy.make("dqn", spaces=ppo.SPACES._replace(observation=IMAGE), **ON)


@pytest.mark.parametrize(
    ("space", "normalised"),
    [
        (gym_spaces.Box(-1, 1, (2,)), False),
        (gym_spaces.Box(0, 1, (2,), np.int8), False),
        (gym_spaces.Box(-1, np.inf, (2,)), True),
        (gym_spaces.Box(-8, 1, (2,), np.int64), True),
        (gym_spaces.Box(0, 255, (2,), np.uint8), False),
        (gym_spaces.Box(-np.inf, np.inf, (0,)), False),
    ],
    ids=str,
)
def test_ppo_normalises_vectors_beyond_one_by_default(space, normalised):
    (normalization,) = Encoder(space, PPOSettings()).normalizations
    assert (normalization is not None) is normalised
    assert Encoder(space, PPOSettings(normalize_observations=False)).normalizations == [None]


def test_a_larger_encoder_shares_the_statistics_of_the_first_leaves():
    own = Encoder(ppo.VECTOR, EncoderSettings(normalize_observations=True))
    both = Encoder(gym_spaces.Tuple((ppo.VECTOR, ppo.VECTOR)), EncoderSettings(normalize_observations=True))
    share_normalization(own, both)
    assert both.normalizations[0] is own.normalizations[0] and both.normalizations[1] is not own.normalizations[0]


# Files


def test_weights_in_a_file_act_the_same_and_files_of_before_load(tmp_path):
    policy, _ = learned(ppo.make(**ON))
    write_tensors(tmp_path / "on.safetensors", policy.weights())
    fresh = ppo.make(seed=9, **ON)
    load_weights(fresh, tmp_path / "on.safetensors")
    seen = np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32)
    assert np.array_equal(fresh.probabilities(seen), policy.probabilities(seen))
    plain = ppo.make()
    assert not statistics(plain)  # the names of tensors are those of before
    with pytest.raises(ConfigError, match=r"normalization.*use the settings that they were trained with"):
        load_weights(plain, tmp_path / "on.safetensors")


def test_a_snapshot_keeps_its_statistics_while_the_player_goes_on():
    policy, _ = learned(ppo.make(**ON))
    snapshot = policy.weights()
    kept = copy.deepcopy(snapshot)
    learned(policy, seed=7)
    assert all(torch.equal(snapshot[name], kept[name]) for name in kept)
    assert not torch.equal(ppo.flat(statistics(policy)), ppo.flat({name: kept[name] for name in statistics(policy)}))


def test_a_worker_apart_acts_by_the_statistics_of_the_version_that_it_has_received():
    learner, _ = learned(ppo.make(**ON))
    worker = ppo.make(seed=4, **ON)
    worker.load_weights(learner.weights())
    seen = np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32)
    version = worker.probabilities(seen)
    learned(learner, seed=8)
    assert np.array_equal(worker.probabilities(seen), version)
    worker.load_weights(learner.weights())
    assert np.array_equal(worker.probabilities(seen), learner.probabilities(seen))


# Algorithms with a replay


@pytest.mark.parametrize("use", off_policy.ALGORITHMS)
def test_all_networks_and_targets_have_the_same_statistics_of_all_rows(use):
    policy = off_policy.make(use, target_average=1e-9, **ON)  # targets that hardly move
    off_policy.learn_for(policy, 10, off_policy.SPACES[use])
    count = next(tensor for name, tensor in statistics(policy).items() if name.endswith("count"))
    assert count == len(policy.feed) > 100
    networks = nn.ModuleList([*policy.learned.values(), *policy.targets.values()])
    encoders = [module for module in networks.modules() if isinstance(module, Encoder)]
    assert len({id(encoder.normalizations[0]) for encoder in encoders}) == 1 and len(encoders) > 1
    assert sum(isinstance(module, Normalization) for module in networks.modules()) == 1
    assert sum(".normalization.count" in name for name in policy.state_dict()) == 1
    for name, target in policy.targets.items():  # with equal parameters, a target answers like its original
        target.load_state_dict(policy.learned[name].state_dict())
        twin, inputs = policy.learned[name], torch.randn(5, 3)
        arguments = (inputs, torch.randn(5, 2)) if name == "critics" and use in ("sac", "td3", "ddpg") else (inputs,)
        assert torch.equal(target(*arguments), twin(*arguments))


@pytest.mark.parametrize("use", off_policy.ALGORITHMS)
def test_workers_with_their_own_replay_have_equal_statistics(use):
    first = off_policy.make(use, **ON)

    def work(group):
        policy = off_policy.make(use, seed=group.rank, **ON)
        policy.load_state_dict(first.state_dict())
        off_policy.learn_for(policy, 6, off_policy.SPACES[use], group=group, seed=group.rank)
        return policy

    policies = Lockstep(2).run(work)
    assert not off_policy.same(*(policy.state_dict() for policy in policies))
    count = next(tensor for name, tensor in statistics(policies[0]).items() if name.endswith("count"))
    assert count == sum(len(policy.feed) for policy in policies)


@pytest.mark.parametrize("use", ["maddpg", "masac"])
@pytest.mark.parametrize("share", ["auto", "each"])
def test_observations_of_absent_entities_do_not_count_in_a_team(use, share):
    policy = teams.make(use, teams.spaces(*[teams.ACTIONS["discrete"]] * 3), share=share, **ON)
    for number in range(3):
        policy.learn(teams.fill(policy, teams.rollout_of(policy), number, gone=(1,)), Alone())
    own = policy.actors.of_kind[0][-1].encoder.normalizations[0]
    state = policy._state_encoders()[-1].normalizations[0]
    assert own.count == 2 * len(policy.feed) and state.count == len(policy.feed) > 0


# Rewards


def test_rewards_are_divided_by_the_deviation_of_the_discounted_sum_of_all_workers():
    gamma, random = 0.9, np.random.default_rng(0)
    lanes, scales = (2, 3), [RewardScale(10.0) for _ in range(2)]
    policies = [ppo.make(count, gamma=gamma) for count in lanes]
    rollouts = [ppo.rollout_for(policy, count) for policy, count in zip(policies, lanes, strict=True)]
    sums, running = [], [np.zeros(count) for count in lanes]
    for number in range(3):
        for rank, rollout in enumerate(rollouts):
            ppo.play(policies[rank], rollout, int(random.integers(1000)), start=number == 0)
            for t in range(rollout.horizon):
                running[rank][rollout.starts[t]] = 0
                valid = rollout.valid[t]
                running[rank][valid] = gamma * running[rank][valid] + rollout.rewards[t, valid]
                sums += running[rank][valid].tolist()
        scaled = Lockstep(2).run(lambda member: scales[member.rank].scaled(rollouts[member.rank], gamma, member))
        for rollout, result in zip(rollouts, scaled, strict=True):
            np.testing.assert_allclose(result, rollout.rewards / np.std(sums), rtol=1e-5)
            rollout.begin()
    assert torch.equal(*(scale.state_dict()["rewards"] for scale in scales))


def test_an_update_is_that_of_a_run_whose_environment_divides_its_rewards():
    scaling, plain = (ppo.make(normalize_rewards=on) for on in (True, False))
    rollouts = [ppo.play(policy, ppo.rollout_for(policy), 0) for policy in (scaling, plain)]
    rollouts[1].rewards[:] = RewardScale(10.0).scaled(rollouts[0], 0.99, Alone())
    for policy, rollout in zip((scaling, plain), rollouts, strict=True):
        policy.learn(rollout, Alone())
    assert torch.equal(ppo.flat(scaling.weights()), ppo.flat(plain.weights()))
    assert scaling.state_dict().keys() - plain.state_dict().keys() == {"rewards"}


def test_rewards_of_zero_and_large_ones_stay_within_bounds():
    policy = ppo.make()
    rollout = ppo.play(policy, ppo.rollout_for(policy), 0)
    rollout.rewards[:] = 0
    assert not RewardScale(10.0).scaled(rollout, 0.99, Alone()).any()
    rollout.rewards[rollout.valid] = 1e-3
    rollout.rewards[0, 0] = 1e6
    scaled = RewardScale(5.0).scaled(rollout, 0.99, Alone())
    assert scaled.dtype == np.float32 and scaled.max() == 5
    rollout.rewards[0, 0] = np.nan
    with pytest.raises(FloatingPointError, match="expected finite rewards"):
        RewardScale(5.0).scaled(rollout, 0.99, Alone())


def test_a_restored_policy_goes_on_bit_for_bit():
    first, _ = learned(ppo.make(normalize_rewards=True, **ON))
    second = ppo.make(seed=3, normalize_rewards=True, **ON)
    second.load_state_dict(first.state_dict())
    second.load_worker_state(first.worker_state())
    states = [learned(policy, seed=5)[0].state_dict() for policy in (first, second)]
    assert torch.equal(ppo.flat(states[0]), ppo.flat(states[1]))
    assert states[0]["rewards"][0] > 100
