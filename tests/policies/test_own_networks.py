"""If these fail, a user's network learns something else than the same network of ours, or fails in the job."""

import numpy as np
import pytest
import torch
from gymnasium import spaces as gym_spaces

from arena.common.errors import ConfigError
from arena.common.registry import build_policy
from arena.common.trees import map_tree
from arena.envs.interface import EntitySpaces
from arena.experience.rollout import Rollout
from arena.policies.encoders.composite import Encoder
from arena.policies.encoders.users import sample
from arena.policies.loader import load_encoder_weights
from arena.policies.local import Alone, Lockstep
from arena.policies.network_checks import check_networks
from arena.policies.settings.networks import NetworkSettings
from arena.tensors.weights import write_tensors

OWN = "tests.policies.own_networks:"
SB3 = "stable_baselines3.common.torch_layers:"
VECTOR = gym_spaces.Box(-1, 1, (3,))
DISCRETE, BOX = gym_spaces.Discrete(3), gym_spaces.Box(-1, 1, (2,))
UNITS = gym_spaces.Dict(
    {
        "image": gym_spaces.Box(0, 255, (36, 36, 3), np.uint8),
        "kind": gym_spaces.Discrete(4),
        "self": gym_spaces.Box(-50, 50, (3,)),
        "units": gym_spaces.Box(-50, 50, (5, 4)),
    }
)
SIZES = {
    "ppo": {"horizon": 8, "minibatches": 2, "epochs": 2},
    "dqn": {"horizon": 4, "warmup": 8, "batch_size": 16, "hidden": [16]},
    "sac": {"horizon": 4, "warmup": 8, "batch_size": 16, "hidden": [16]},
    "td3": {"horizon": 4, "warmup": 8, "batch_size": 16, "hidden": [16]},
}


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def encoder(space, **settings):
    torch.manual_seed(0)
    return Encoder(space, NetworkSettings(**settings))


def make(use, observation, seed=0, lanes=4, action=None, **settings):
    entity = EntitySpaces("a", observation, action or (BOX if use in ("td3", "sac") else DISCRETE))
    settings = {**SIZES[use], "image_features": 16, **settings}
    return entity, build_policy(use, entity, settings, lanes=lanes, seed=seed)


def learn(policy, entity, group=None, updates=3, lanes=4, seed=0):
    """Play in a world of random observations and rewards, and learn from it."""
    rng = np.random.default_rng(seed)
    rollout = Rollout(entity, policy.extras, horizon=policy.horizon, lanes=lanes)
    no, every = np.zeros(lanes, bool), slice(0, lanes)
    for update in range(updates):
        for slot in range(policy.horizon + 1):
            seen = map_tree(
                lambda x: x.numpy(), sample(entity.observation, rows=lanes, seed=int(rng.integers(1 << 30)))
            )
            starts = ~no if update == slot == 0 else no
            if update and not slot:
                seen = map_tree(lambda x: x[0].copy(), rollout.observations)
            else:
                rollout.observe(slot, every, seen, rng.normal(size=lanes), no, no, ~no, starts, None)
            if slot < policy.horizon:
                rollout.decide(slot, every, policy.act(seen, starts=starts, lanes=every, learning=True))
        if "value" in policy.extras:
            rollout.finish(every, policy.bootstrap(seen, starts=no, lanes=every))
        if hasattr(policy, "complete"):
            policy.complete(rollout)
        policy.learn(rollout, group or Alone())
        rollout.begin()
    return policy.state_dict()


def same(first, second):
    return all(torch.equal(a, b) for a, b in zip(first.values(), second.values(), strict=True))


@pytest.mark.parametrize("bound", [1, 40], ids=["as it is", "normalised"])
@pytest.mark.parametrize("use", SIZES)
def test_what_equals_a_built_in_encoder_learns_the_same_bit_for_bit(use, bound):
    space = gym_spaces.Tuple((gym_spaces.Box(-bound, bound, (3,)), VECTOR))  # of two parts: torch computes both
    own = {"normalize_observations": bound > 1} | ({"shared": False} if use == "ppo" else {})
    ours, theirs = (
        learn(make(use, space, encoder=choice, **own)[1], make(use, space)[0]) for choice in ("mlp", OWN + "Flat")
    )
    assert same(ours, theirs)
    fresh = make(use, space, encoder="mlp", **own)[1].state_dict()
    assert not same(ours, fresh), "nothing was learned"


