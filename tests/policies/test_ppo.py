"""If these fail, PPO does not learn, learns something else with more workers, or forgets what it should keep."""

import math

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces as gym_spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from arena.common.errors import ConfigError
from arena.common.trees import map_tree
from arena.envs.interface import EntitySpaces
from arena.experience.rollout import Rollout
from arena.policies.compiled.adam import FlatAdam, l2_norm
from arena.policies.loader import build, load_weights
from arena.policies.local import Alone, Lockstep, train
from arena.policies.on_policy.ppo import PPO
from arena.policies.on_policy.settings import PPOSettings
from arena.tensors.weights import write_tensors

VECTOR = gym_spaces.Box(-1, 1, (3,))
SPACES = EntitySpaces("a", VECTOR, gym_spaces.Discrete(3))


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def make(lanes=4, seed=0, spaces=SPACES, **settings):
    return PPO(
        spaces, PPOSettings(**{"horizon": 16, "minibatches": 2, "epochs": 2, **settings}), lanes=lanes, seed=seed
    )


def vector(env, copies=8):
    return SyncVectorEnv(
        [env if callable(env) else lambda: gymnasium.make(env)] * copies, autoreset_mode=AutoresetMode.NEXT_STEP
    )


def policy_for(envs, seed=1, **settings):
    spaces = EntitySpaces("a", envs.single_observation_space, envs.single_action_space)
    return build("ppo", spaces, settings, lanes=envs.num_envs, seed=seed)


def play(policy, rollout, seed, slots=None, mask_size=0, start=True):
    """Fill a rollout with a random world: episodes end now and then, rewards are noise."""
    rng = np.random.default_rng(seed)
    lanes = slice(0, rollout.lanes)
    count, no = rollout.lanes, np.zeros(rollout.lanes, bool)
    over, masks = no, np.ones((count, mask_size), np.int8)
    for slot in range(rollout.horizon + 1):
        if slot or start:
            starts, over = (~no if slot == 0 else over), (rng.random(count) < 0.15) & ~over
            truncated = over & (rng.random(count) < 0.5)
            seen = rng.normal(size=(count, 3)).astype(np.float32)
            masks = np.maximum(rng.random((count, mask_size)) < 0.5, np.arange(mask_size) == 0).astype(np.int8)
            ended = over if slot else no
            rollout.observe(
                slot, lanes, seen, rng.normal(size=count), ended & ~truncated, ended & truncated, ~over, starts, masks
            )
        else:
            seen, starts, over = rollout.observations[0], rollout.starts[0], ~rollout.acting[0]
        if slot < rollout.horizon:
            rollout.decide(
                slot,
                lanes,
                policy.act(seen, action_mask=masks if mask_size else None, starts=starts, lanes=lanes, learning=True),
            )
        else:
            rollout.finish(lanes, policy.bootstrap(seen, starts=starts, lanes=lanes))
    policy.complete(rollout)
    return rollout


def rollout_for(policy, lanes=4, spaces=SPACES):
    return Rollout(spaces, policy.extras, horizon=policy.horizon, lanes=lanes)


def joined(rollouts, policy):
    """Return one rollout with the lanes of all."""
    whole = rollout_for(policy, sum(r.lanes for r in rollouts))
    for name in (
        "observations",
        "starts",
        "acting",
        "actions",
        "rewards",
        "terminated",
        "truncated",
        "valid",
        "next_slot",
    ):
        getattr(whole, name)[:] = np.concatenate([getattr(r, name) for r in rollouts], 1)
    for name, array in whole.extras.items():
        array[:] = np.concatenate([r.extras[name] for r in rollouts], 1)
    return whole


def flat(state):
    return torch.cat([tensor.double().flatten() for tensor in state.values()])


# Many workers


