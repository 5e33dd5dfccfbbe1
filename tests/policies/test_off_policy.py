"""If these fail, algorithms with a replay learn something else than their papers, or than one worker would."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces as gym_spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given
from hypothesis import strategies as st

from arena.common.errors import ConfigError
from arena.common.trees import map_space, tree_leaves
from arena.envs.interface import EntitySpaces
from arena.experience.rollout import Rollout
from arena.policies.loader import build, load_weights
from arena.policies.local import Alone, Lockstep, train
from arena.policies.off_policy.noise import PinkNoise
from arena.policies.off_policy.sac_box import squash
from arena.policies.off_policy.settings import SACSettings
from arena.tensors.weights import write_tensors

VECTOR = gym_spaces.Box(-1, 1, (3,))
CONTINUOUS = gym_spaces.Box(-2, 2, (2,))
SPACES = {
    "dqn": EntitySpaces("a", VECTOR, gym_spaces.Discrete(3, start=1)),
    "sac": EntitySpaces("a", VECTOR, CONTINUOUS),
    "sac, discrete": EntitySpaces("a", VECTOR, gym_spaces.Discrete(3, start=1)),
    "sac, masked choices": EntitySpaces("a", VECTOR, gym_spaces.MultiDiscrete([2, 4, 3], start=[0, 5, 1]), 9),
    "td3": EntitySpaces("a", VECTOR, CONTINUOUS),
    "ddpg": EntitySpaces("a", VECTOR, CONTINUOUS),
}
ALGORITHMS = list(SPACES)


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def make(use, lanes=4, seed=0, spaces=None, **settings):
    few = {"horizon": 8, "batch_size": 16, "warmup": 32, "capacity": 1000, "ratio": 0.5, "hidden": (16,), **settings}
    return build(use.partition(",")[0], spaces or SPACES[use], few, lanes=lanes, seed=seed)


def play(policy, rollout, seed, start=True):
    """Fill a rollout with a random world: episodes end now and then, rewards are noise."""
    random = np.random.default_rng(seed)
    lanes, count = slice(0, rollout.lanes), rollout.lanes
    over = np.zeros(count, bool)
    mask = rollout.action_mask
    for slot in range(rollout.horizon + 1):
        starts, over = (np.ones(count, bool) if start and slot == 0 else over), (random.random(count) < 0.15) & ~over
        observations = map_leaves(rollout.observations, lambda leaf: some(random, leaf[0]))
        allowed = None if mask is None else (random.random(mask[0].shape) < 0.5).astype(np.int8)
        if allowed is not None:
            allowed[:, 1::3] = 1  # of each choice, one at least
        rewards = random.normal(size=count) * ~starts
        if slot or start:
            cut = over & (random.random(count) < 0.5)
            rollout.observe(slot, lanes, observations, rewards, over & ~cut, cut, ~over, starts, allowed)
        else:
            observations = map_leaves(rollout.observations, lambda leaf: leaf[0])
        if slot < rollout.horizon:
            held = None if mask is None else rollout.action_mask[slot]
            rollout.decide(
                slot,
                lanes,
                policy.act(observations, action_mask=held, starts=starts, lanes=lanes, learning=True),
            )


def some(random, like):
    if like.dtype.kind == "f":
        return random.normal(size=like.shape).astype(like.dtype)
    return random.integers(0, 2, like.shape).astype(like.dtype)


def map_leaves(tree, function):
    if isinstance(tree, dict):
        return {key: map_leaves(below, function) for key, below in tree.items()}
    if isinstance(tree, tuple):
        return tuple(map_leaves(below, function) for below in tree)
    return function(tree)


def rollout_for(policy, spaces, lanes):
    return Rollout(spaces, policy.extras, horizon=policy.horizon, lanes=lanes)


def learn_for(policy, updates, spaces, lanes=4, group=None, seed=0):
    """Let a policy learn in the random world; return the metrics of each update."""
    rollout, found = rollout_for(policy, spaces, lanes), []
    for number in range(updates):
        play(policy, rollout, 1000 * seed + number, start=number == 0)
        found.append(policy.learn(rollout, group or Alone()))
        rollout.begin()
    return found


def same(first, second):
    assert first.keys() == second.keys()
    return [name for name in first if not torch.equal(first[name], second[name])]


@pytest.mark.parametrize("use", ALGORITHMS)
def test_gradient_steps_follow_transitions_and_metrics_are_those_of_a_log(use):
    policy = make(use)
    found = learn_for(policy, 8, SPACES[use])
    pace = policy.feed.pace
    assert policy.gradient_steps == pace.steps == int(0.5 * (pace.collected - pace.free)) > 50
    assert found[0].keys() == {"gradient_steps", "replay"} | ({"exploration"} if use == "dqn" else set())
    assert {*policy.LOSSES, "grad_norm"} < found[-1].keys()
    assert all(np.isfinite(list(metrics.values())).all() for metrics in found)


@pytest.mark.parametrize("use", ALGORITHMS)
def test_replicas_stay_bit_identical_with_their_own_experience_also_where_one_has_none(use):
    first = make(use)

    def work(group):
        policy = make(use, seed=group.rank)
        policy.load_state_dict(first.state_dict())
        rollout = rollout_for(policy, SPACES[use], 4)
        for number in range(6):
            play(policy, rollout, 100 * group.rank + number, start=number == 0)
            if group.rank == 2:
                rollout.acting[:] = False  # it collects nothing
            policy.learn(rollout, group)
            rollout.begin()
        return policy

    policies = Lockstep(3).run(work)
    assert policies[0].gradient_steps > 30 and len(policies[2].feed) == 0 < len(policies[1].feed)
    for other in policies[1:]:
        assert same(policies[0].state_dict(), other.state_dict()) == []
    assert same(policies[0].state_dict(), first.state_dict())


@pytest.mark.parametrize("use", ALGORITHMS)
def test_a_restored_policy_goes_on_bit_for_bit_with_its_replay(use):
    def stored(policy):
        shared = policy.state_dict()
        own = [{n: np.array(a) for n, a in part.items()} for part in (policy.worker_state(), policy.replay_state())]
        return shared, *own

    first, second = make(use), make(use, seed=5)
    learn_for(first, 5, SPACES[use])
    shared, worker, replay = stored(first)
    second.load_state_dict(shared)
    second.load_worker_state(worker)
    second.load_replay_state(replay)
    for policy in (first, second):
        policy.set_progress(0.5)
        learn_for(policy, 3, SPACES[use], seed=7)
    assert same(first.state_dict(), second.state_dict()) == []
    assert all((a == b).all() for a, b in zip(stored(first)[2].values(), stored(second)[2].values(), strict=True))


@pytest.mark.parametrize("use", ALGORITHMS)
def test_a_replay_goes_on_with_another_number_of_copies(use):
    noise = {"noise": "pink"} if use in ("sac", "td3", "ddpg") else {}
    first, second = make(use, n_step=3, **noise), make(use, lanes=6, n_step=3, **noise)
    learn_for(first, 5, SPACES[use])
    second.load_state_dict(first.state_dict())
    second.load_worker_state(first.worker_state())
    second.load_replay_state({name: np.array(array) for name, array in first.replay_state().items()})
    before = first.gradient_steps
    learn_for(second, 2, SPACES[use], lanes=6)
    assert len(second.feed) > len(first.feed) and second.gradient_steps > before


@pytest.mark.parametrize("use", ALGORITHMS)
def test_snapshots_and_checkpoints_load_from_files(use, tmp_path):
    policy, other, third = make(use), make(use, seed=1), make(use, seed=2)
    learn_for(policy, 5, SPACES[use])
    write_tensors(tmp_path / "snapshot.safetensors", policy.weights())
    write_tensors(tmp_path / "checkpoint.safetensors", policy.state_dict())
    load_weights(other, tmp_path / "snapshot.safetensors")
    load_weights(third, tmp_path / "checkpoint.safetensors")
    observations = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    expected = policy.act(observations, deterministic=True).actions
    for found in (other, third):
        assert (found.act(observations, deterministic=True).actions == expected).all()


@pytest.mark.parametrize("use", ALGORITHMS)
def test_a_policy_that_only_plays_holds_no_replay(use):
    policy = make(use, capacity=10**12)
    policy.act(np.zeros((4, 3), np.float32), starts=np.ones(4, bool), lanes=slice(0, 4))
    assert len(policy.feed) == 0 and policy.replay_state() == {}


@pytest.mark.parametrize("use", ALGORITHMS)
def test_what_is_not_finite_stops_all_workers_with_the_same_message(use):
    def work(group):
        policy = make(use)
        rollout = rollout_for(policy, SPACES[use], 4)
        for number in range(4):
            play(policy, rollout, number, start=number == 0)
            if group.rank == 1:
                rollout.earned[4] = np.inf
            try:
                policy.learn(rollout, group)
            except FloatingPointError as error:
                return str(error)
            rollout.begin()
        return None

    first, second = Lockstep(2).run(work)
    assert first == second and "is not finite" in first
    policy = make(use)
    policy.load_weights({name: tensor * np.nan for name, tensor in policy.weights().items()})
    with pytest.raises(FloatingPointError, match="first the networks' outputs"):
        policy.act(np.zeros((4, 3), np.float32))


OBSERVATIONS = {
    "image": gym_spaces.Box(0, 255, (12, 12, 3), np.uint8),
    "nest": gym_spaces.Dict({"a": gym_spaces.Discrete(4), "b": gym_spaces.Tuple([VECTOR, gym_spaces.MultiBinary(3)])}),
}


@pytest.mark.parametrize("use", ALGORITHMS)
@pytest.mark.parametrize("kind", [pytest.param("image", marks=pytest.mark.tier("all")), "nest"])
def test_any_observation_goes_through_a_whole_update(use, kind):
    spaces = SPACES[use]._replace(observation=OBSERVATIONS[kind])
    policy = make(use, spaces=spaces, n_step=3)
    found = learn_for(policy, 5, spaces)
    assert found[-1]["gradient_steps"] > 0
    assert len(tree_leaves(map_space(spaces.observation, lambda leaf: 0))) == (1 if kind == "image" else 3)


MASKED = EntitySpaces("a", VECTOR, gym_spaces.Discrete(4), mask_size=4)
COMPILED = [
    ("dqn", SPACES["dqn"], {"double": True}),
    ("dqn", MASKED, {"double": True, "hidden": (24, 16), "activation": "tanh"}),
    ("dqn", SPACES["dqn"], {"double": False, "hidden": ()}),
    ("dqn", SPACES["dqn"], {"priority": 0.6}),
    ("sac", SPACES["sac"], {"hidden": (24, 16)}),
    ("sac", SPACES["sac"], {"policy_delay": 2, "entropy_coefficient": 0.2}),
    ("sac, discrete", SPACES["sac, discrete"], {"hidden": (24, 16)}),
    ("sac, discrete", MASKED, {"policy_delay": 2}),
    ("sac, masked choices", SPACES["sac, masked choices"], {}),
    ("sac, masked choices", SPACES["sac, masked choices"], {"policy_delay": 2, "entropy_coefficient": 0.2}),
    ("td3", SPACES["td3"], {"hidden": (24, 16), "policy_delay": 1}),
    ("td3", SPACES["td3"], {"policy_delay": 2, "activation": "tanh"}),
    ("ddpg", SPACES["ddpg"], {}),
    *((use, spaces, {"normalize_observations": True}) for use, spaces in SPACES.items()),
]


@pytest.mark.parametrize(("use", "spaces", "settings"), COMPILED)
def test_compiled_gradients_and_losses_are_those_of_autograd(use, spaces, settings):
    def gradients(compiled):
        policy = make(use, spaces=spaces, batch_size=64, **settings)
        learn_for(policy, 8, spaces)
        weights = np.linspace(0.1, 1, 64, dtype=np.float32) if settings.get("priority") else None
        assert policy._fast is not None
        if not compiled:
            policy._fast = None
        found = []
        for number in range(2):  # with and without the actor, where it is delayed
            policy.gradient_steps = number
            policy._draws = np.random.default_rng(3)
            rows = policy.feed._batch
            policy._differentiate(rows, weights)
            stop = policy._parts[policy._moving() - 1].stop
            found += [policy.gradient.values[:stop].clone(), policy.gradient.extras.clone()]
            if weights is not None:
                found.append(torch.from_numpy(policy.feed._replay.shares(np.arange(100))))
        outputs = policy.values if use == "dqn" else policy._outputs
        return [*found, torch.from_numpy(np.array(outputs(rows["observation.0"])))]

    for fast, plain in zip(gradients(True), gradients(False), strict=True):
        assert torch.allclose(fast, plain, atol=1e-5, rtol=1e-4)
        assert fast.abs().max() > 1e-3


# DQN


@pytest.mark.tier("all")
def test_values_are_those_of_a_table():
    """Two states that alternate, action 1 earns 1 in the second: with gamma 0.5 values follow from a sum."""

    class Alternating(gymnasium.Env):
        observation_space, action_space = gym_spaces.Box(0, 1, (2,)), gym_spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            self.state, self.steps = 0, 0
            return np.eye(2, dtype=np.float32)[0], {}

        def step(self, action):
            reward = float(self.state == 1 and action == 1)
            self.state, self.steps = 1 - self.state, self.steps + 1
            return np.eye(2, dtype=np.float32)[self.state], reward, False, self.steps == 5, {}

    envs = SyncVectorEnv([Alternating] * 4, autoreset_mode=AutoresetMode.NEXT_STEP)
    for n_step, double in ((1, True), (1, False)):
        settings = {"gamma": 0.5, "ratio": 1.0, "learning_rate": 3e-3, "exploration_final": 0.5, "warmup": 100}
        spaces = EntitySpaces("a", envs.single_observation_space, envs.single_action_space)
        policy = build("dqn", spaces, {**settings, "n_step": n_step, "double": double}, lanes=4, seed=1)
        train(policy, envs, 4000)
        # V(1) = 1 + V(0) / 2 and V(0) = V(1) / 2: 4/3 and 2/3; cut episodes are worth what endless ones are.
        expected = np.array([[2 / 3, 2 / 3], [1 / 3, 4 / 3]], np.float32)
        assert np.allclose(policy.values(np.eye(2, dtype=np.float32)), expected, atol=0.05)


def test_masked_actions_are_never_taken_and_never_hoped_for():
    spaces = EntitySpaces("a", VECTOR, gym_spaces.Discrete(3), mask_size=3)
    policy = make("dqn", spaces=spaces)
    rollout = rollout_for(policy, spaces, 4)
    taken = []
    for number in range(6):
        play(policy, rollout, number, start=number == 0)
        chosen = np.take_along_axis(rollout.action_mask[:-1], rollout.actions[:-1, :, None], 2)[..., 0]
        taken.append(chosen[rollout.acting[:-1]].all())
        policy.learn(rollout, Alone())
        rollout.begin()
    assert all(taken) and policy.gradient_steps > 30
    with torch.no_grad():  # the second action looks best by far, and is never allowed afterwards
        policy.network.layers[-1].bias[:] = torch.tensor([0.0, 1e6, 0.0])
        policy.target.layers[-1].bias[:] = torch.tensor([0.0, 1e6, 0.0])
    state = policy.replay_state()
    rows = state["rows"].copy().view(policy.feed._transitions.dtype)[:, 0]
    rows["next_mask"], rows["choice"] = [1, 0, 1], 0
    policy._differentiate(rows, None)
    assert policy.gradient.extras[0] < 100
    rows["next_mask"] = 1
    policy._differentiate(rows, None)
    assert policy.gradient.extras[0] > 1e5


def test_dueling_values_are_a_state_s_and_advantages_of_mean_zero():
    for hidden in ((), (8,), (16, 8)):
        policy = make("dqn", dueling=True, hidden=hidden)
        assert policy._fast is None
        assert learn_for(policy, 5, SPACES["dqn"])[-1]["gradient_steps"] > 0
        observations = torch.randn(5, 3)
        features = policy.network.encoder(observations)
        if policy.network.shared is not None:
            features = torch.relu(policy.network.shared(features))
        value = policy.network.value(features)[:, 0]
        assert torch.allclose(policy.network(observations).mean(1), value, atol=1e-6)


def test_rows_with_large_errors_are_drawn_more_often():
    policy = make("dqn", priority=1.0, ratio=2.0)
    found = learn_for(policy, 8, SPACES["dqn"])
    assert found[-1]["gradient_steps"] > 100
    shares = policy.feed._replay.shares(np.arange(len(policy.feed)))
    assert abs(shares.sum() - 1) < 1e-9 and shares.max() > 5 * shares.min()
    assert 0.4 <= policy.feed.weight_exponent < 0.5
    policy.set_progress(1.0)
    learn_for(policy, 1, SPACES["dqn"])
    assert policy.feed.weight_exponent == 1.0


def test_exploration_falls_with_the_budget_unless_a_job_says_otherwise():
    policy = make("dqn", exploration_fraction=0.5, exploration_final=0.1)
    found = []
    for done in (0.0, 0.25, 0.5, 1.0):
        policy.set_progress(done)
        found.append(round(policy.exploration, 6))
    assert found == [1.0, 0.55, 0.1, 0.1]
    policy.configure({"eps": 0.7}, {"learning_rate": 0.5})
    assert policy.exploration == 0.7 and policy.settings.learning_rate == 0.5
    with pytest.raises(
        ConfigError, match="a job may set learning_rate, double, max_grad_norm .data. and eps .forward., found cap"
    ):
        policy.configure({}, {"capacity": 3})


# SAC and TD3


def test_log_probabilities_are_those_of_torch_and_hold_far_out():
    random = torch.Generator().manual_seed(0)
    outputs, noise = 0.5 * torch.randn(64, 6, generator=random), torch.randn(64, 3, generator=random)
    action, log_prob = squash(outputs, noise)
    normal = torch.distributions.Normal(outputs[:, :3], outputs[:, 3:].exp())
    squashed = torch.distributions.TransformedDistribution(normal, torch.distributions.TanhTransform())
    u = outputs[:, :3] + outputs[:, 3:].exp() * noise
    assert torch.allclose(action, torch.tanh(u))
    inside = u.abs().amax(1) < 3  # beyond, torch loses digits
    assert torch.allclose(log_prob[inside], squashed.log_prob(action).sum(1)[inside], atol=1e-3)
    far = torch.tensor([[50.0, -50.0, 0.0, 0.0]], requires_grad=True)
    squash(far, torch.zeros(1, 2))[1].sum().backward()
    assert torch.isfinite(far.grad).all()


@pytest.mark.parametrize(
    ("use", "delay"), [("sac", 1), ("sac", 3), ("sac, discrete", 2), ("td3", 1), ("td3", 2), ("ddpg", 1)]
)
def test_the_actor_and_its_moments_rest_between_its_steps(use, delay):
    policy = make(use, policy_delay=delay, ratio=1.0)
    learn_for(policy, 4, SPACES[use])
    critics, actor = policy.optimizers["critics"], policy.optimizers["network"]
    assert critics.steps == policy.gradient_steps > 50
    assert actor.steps == -(-policy.gradient_steps // delay)
    assert len(policy.critics.each) == (1 if use == "ddpg" else 2)


@pytest.mark.parametrize(("target", "rises"), [(-1.0, False), (2.0, True)])
def test_the_temperature_follows_the_entropy(target, rises):
    """Without rewards the entropy goes to its maximum, 2 log 2: above a target of -1, below one of 2."""
    policy = make("sac", learning_rate=1e-2, ratio=1.0, target_entropy=target, gamma=0.0)
    rollout = rollout_for(policy, SPACES["sac"], 4)
    for number in range(20):
        play(policy, rollout, number, start=number == 0)
        rollout.earned[:] = 0
        metrics = policy.learn(rollout, Alone())
        rollout.begin()
    assert 1.0 < metrics["entropy"] < 2 * np.log(2) + 0.1
    assert metrics["entropy_coefficient"] > 5 if rises else metrics["entropy_coefficient"] < 0.2


def two_states(choices):
    """Return an environment whose two states alternate; the last action of each choice earns 1 in the second."""

    class Alternating(gymnasium.Env):
        observation_space = gym_spaces.Box(0, 1, (2,))
        action_space = gym_spaces.Discrete(2) if choices == 1 else gym_spaces.MultiDiscrete([2] * choices)

        def reset(self, *, seed=None, options=None):
            self.state, self.steps = 0, 0
            return np.eye(2, dtype=np.float32)[0], {}

        def step(self, action):
            reward = float(np.sum(action)) * (self.state == 1)
            self.state, self.steps = 1 - self.state, self.steps + 1
            return np.eye(2, dtype=np.float32)[self.state], reward, False, self.steps == 5, {}

    return Alternating


@pytest.mark.parametrize("choices", [1, 2])
def test_soft_values_of_discrete_actions_are_those_of_a_table(choices):
    """With gamma 0.5 and an entropy coefficient of 0.3, values and probabilities follow from two equations."""
    envs = SyncVectorEnv([two_states(choices)] * 4, autoreset_mode=AutoresetMode.NEXT_STEP)
    settings = {"gamma": 0.5, "learning_rate": 3e-3, "hidden": (32,), "entropy_coefficient": 0.3, "batch_size": 64}
    settings |= {"n_step": 1, "ratio": 1.0}
    spaces = EntitySpaces("a", envs.single_observation_space, envs.single_action_space)
    policy = build("sac", spaces, {**settings, "warmup": 100}, lanes=4, seed=1)
    train(policy, envs, 6000)
    # With c choices: in the first state all actions are alike, V0 = V1 / 2 + 0.3 c log 2; in the second,
    # V1 = 0.3 c log(1 + e^(1/0.3)) + V0 / 2.
    even, uneven = 0.3 * choices * np.log(2), 0.3 * choices * np.log1p(np.exp(1 / 0.3))
    first = (even + uneven / 2) / 0.75
    second = uneven + first / 2
    observations = np.eye(2, dtype=np.float32)
    with torch.no_grad():
        values = policy.critics(torch.from_numpy(observations)).mean(0).numpy().reshape(2, choices, 2)
    expected = np.array([[second / 2] * 2, [first / 2, choices + first / 2]])  # of the actions with all zeros, all ones
    assert np.allclose(values.sum(1), expected, atol=0.08)
    likely = 1 / (1 + np.exp(-1 / 0.3))
    if choices == 1:
        assert np.allclose(policy.probabilities(observations), [[0.5, 0.5], [1 - likely, likely]], atol=0.03)
    drawn = policy.act(np.repeat(observations[1:], 4000, 0)).actions
    assert abs(drawn.mean() - likely) < 0.03


def test_defaults_of_sac_follow_the_actions_and_what_is_set_stays():
    box, discrete = SPACES["sac"], SPACES["sac, discrete"]
    settings = SACSettings()
    assert settings.resolved(box).learning_rate == 3e-4 and settings.resolved(box).target_average == 0.005
    assert settings.resolved(discrete).batch_size == 128 and settings.resolved(discrete).target_average == 0.05
    settings = SACSettings(batch_size=32, target_every=100)
    assert settings.resolved(discrete).batch_size == 32
    assert settings.resolved(discrete).target_average is None and settings.resolved(discrete).target_every == 100


@given(st.data())
@pytest.mark.tier("all")
def test_discrete_sac_never_takes_a_masked_action(data):
    sizes = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    space = gym_spaces.Discrete(sizes[0]) if len(sizes) == 1 else gym_spaces.MultiDiscrete(sizes)
    spaces = EntitySpaces("a", VECTOR, space, sum(sizes))
    policy = make("sac", spaces=spaces, warmup=data.draw(st.sampled_from([0, 1000])))
    random = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    observations = 10 * random.normal(size=(100, 3)).astype(np.float32)
    masks = (random.random((100, sum(sizes))) < data.draw(st.floats(0, 1))).astype(np.int8)
    starts = np.cumsum([0, *sizes[:-1]])
    for start, size in zip(starts, sizes, strict=True):  # of each choice, one at least
        masks[np.arange(100), start + random.integers(0, size, 100)] = 1
    for learning, deterministic in ((True, False), (False, False), (False, True)):
        decision = policy.act(observations, action_mask=masks, learning=learning, deterministic=deterministic)
        index = decision.actions.reshape(100, -1) + starts
        assert np.take_along_axis(masks, index, 1).all()
        assert not learning or (decision.extras["mask"] == masks).all()


def test_the_target_entropy_of_masked_actions_is_that_of_even_choices_among_the_allowed_ones():
    policy = make("sac, masked choices", target_entropy_share=0.5)
    rows = np.zeros(2, [("mask", np.int8, 9)])
    rows["mask"] = [[1, 1, 1, 1, 1, 1, 1, 1, 1], [1, 0, 1, 1, 0, 0, 0, 1, 0]]
    expected = 0.5 * np.mean([np.log(2 * 4 * 3), np.log(1 * 2 * 1)])
    assert policy._form.target_entropy(rows) == pytest.approx(expected)
    assert make("sac, discrete", target_entropy_share=0.5)._form.target_entropy(rows) == pytest.approx(0.5 * np.log(3))


def test_actions_reach_their_bounds_and_never_pass_them():
    box = gym_spaces.Box(np.array([-2, 0], np.float32), np.array([2, 0.1], np.float32))
    for use in ("sac", "td3"):
        policy = make(use, spaces=EntitySpaces("a", VECTOR, box))
        choices = np.array([[-1, -1], [1, 1], [0, 0]], np.float32)
        assert np.allclose(policy.actions.members(choices), [[-2, 0], [2, 0.1], [0, 0.05]])
        observations = np.random.default_rng(0).normal(size=(500, 3)).astype(np.float32)
        for learning in (True, False):
            actions = policy.act(observations, learning=learning).actions
            assert actions.dtype == np.float32 and all(action in box for action in actions)


def test_pink_noise_is_standard_normal_and_remembers():
    noise, random = PinkNoise(64, 1), np.random.default_rng(0)
    drawn = np.stack([noise.draw(slice(0, 64), random)[:, 0] for _ in range(1024)])
    assert abs(drawn.mean()) < 0.05 and abs(drawn.std() - 1) < 0.05
    assert np.corrcoef(drawn[:-1].ravel(), drawn[1:].ravel())[0, 1] > 0.6
    other = PinkNoise(64, 1)
    noise.draw(slice(3, 5), random)
    other.load_state(noise.state())
    first, second = np.random.default_rng(1), np.random.default_rng(1)
    for lanes in (slice(0, 5), slice(3, 64)):
        assert (noise.draw(lanes, first) == other.draw(lanes, second)).all()


@pytest.mark.parametrize("use", ["sac", "td3", "ddpg"])
def test_learns_where_to_go(use):
    """A point on a line earns most at 0.5; it is cut after 20 steps."""

    class Point(gymnasium.Env):
        observation_space, action_space = gym_spaces.Box(-2, 2, (1,)), gym_spaces.Box(-0.5, 0.5, (1,))

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.x, self.steps = self.np_random.uniform(-1, 1), 0
            return np.array([self.x], np.float32), {}

        def step(self, action):
            self.x, self.steps = float(np.clip(self.x + action[0], -2, 2)), self.steps + 1
            return np.array([self.x], np.float32), -abs(self.x - 0.5), False, self.steps == 20, {}

    envs = SyncVectorEnv([Point] * 4, autoreset_mode=AutoresetMode.NEXT_STEP)
    spaces = EntitySpaces("a", envs.single_observation_space, envs.single_action_space)
    settings = {"hidden": (32,), "learning_rate": 3e-3, "gamma": 0.9, "batch_size": 64, "warmup": 200, "ratio": 0.5}
    returns = train(build(use, spaces, settings, lanes=4, seed=1), envs, 4000, seed=1)
    assert np.mean(returns[-20:]) > -3 > np.mean(returns[:10])


@pytest.mark.parametrize(
    ("use", "spaces", "text"),
    [
        ("dqn", EntitySpaces("a", VECTOR, CONTINUOUS), "dqn expects a Discrete action space.*use sac, td3 or ppo"),
        ("dqn", EntitySpaces("a", VECTOR, gym_spaces.Discrete(3), mask_size=2), "expected an action mask of 3 flags"),
        (
            "sac",
            EntitySpaces("a", VECTOR, gym_spaces.Tuple([gym_spaces.Discrete(3)] * 2)),
            "sac expects Discrete, MultiDiscrete, or a Box of floats with finite bounds, found Tuple.*; use ppo",
        ),
        ("sac", EntitySpaces("a", VECTOR, gym_spaces.Discrete(3), mask_size=2), "expected an action mask of 3 flags"),
        ("td3", EntitySpaces("a", VECTOR, gym_spaces.Box(-np.inf, 1, (2,))), "td3 expects a Box of floats with finite"),
        ("ddpg", EntitySpaces("a", VECTOR, gym_spaces.Box(0, 9, (2,), np.uint8)), "ddpg expects a Box of floats"),
    ],
)
def test_spaces_that_cannot_be_served_are_refused_with_what_could(use, spaces, text):
    with pytest.raises(ConfigError, match=text):
        make(use, spaces=spaces)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"warmup": 2000}, "expected a warmup of at most the capacity of 1,000 transitions, found 2,000"),
        ({"target_every": None, "target_average": None}, "either target_every or target_average, found neither"),
        ({"target_every": 100, "target_average": 0.5}, "found both"),
        ({"learning_rat": 0.5}, "learning_rat"),
    ],
)
def test_settings_are_checked(settings, text):
    with pytest.raises(ConfigError, match=text):
        make("dqn", **settings)