@pytest.mark.parametrize("memory", [{}, {"lstm": 4}, {"gru": 4, "shared": True}], ids=str)
def test_ppo_learns_with_one_and_a_memory(memory):
    entity, policy = make("ppo", UNITS, encoder=OWN + "Small", **memory)
    before = policy.state_dict()
    after = learn(policy, entity)
    name = "network.actor.encoder.leaves.0.module.layer.weight"
    assert not torch.equal(before[name], after[name])


@pytest.mark.parametrize("use", SIZES)
def test_workers_that_average_stay_equal(use):
    entity, first = make(use, UNITS, encoder=OWN + "Small")
    weights = first.state_dict()

    def work(member):
        policy = make(use, UNITS, seed=member.rank, lanes=2 + member.rank, encoder=OWN + "Small")[1]
        policy.load_state_dict(weights)
        return learn(policy, entity, member, lanes=2 + member.rank, seed=member.rank)

    states = Lockstep(3).run(work)
    assert same(states[0], states[1]) and same(states[0], states[2]) and not same(states[0], weights)


@pytest.mark.parametrize("use", SIZES)
def test_a_state_goes_on_in_another_process_s_policy(use):
    entity, policy = make(use, UNITS, encoder=OWN + "Small")
    state = learn(policy, entity)
    restored = make(use, UNITS, seed=7, encoder=OWN + "Small")[1]
    restored.load_state_dict(state)
    assert same(restored.state_dict(), policy.state_dict())
    seen = map_tree(lambda x: x.numpy(), sample(UNITS, rows=4, seed=1))
    first, second = (each.act(seen, deterministic=True).actions for each in (policy, restored))
    assert np.array_equal(first, second)


def test_each_key_of_a_dict_may_have_its_own():
    choice = {"image": "nature", "units": {"use": OWN + "Small", "settings": {"width": 9}}, "rest": "auto"}
    made = encoder(UNITS, encoder=choice, image_features=16)
    assert made.width == 16 + 4 + 3 + 9
    assert list(made.paths) == [("image",), ("kind",), ("self",), ("units",)]
    rows = sample(UNITS, rows=5, seed=0)
    features = made(rows)
    made.leaves[3].module.scale = 0.0
    assert torch.equal(made(rows)[:, :-9], features[:, :-9]) and not made(rows)[:, -9:].any()


def test_vectors_are_normalised_before_it_and_all_else_arrives_as_it_is():
    space = gym_spaces.Dict({**UNITS.spaces, "words": gym_spaces.Box(0, 99, (6,), np.int64)})
    made = encoder(space, encoder=OWN + "Small", normalize_observations=True)
    seen = []
    made.leaves[0].module.register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0]))
    rows = sample(space, rows=64, seed=0)
    rows["units"][:, 3:] = 0
    made.measure([rows[key].numpy() for key in space.spaces], slice(None), Alone())
    made(rows)
    (read,) = seen
    for key in ("image", "kind", "words"):
        assert torch.equal(read[key], rows[key]) and read[key].dtype == rows[key].dtype
    assert read["self"].mean(0).abs().max() < 1e-5 and read["self"].std(0).sub(1).abs().max() < 0.02
    present = read["units"][:, :3].flatten(0, 1)
    assert present.mean(0).abs().max() < 1e-5, "rows that are absent count in the statistics"
    assert not read["units"][:, 3:].any(), "rows that are absent are no longer zeros"


def test_the_order_of_keys_does_not_count():
    made = encoder(UNITS, encoder=OWN + "Recalls", normalize_observations=True)
    rows = sample(UNITS, rows=8, seed=0)
    made.measure([rows[key].numpy() for key in UNITS.spaces], slice(None), Alone())
    assert torch.equal(made(dict(reversed(rows.items()))), made(rows))