@pytest.mark.parametrize(
    "settings", [{}, {"lstm": 5}, {"gru": 5, "shared": True}, {"value_clip": 0.1, "entropy_coefficient": 0.01}], ids=str
)
def test_one_update_of_many_workers_equals_one_of_a_single_worker_on_all_their_data(settings):
    lanes = (2, 3, 1, 4)
    settings = {"epochs": 1, "minibatches": 1, "horizon": 24, **settings}
    weights = make(**settings).weights()

    def prepared(rank):
        policy = make(lanes[rank], seed=rank, **settings)
        policy.load_weights(weights)
        rollout = play(policy, rollout_for(policy, lanes[rank]), seed=rank)
        if rank == 2:
            rollout.valid[:] = False  # this one has nothing to learn from
        return policy, rollout

    workers = [prepared(rank) for rank in range(4)]
    single = make(sum(lanes), **settings)
    single.load_weights(weights)
    expected_metrics = single.learn(joined([rollout for _, rollout in workers], single), Alone())
    metrics = Lockstep(4).run(lambda member: workers[member.rank][0].learn(workers[member.rank][1], member))
    states = [policy.state_dict() for policy, _ in workers]
    for state, found in zip(states, metrics, strict=True):
        assert torch.equal(flat(state), flat(states[0])), "replicas differ"
        assert found == metrics[0], "workers report different metrics"
    assert (flat(states[0]) - flat(single.state_dict())).abs().max() < 1e-6
    assert (flat(weights) - flat(single.weights())).abs().max() > 1e-4, "nothing was learned"
    for name, value in expected_metrics.items():
        assert metrics[0][name] == pytest.approx(value, abs=1e-4, rel=1e-4), name


@pytest.mark.parametrize("settings", [{}, {"lstm": 4, "burn_in": 3}, {"gru": 4}], ids=str)
def test_replicas_stay_bit_identical_over_many_updates_with_their_own_experience(settings):
    weights = make(**settings).weights()

    def work(member):
        lanes = (1, 3, 2)[member.rank]
        policy = make(lanes, seed=member.rank, minibatches=5, epochs=3, **settings)
        policy.load_weights(weights)
        rollout = rollout_for(policy, lanes)
        for update in range(4):
            play(policy, rollout, seed=10 * member.rank + update, start=update == 0)
            rollout.valid[int(member.rank == 0) * update * 4 :] &= member.rank != 0
            policy.learn(rollout, member)
            rollout.begin()
        return policy.state_dict()

    states = Lockstep(3).run(work)
    assert torch.equal(flat(states[0]), flat(states[1])) and torch.equal(flat(states[0]), flat(states[2]))
    assert int(states[0]["updates"]) == 4


def test_the_whole_group_stops_an_update_by_the_kl_of_all():
    """One worker's experience alone would have continued, the other's would have stopped: no worker may deadlock."""
    weights = make().weights()

    def work(member):
        policy = make(4, seed=member.rank, epochs=20, learning_rate=0.02, target_kl=0.01)
        policy.load_weights(weights)
        rollout = play(policy, rollout_for(policy), seed=member.rank)
        metrics = policy.learn(rollout, member)
        return policy.optimizer.steps, metrics["kl"]

    (steps, kl), other = Lockstep(2).run(work)
    assert (steps, kl) == other
    assert 0 < steps < 40


@pytest.mark.parametrize(
    ("normalised", "message"),
    [(False, "update 1: rewards or values are not finite"), (True, "expected finite rewards for their running mean")],
)
def test_an_infinite_reward_of_one_worker_stops_all_of_them_with_the_same_message(normalised, message):
    weights = make().weights()

    def work(member):
        policy = make(4, seed=member.rank, normalize_rewards=normalised)
        policy.load_weights(weights)
        rollout = play(policy, rollout_for(policy), seed=member.rank)
        if member.rank == 1:
            rollout.rewards[rollout.valid.nonzero()[0][0]] = np.inf
        try:
            policy.learn(rollout, member)
        except FloatingPointError as error:
            return str(error)

    first, second = Lockstep(2).run(work)
    assert first == second and first.startswith(message)


def test_a_gradient_that_is_not_finite_is_named():
    spaces = EntitySpaces("a", VECTOR, gym_spaces.Box(-1, 1, (2,)))
    policy = make(spaces=spaces)
    rollout = play(policy, rollout_for(policy, spaces=spaces), seed=0)
    rollout.extras["choice"][:-1][rollout.valid] = (
        1e30  # its probability is 0, before and after: the ratio is not there
    )
    with np.errstate(all="ignore"):
        policy.complete(rollout)
    with np.errstate(all="ignore"), pytest.raises(FloatingPointError, match="update 1: loss/policy is not finite"):
        policy.learn(rollout, Alone())


@pytest.mark.parametrize("action", [gym_spaces.Discrete(3), gym_spaces.Box(-1, 1, (2,))], ids=str)
def test_weights_that_are_not_finite_are_noticed_when_acting(action):
    policy = make(spaces=EntitySpaces("a", VECTOR, action))
    with pytest.raises(FloatingPointError, match="after update 0: an action is not finite, first the observations"):
        policy.act(np.full((2, 3), np.nan, np.float32))
    policy.load_weights({name: torch.full_like(tensor, torch.nan) for name, tensor in policy.weights().items()})
    with pytest.raises(FloatingPointError, match="first the networks' outputs"):
        policy.act(np.zeros((2, 3), np.float32))


@pytest.mark.parametrize("lstm", [None, 8])
@pytest.mark.parametrize("mask", [None, [1, 0, 1]])
def test_probabilities_are_those_by_which_it_acts(lstm, mask):
    """Otherwise what is computed about a policy exactly would be about another one."""
    policy = make(spaces=SPACES if mask is None else SPACES._replace(mask_size=3), lstm=lstm)
    policy.load_weights({name: tensor + 0.3 * torch.randn(tensor.shape) for name, tensor in policy.weights().items()})
    seen = np.repeat(np.array([[0.9, -0.5, 0.1]], np.float32), 4000, 0)
    masks = None if mask is None else np.repeat(np.array([mask], np.int8), len(seen), 0)
    expected = policy.probabilities(seen[:1], None if masks is None else masks[:1])
    assert expected.shape == (1, 3) and np.isclose(expected.sum(), 1)
    assert mask is None or expected[0, 1] == 0
    actions = policy.act(seen, action_mask=masks).actions
    np.testing.assert_allclose(np.bincount(actions, minlength=3) / len(actions), expected[0], atol=0.04)


def test_probabilities_of_actions_that_cannot_be_listed_are_refused():
    with pytest.raises(ConfigError, match="expected a Discrete action space"):
        make(spaces=EntitySpaces("a", VECTOR, VECTOR)).probabilities(np.zeros((1, 3), np.float32))


def test_workers_with_equal_weights_explore_differently():
    one, two = make(seed=1), make(seed=2)
    two.load_weights(one.weights())
    seen = np.zeros((200, 3), np.float32)
    assert not np.array_equal(one.act(seen).actions, two.act(seen).actions)
    assert np.array_equal(one.act(seen, deterministic=True).actions, two.act(seen, deterministic=True).actions)


# What is learned from


@pytest.mark.parametrize("settings", [{}, {"lstm": 4}], ids=str)
def test_what_is_no_transition_has_no_influence(settings):
    def updated(spoil):
        policy = make(**settings)
        rollout = play(policy, rollout_for(policy), seed=3)
        idle = ~rollout.valid
        assert idle.any()
        if spoil:
            rollout.rewards[idle] = 1e3
            rollout.extras["choice"][:-1][idle] = 2.0
        return policy.learn(rollout, Alone()), policy.state_dict()

    (metrics, state), (spoiled_metrics, spoiled_state) = updated(False), updated(True)
    assert metrics == spoiled_metrics
    assert torch.equal(flat(state), flat(spoiled_state))
    assert metrics["samples"] < 16 * 4