def test_whole_numbers_stay_whole_by_default():
    words = gym_spaces.Box(0, 99, (6,), np.int64)
    learn(make("ppo", words, encoder=OWN + "Words")[1], make("ppo", words)[0])


def test_policy_and_value_share_it_unless_told_otherwise():
    for shared, names in ((None, 1), (False, 2), (True, 1)):
        weights = make("ppo", UNITS, encoder=OWN + "Small", shared=shared)[1].weights()
        assert sum(name.endswith("module.layer.weight") for name in weights) == names


def test_a_central_critic_reads_the_observation_by_it_and_the_state_as_ever():
    entity = EntitySpaces("a", UNITS, DISCRETE, global_state=gym_spaces.Box(-1, 1, (40,)))
    settings = {**SIZES["ppo"], "critic": "central", "encoder": OWN + "Small"}
    weights = build_policy("ppo", entity, settings, lanes=4, seed=0).weights()
    assert weights["critic.encoder.leaves.0.module.layer.weight"].shape[0] == 6
    assert weights["critic.hidden.0.weight"].shape[1] == 6 + 40


def test_layers_that_learn_otherwise_than_they_act_do_so():
    made = encoder(VECTOR, encoder=OWN + "Dropped")
    rows = torch.ones(64, 3)
    learning = made(rows)
    with torch.no_grad():
        acting = made(rows)
    assert (learning == 0).float().mean() > 0.3 and not (acting == 0).any()


def test_layers_may_learn_their_shapes_from_the_first_pass():
    weights = make("ppo", VECTOR, encoder=OWN + "Lazy")[1].weights()
    assert weights["actor.encoder.leaves.0.module.layer.weight"].shape == (4, 3)


@pytest.mark.parametrize(
    ("extractor", "space"),
    [
        ("CombinedExtractor", UNITS),
        ("NatureCNN", UNITS["image"]),
        ("FlattenExtractor", gym_spaces.Discrete(4)),
    ],
)
def test_extractors_of_stable_baselines3_compute_what_they_do_there(extractor, space):
    sb3 = pytest.importorskip("stable_baselines3")
    import gymnasium
    from stable_baselines3.common.preprocessing import preprocess_obs
    from stable_baselines3.common.vec_env import DummyVecEnv, VecTransposeImage

    class Env(gymnasium.Env):
        observation_space, action_space = space, DISCRETE

    assert sb3.__version__
    env = DummyVecEnv([Env])
    if extractor != "FlattenExtractor":
        env = VecTransposeImage(env)
    made = encoder(space, encoder=SB3 + extractor, normalize_observations=False)
    torch.manual_seed(0)
    theirs = getattr(sb3.common.torch_layers, extractor)(env.observation_space).eval()
    rows = sample(space, rows=5, seed=0)
    arrays = map_tree(lambda x: x.numpy(), rows)
    if extractor != "FlattenExtractor":
        arrays = env.transpose_observations(arrays)
    tensors = map_tree(lambda array: torch.from_numpy(np.array(array)), arrays)
    with torch.no_grad():
        assert torch.equal(made(rows), theirs(preprocess_obs(tensors, env.observation_space)))


def check(space, **settings):
    return check_networks(EntitySpaces("a", space, DISCRETE), NetworkSettings(**settings), lambda _: None)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("WithoutWidth", "expected an attribute width .* found None; set self.width in __init__"),
        ("TooNarrow", r"expected features of shape \[2, 3\] .* found \[2, 2\]"),
        ("Infinite", "found numbers that are not finite in its first pass"),
        ("Whole", "found torch.int64 in its first pass"),
        ("Pair", r"expected a tensor \[N, width\] from forward, found tuple"),
        ("Normed", "expected no BatchNorm1d, since its statistics differ between workers; use LayerNorm"),
        ("Centred", "do not depend on the others of a batch"),
        ("Counting", "found a change of calls"),
        ("function", "expected a class derived from torch.nn.Module"),
        ("Smaller", "has no .Smaller. .did you mean 'Small'"),
    ],
)
def test_what_cannot_learn_with_others_is_refused_in_a_sentence(name, text):
    with pytest.raises(ConfigError, match=text):
        check(VECTOR, encoder=OWN + name)