def test_a_rollout_without_transitions_changes_nothing():
    policy = make()
    rollout = play(policy, rollout_for(policy), seed=0)
    rollout.valid[:] = False
    before = policy.weights()
    assert policy.learn(rollout, Alone())["samples"] == 0
    assert torch.equal(flat(policy.weights()), flat(before))


@pytest.mark.parametrize(
    "settings",
    [{"lstm": 6}, {"lstm": 6, "shared": True}, {"gru": 6, "burn_in": 5}, {"lstm": 6, "burn_in": 0}],
    ids=str,
)
def test_the_first_pass_of_an_update_finds_the_probabilities_that_acted(settings):
    """Memory is restored at the rollout's first slot and cleared at each start, so that every ratio begins at 1."""
    policy = make(epochs=1, minibatches=1, learning_rate=0.01, **settings)
    rollout = rollout_for(policy)
    for update in range(4):
        play(policy, rollout, seed=update, start=update == 0)
        metrics = policy.learn(rollout, Alone())
        assert metrics["kl"] == pytest.approx(0, abs=1e-6) and metrics["clip_fraction"] == 0
        rollout.begin()


def test_burn_in_brings_the_memory_up_to_date():
    """The lanes' states after an update are those of the new weights after the last slots."""
    policy = make(lstm=6, learning_rate=0.05)
    rollout = play(policy, rollout_for(policy), seed=0)
    stale = policy.worker_state()["memory"]
    policy.learn(rollout, Alone())
    fresh = policy.worker_state()["memory"]
    assert np.abs(stale - fresh).max() > 1e-3
    again = make(lstm=6)
    again.load_weights(policy.weights())
    for slot in range(16):
        again.act(rollout.observations[slot], starts=rollout.starts[slot], lanes=slice(0, 4))
    np.testing.assert_allclose(again.worker_state()["memory"], fresh, atol=1e-6)


def test_looking_at_the_last_observation_does_not_advance_the_memory():
    policy = make(lstm=6)
    seen = np.ones((4, 3), np.float32)
    policy.act(seen, lanes=slice(0, 4))
    before = policy.worker_state()["memory"]
    policy.bootstrap(seen, lanes=slice(0, 4))
    policy.act(seen)  # without lanes nothing is remembered either
    assert np.array_equal(policy.worker_state()["memory"], before)


def test_weights_with_one_memory_behind_the_hidden_layers_are_refused_with_a_way_out():
    policy = make(lstm=6)
    old = {"memory.read.weight": np.zeros((24, 64), np.float32), "actor.hidden.0.weight": np.zeros((64, 3), np.float32)}
    with pytest.raises(ConfigError, match="one memory behind them, for policy and value.*Train again.*shared: true"):
        policy.load_weights(old)
    with pytest.raises(ConfigError, match="one memory behind them, for policy and value.*Train again.*shared: true"):
        policy.load_state_dict({f"network.{name}": array for name, array in old.items()})


def test_schedules_follow_the_progress():
    policy = make(learning_rate=1e-3, learning_rate_schedule="linear")
    rollout = play(policy, rollout_for(policy), seed=0)
    policy.set_progress(0.25)
    assert policy.learn(rollout, Alone())["learning_rate"] == pytest.approx(0.75e-3)
    before = policy.weights()
    policy.set_progress(1.0)
    assert policy.learn(rollout, Alone())["learning_rate"] == 0
    assert torch.equal(flat(policy.weights()), flat(before))
    assert make(learning_rate=1e-3, learning_rate_schedule="constant").settings.after(0.25).learning_rate == 1e-3
    later = make(clip_schedule="linear", entropy_schedule="linear", entropy_coefficient=0.4).settings.after(0.25)
    assert (later.clip, later.entropy_coefficient) == (pytest.approx(0.15), pytest.approx(0.3))


def test_long_gradients_are_cut_to_the_bound():
    free, bound = make(epochs=1, minibatches=1, max_grad_norm=None), make(epochs=1, minibatches=1, max_grad_norm=0.01)
    for policy in (free, bound):
        rollout = play(policy, rollout_for(policy), seed=0)
        assert policy.learn(rollout, Alone())["grad_norm"] > 0.01  # reported as it was
    assert free.optimizer.first.norm() > 0.011 / 10
    assert bound.optimizer.first.norm().item() == pytest.approx(0.01 * 0.1, rel=1e-3)


def test_metrics_are_those_that_records_know():
    policy = make()
    metrics = policy.learn(play(policy, rollout_for(policy), seed=0), Alone())
    assert set(metrics) == {
        "loss/policy",
        "loss/value",
        "entropy",
        "entropy_share",
        "kl",
        "clip_fraction",
        "explained_variance",
        "learning_rate",
        "samples",
        "grad_norm",
    }
    assert all(type(value) is float for value in metrics.values())


# What is kept


@pytest.mark.parametrize("settings", [{}, {"lstm": 4, "burn_in": 2}, {"gru": 4}, {"lstm": 4, "shared": True}], ids=str)
def test_a_restored_policy_goes_on_bit_for_bit(settings):
    def go_on(policy, rollout, seeds):
        for seed in seeds:
            play(policy, rollout, seed=seed, start=False)
            policy.set_progress(seed / 10)
            policy.learn(rollout, Alone())
            rollout.begin()

    policy = make(**settings)
    rollout = play(policy, rollout_for(policy), seed=0)
    policy.learn(rollout, Alone())
    rollout.begin()
    go_on(policy, rollout, range(1, 3))
    state, own = policy.state_dict(), policy.worker_state()
    assert all(isinstance(tensor, torch.Tensor) for tensor in state.values())

    restored = make(seed=77, **settings)
    restored.load_state_dict(state)
    restored.load_worker_state(own)
    copy = rollout_for(restored)
    for name in ("observations", "acting", "starts"):
        getattr(copy, name)[-1] = getattr(rollout, name)[0]
    copy.begin()
    go_on(policy, rollout, range(3, 6))
    go_on(restored, copy, range(3, 6))
    assert torch.equal(flat(policy.state_dict()), flat(restored.state_dict()))
    assert int(policy.state_dict()["updates"]) == 6
    for name, array in policy.worker_state().items():
        assert np.array_equal(array, restored.worker_state()[name]), name


def test_a_state_is_a_copy():
    policy = make()
    state = flat(policy.state_dict()).clone()
    kept = policy.state_dict()
    policy.learn(play(policy, rollout_for(policy), seed=0), Alone())
    assert torch.equal(flat(kept), state)


def test_snapshots_and_checkpoints_load_from_files(tmp_path):
    policy = make(seed=5)
    seen = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    expected = policy.bootstrap(seen)
    for name, tensors in {"snapshot": policy.weights(), "checkpoint": policy.state_dict()}.items():
        write_tensors(tmp_path / f"{name}.safetensors", tensors)
        other = make(seed=6)
        assert not np.allclose(other.bootstrap(seen), expected)
        load_weights(other, tmp_path / f"{name}.safetensors")
        assert np.array_equal(other.bootstrap(seen), expected)


def test_weights_of_another_shape_are_refused_with_file_and_tensor_named(tmp_path):
    write_tensors(tmp_path / "w.safetensors", make(hidden=(32, 64)).weights())
    with pytest.raises(
        ConfigError, match=r"w.safetensors: .*expected actor.hidden.0.weight of shape \(64, 3\), found "
    ):
        load_weights(make(), tmp_path / "w.safetensors")