def test_arguments_that_a_class_does_not_take_are_refused_with_those_that_it_takes():
    with pytest.raises(
        ConfigError, match=r"unexpected keyword argument 'widths'; .* may be given width=6, scale=1.0 by"
    ):
        check(VECTOR, encoder=OWN + "Small", encoder_settings={"widths": 3})


def test_what_is_doubtful_is_said():
    assert check(VECTOR, encoder=OWN + "Small") == []
    idle, dropout = check(VECTOR, encoder=OWN + "Idle")
    assert "no gradient reaches idle.weight, idle.bias" in idle and "acts without (in eval mode)" in dropout


@pytest.mark.parametrize(
    ("space", "choice", "text"),
    [
        (
            UNITS,
            {"unit": "mlp"},
            r"expected a key of the observation \(image, .*\) or rest, found 'unit' .did you mean 'units'",
        ),
        (VECTOR, "impala", "impala expects an image .a Box with two to four axes., found none in Box"),
        (VECTOR, {"units": "mlp"}, "encoders by key expect an observation that is a Dict, found Box"),
    ],
    ids=["misspelt", "no image", "no dict"],
)
def test_keys_that_an_observation_lacks_are_refused(space, choice, text):
    with pytest.raises(ConfigError, match=text):
        check(space, encoder=choice)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"encoder": "natur"}, "found 'natur' .text. .did you mean 'nature'"),
        ({"encoder": "impala", "encoder_settings": {"scale": 0}}, "scale\n *expected a number greater than 0, found 0"),
        ({"encoder": "impala", "encoder_settings": {"scal": 1}}, "unknown key; did you mean 'scale'"),
        ({"encoder": 3}, "expected the name of an encoder, a reference to one, or a mapping"),
        ({"encoder": {}}, "found an empty mapping"),
        ({"encoder": {"a": 3}}, r"expected the name of an encoder, or \{use: NAME"),
        ({"encoder": {"a": {"used": "mlp"}}}, r"expected the name of an encoder, or \{use: NAME"),
        ({"encoder": {"a": "mlq"}}, "did you mean 'mlp'"),
        ({"encoder": {"a": {"use": "mlp", "settings": {"b": 1}}}}, "expected none for mlp, found a mapping with 'b'"),
        ({"encoder": "mlp", "encoder_settings": {"b": 1}}, "expected none for mlp"),
        ({"encoder": {"a": "mlp"}, "encoder_settings": {"b": 1}}, "expected none beside encoders by key"),
    ],
    ids=str,
)
def test_settings_of_encoders_are_checked(settings, text):
    with pytest.raises(ValueError, match=text):
        NetworkSettings(**settings)


def test_settings_come_back_from_what_is_stored():
    settings = NetworkSettings(encoder={"units": {"use": OWN + "Small", "settings": {"width": 9}}, "rest": "mlp"})
    assert NetworkSettings(**settings.model_dump()) == settings


# Whole networks


def test_a_network_that_equals_the_built_in_one_learns_the_same():
    space = gym_spaces.Tuple((gym_spaces.Box(-40, 40, (3,)), VECTOR))  # of two parts: torch computes both
    entity, ours = make("ppo", space, max_grad_norm=None)
    theirs = make("ppo", space, network=OWN + "Net", max_grad_norm=None)[1]
    names = {
        **{f"own.module.policy.{2 * layer}": f"actor.hidden.{2 * layer}" for layer in range(2)},
        **{f"own.module.value.{2 * layer}": f"critic.hidden.{2 * layer}" for layer in range(2)},
        "own.module.policy.4": "policy_head",
        "own.module.value.4": "value_head",
    }
    names = {f"{mine}.{kind}": f"{built}.{kind}" for mine, built in names.items() for kind in ("weight", "bias")}

    def renamed(weights):
        moments = "encoder.leaves.0.normalization."
        return {
            name: weights[names.get(name, name.replace("own.rows.0.normalization.", f"actor.{moments}"))]
            for name in theirs.weights()
        }

    theirs.load_weights(renamed(ours.weights()))
    before = theirs.weights()
    for policy in (ours, theirs):
        learn(policy, entity, updates=4)
    expected, found = renamed(ours.weights()), theirs.weights()
    for name in found:
        assert torch.allclose(found[name], expected[name], atol=2e-5), name
    assert not same(before, found)


@pytest.mark.parametrize("network", ["Net", "Memory"])
def test_workers_with_whole_networks_stay_equal_and_states_go_on(network):
    space = VECTOR if network == "Net" else UNITS
    settings = {"network": OWN + network, "burn_in": 4 if network == "Memory" else None}
    entity, first = make("ppo", space, **settings)
    weights = first.state_dict()

    def work(member):
        policy = make("ppo", space, seed=member.rank, lanes=2 + member.rank, **settings)[1]
        policy.load_state_dict(weights)
        return learn(policy, entity, member, lanes=2 + member.rank, seed=member.rank)

    states = Lockstep(3).run(work)
    assert same(states[0], states[1]) and same(states[0], states[2]) and not same(states[0], weights)
    restored = make("ppo", space, seed=9, **settings)[1]
    restored.load_state_dict(states[0])
    assert same(restored.state_dict(), states[0])
    assert restored.recurrent == (network == "Memory")


def test_the_first_pass_of_an_update_finds_the_probabilities_that_a_recurrent_network_acted_with():
    entity, policy = make("ppo", UNITS, network=OWN + "Memory", epochs=1, minibatches=1)
    learn(policy, entity, updates=2)
    rng = np.random.default_rng(0)
    rollout = Rollout(entity, policy.extras, horizon=policy.horizon, lanes=4)
    no, every = np.zeros(4, bool), slice(0, 4)
    for slot in range(policy.horizon + 1):
        seen = map_tree(lambda x: x.numpy(), sample(UNITS, rows=4, seed=slot))
        starts = rng.random(4) < 0.3
        rollout.observe(slot, every, seen, rng.normal(size=4), no, no, ~no, starts, None)
        if slot < policy.horizon:
            rollout.decide(slot, every, policy.act(seen, starts=starts, lanes=every, learning=True))
    rollout.finish(every, policy.bootstrap(seen, starts=starts, lanes=every))
    metrics = policy.learn(rollout, Alone())
    assert abs(metrics["kl"]) < 1e-6


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Forgetless", "counts as zeros where an episode starts .starts., found outputs that depend on it"),
        ("Lanewise", "for three time steps of two lanes together .* found others in step"),
        ("Stateless", r"with a state of \[2, 1, 8\] for two lanes, found NoneType"),
        ("WideValues", r"expected values of shape \[2\] for two observations, found \[2, 1\]"),
        ("OneResult", r"expected \(outputs, values, state\) from forward, found Tensor"),
        ("OddState", r"expected a state_shape of \(rows, width\) for a recurrent network, .* found 3"),
        ("Flat", "too many positional arguments; it is called with the observation's space and the number of outputs"),
    ],
)
def test_whole_networks_that_would_learn_something_else_are_refused(name, text):
    with pytest.raises(ConfigError, match=text):
        check(VECTOR, network=OWN + name)


@pytest.mark.parametrize("name", ["Net", "Memory"])
def test_whole_networks_that_learn_are_accepted(name):
    assert check(VECTOR, network=OWN + name) == []


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"network": "Net"}, "expected path/to/file.py:Class or package.module:Class, found 'Net'"),
        ({"network": "a:b", "lstm": 8}, "network is the whole network: expected no lstm beside it, found 8"),
        ({"network": "a:b", "critic": "central"}, "expected no critic beside it, found 'central'"),
        ({"network_settings": {"a": 1}}, "network_settings: expected a network beside them"),
    ],
    ids=str,
)
def test_settings_of_whole_networks_are_checked(settings, text):
    with pytest.raises(ValueError, match=text):
        NetworkSettings(**settings)


# Encoders that were learned elsewhere