def test_settings_are_checked():
    with pytest.raises(ConfigError, match="settings of policy 'ppo'.*learning_rates"):
        build("ppo", SPACES, {"learning_rates": 1}, lanes=1, seed=0)
    with pytest.raises(ConfigError, match="burn_in brings a memory up to date"):
        build("ppo", SPACES, {"burn_in": 3}, lanes=1, seed=0)
    with pytest.raises(ConfigError, match="expected one that acts without an environment"):
        build("sb3", SPACES, {}, lanes=1, seed=0)


# Learning


@pytest.mark.parametrize("use", ["ppo", "dqn"])
def test_learns_cartpole_by_its_defaults_within_seconds(use):
    envs = vector("CartPole-v1")
    spaces = EntitySpaces("a", envs.single_observation_space, envs.single_action_space)
    returns = train(
        build(use, spaces, {}, lanes=envs.num_envs, seed=1),
        envs,
        40_000,
        seed=1,
        after_update=lambda steps, returns, metrics: len(returns) >= 50 and np.mean(returns[-50:]) > 150,
    )
    assert np.mean(returns[-50:]) > 150


class Recall(gymnasium.Env):
    """A cue at the first step, to be answered at the sixth."""

    observation_space = gym_spaces.Box(-1, 1, (2,))
    action_space = gym_spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.step_number, self.cue = 0, int(self.np_random.integers(2))
        return np.array([2 * self.cue - 1, 0], np.float32), {}

    def step(self, action):
        self.step_number += 1
        over = self.step_number == 6
        reward = 0.0 if not over else 1.0 if action == self.cue else -1.0
        return np.array([0, self.step_number == 5], np.float32), reward, over, False, {}


@pytest.mark.parametrize(
    ("memory", "solves"),
    [({"lstm": 16, "burn_in": 8}, True), ({"gru": 16}, True), ({"lstm": 16, "shared": True}, True), ({}, False)],
    ids=str,
)
def test_a_memory_remembers_what_a_perceptron_cannot(memory, solves):
    envs = vector(Recall)
    policy = policy_for(
        envs,
        **memory,
        hidden=(16,),
        horizon=32,
        learning_rate=5e-3,
        minibatches=2,
        gamma=0.95,
    )
    returns = train(
        policy,
        envs,
        12_000,
        seed=1,
        after_update=lambda steps, returns, metrics: len(returns) >= 100 and np.mean(returns[-100:]) > 0.9,
    )
    assert (np.mean(returns[-100:]) > 0.9) == solves


class Target(gymnasium.Env):
    """One step: the best action is the two numbers of the observation, within bounds that are not -1 and 1."""

    observation_space = gym_spaces.Dict(target=gym_spaces.Box(0, 4, (2,)))
    action_space = gym_spaces.Box(0, 4, (2,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.target = self.np_random.uniform(1, 3, 2).astype(np.float32)
        return {"target": self.target}, {}

    def step(self, action):
        return {"target": self.target}, -float(np.square(action - self.target).sum()), True, False, {}


@pytest.mark.tier("all")
def test_learns_continuous_actions_from_dict_observations():
    envs = vector(Target)
    policy = policy_for(envs, horizon=64, learning_rate=3e-3, epochs=5, gamma=0.0, log_std_init=-0.7)
    returns = train(policy, envs, 12_000, seed=1)
    assert np.mean(returns[:100]) < -1.5
    assert np.mean(returns[-100:]) > -0.4


def test_learns_with_action_masks_and_never_breaks_them():
    """Three of six actions are allowed at a time; the lowest of those pays."""
    spaces = EntitySpaces("a", gym_spaces.MultiBinary(6), gym_spaces.Discrete(6), 6)
    policy = make(16, spaces=spaces, horizon=16, learning_rate=3e-3, minibatches=4, epochs=4, gamma=0.0)
    rollout = rollout_for(policy, 16, spaces)
    rng, lanes, no = np.random.default_rng(0), slice(0, 16), np.zeros(16, bool)

    def deal():
        return (rng.permuted(np.tile([1, 1, 1, 0, 0, 0], (16, 1)), axis=1)).astype(np.int8)

    mask, paid = deal(), []
    rollout.observe(0, lanes, mask, np.zeros(16), no, no, ~no, ~no, mask)
    for _ in range(25):
        for slot in range(16):
            decision = policy.act(mask, action_mask=mask, lanes=lanes, learning=True)
            assert mask[np.arange(16), decision.actions].all()
            rollout.decide(slot, lanes, decision)
            rewards = (decision.actions == mask.argmax(1)).astype(float)
            paid.append(rewards.mean())
            mask = deal()
            rollout.observe(slot + 1, lanes, mask, rewards, no, no, ~no, no, mask)
        rollout.finish(lanes, policy.bootstrap(mask, action_mask=mask))
        policy.complete(rollout)
        policy.learn(rollout, Alone())
        rollout.begin()
    assert np.mean(paid[:16]) < 0.5
    assert np.mean(paid[-16:]) > 0.9


@pytest.mark.parametrize(
    "observation",
    [gym_spaces.Box(0, 255, (10, 10, 3), np.uint8), gym_spaces.Dict(a=VECTOR, b=gym_spaces.Discrete(4))],
    ids=["image", "dict"],
)
@pytest.mark.parametrize(
    "action",
    [gym_spaces.MultiDiscrete([2, 3]), gym_spaces.Tuple([gym_spaces.Discrete(2), gym_spaces.Box(-1, 1, (1,))])],
    ids=["multi-discrete", "tuple"],
)
@pytest.mark.parametrize("memory", [{}, {"lstm": 4}, {"gru": 4, "shared": True}], ids=str)
def test_any_space_goes_through_a_whole_update(observation, action, memory):
    spaces = EntitySpaces("a", observation, action)
    policy = make(2, spaces=spaces, epochs=1, minibatches=1, **memory)
    rollout = rollout_for(policy, 2, spaces)
    lanes, no = slice(0, 2), np.zeros(2, bool)
    from gymnasium.vector.utils import batch_space

    batches = batch_space(observation, 2)
    for slot in range(17):
        seen = map_tree(np.asarray, batches.sample())
        rollout.observe(slot, lanes, seen, np.ones(2), no, no, ~no, no)
        if slot < 16:
            rollout.decide(slot, lanes, policy.act(seen, starts=no, lanes=lanes, learning=True))
        else:
            rollout.finish(lanes, policy.bootstrap(seen, starts=no, lanes=lanes))
    policy.complete(rollout)
    metrics = policy.learn(rollout, Alone())
    assert metrics["samples"] == 32
    assert metrics["kl"] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("size", [1, 63, 64, 1_000, 9_155])
def test_the_length_of_a_gradient_is_torch_s(size):
    gradient = torch.randn(size, generator=torch.Generator().manual_seed(size))
    assert l2_norm(gradient) == pytest.approx(gradient.double().norm().item(), rel=1e-6)
    for odd in (float("inf"), float("nan"), 1e20):
        gradient[size // 2] = odd
        assert not math.isfinite(l2_norm(gradient))


def test_adam_takes_the_steps_of_torch_s():
    mine, theirs = (torch.nn.Linear(1_000, 1, bias=False) for _ in range(2))
    theirs.load_state_dict(mine.state_dict())
    ours, reference = FlatAdam(mine, 1e-5), torch.optim.Adam(theirs.parameters(), lr=1e-3, eps=1e-5)
    random = torch.Generator().manual_seed(1)
    for _ in range(20):
        gradient = torch.randn(1_000, generator=random)
        ours.step(gradient, 1e-3, scale=0.5)
        theirs.weight.grad = 0.5 * gradient.reshape(1, -1)
        reference.step()
    torch.testing.assert_close(mine.weight, theirs.weight, rtol=1e-5, atol=1e-7)