@pytest.mark.parametrize("use", SIZES)
def test_a_frozen_encoder_stays_and_all_else_learns(use):
    entity, policy = make(use, UNITS, encoder=OWN + "Small", frozen_encoder=True)
    before, after = policy.state_dict(), learn(policy, entity, updates=4)
    stays = [name for name in before if ".module." in name]
    assert stays and all(torch.equal(before[name], after[name]) for name in stays)
    moved = [name for name in before if name.endswith("weight") and not torch.equal(before[name], after[name])]
    assert moved and not set(moved) & set(stays)
    frozen = sum(tensor.numel() for name, tensor in policy.weights().items() if ".module." in name)
    sizes = [len(state) for name, state in after.items() if name.startswith("adam.") and name.endswith("first")]
    learned = sum(p.numel() for p in policy.networks.parameters()) - frozen if use == "ppo" else None
    assert learned is None or sizes == [learned], "the optimizer has moments of what is frozen"


@pytest.mark.parametrize("use", SIZES)
@pytest.mark.parametrize("source", ["ppo", "dqn", "td3"])
def test_an_encoder_begins_with_the_weights_of_another_algorithm_s(use, source, tmp_path):
    given = {"encoder": {"units": OWN + "Small", "image": "nature"}, "normalize_observations": True}
    entity, trained = make(source, UNITS, seed=5, **given)
    learn(trained, entity)
    path = tmp_path / "weights.safetensors"
    write_tensors(path, trained.weights())
    entity, policy = make(use, UNITS, **given, frozen_encoder=True, encoder_weights=str(path))
    before = policy.state_dict()
    load_encoder_weights(policy, path)
    theirs, ours = (
        {name.partition("leaves.")[2]: tensor for name, tensor in each.items() if "leaves." in name}
        for each in (trained.weights(), policy.weights())
    )
    assert same({name: ours[name] for name in theirs}, theirs) and not same(before, policy.state_dict())
    learn(policy, entity)
    learned = {name.partition("leaves.")[2]: tensor for name, tensor in policy.weights().items() if "leaves." in name}
    assert same({name: learned[name] for name in theirs}, theirs), "statistics or weights have changed"
    assert all(encoder.given_parts for encoder in policy.encoders())


def test_weights_of_a_module_alone_are_those_of_its_file(tmp_path):
    entity, policy = make("dqn", UNITS, encoder=OWN + "Small", encoder_weights="x", normalize_observations=True)
    module = policy.encoders()[0].leaves[0].module
    state = {name: torch.full_like(tensor, 0.0001) for name, tensor in module.state_dict().items()}
    write_tensors(tmp_path / "small.safetensors", {**state, "head.weight": torch.ones(2)})
    load_encoder_weights(policy, tmp_path / "small.safetensors")
    assert all((encoder.leaves[0].module.layer.weight == 0.0001).all() for encoder in policy.encoders())
    learn(policy, entity)  # its statistics are measured here
    assert policy.encoders()[0].normalizations[2].count > 0 and not (module.layer.weight == 0.0001).all()


def test_weights_that_do_not_fit_the_encoder_are_refused(tmp_path):
    write_tensors(tmp_path / "a.safetensors", make("ppo", UNITS, encoder=OWN + "Small")[1].weights())
    other = {"encoder": OWN + "Small", "encoder_settings": {"width": 9}, "encoder_weights": "x"}
    with pytest.raises(ConfigError, match=r"encoder_weights: .*expected leaves.0.module.layer.weight of shape .9, "):
        load_encoder_weights(make("dqn", UNITS, **other)[1], tmp_path / "a.safetensors")
    write_tensors(tmp_path / "b.safetensors", {"x": torch.ones(2)})
    with pytest.raises(ConfigError, match="expected weights of a policy with an encoder, found none"):
        load_encoder_weights(make("dqn", UNITS, **other)[1], tmp_path / "b.safetensors")


def test_what_has_no_weights_cannot_be_frozen():
    with pytest.raises(ConfigError, match="frozen_encoder: expected an encoder with weights, found none for Box"):
        check(VECTOR, frozen_encoder=True)
    assert check(VECTOR, encoder=OWN + "WithStatistics", frozen_encoder=True) == []
