"""If these fail, a policy reads its observations wrongly, or acts by other numbers than it learns from."""

import copy

import numpy as np
import pytest
import torch
from gymnasium import spaces as gym_spaces
from gymnasium.vector.utils import batch_space

from arena.common.errors import ConfigError
from arena.common.trees import map_tree
from arena.policies.compiled.actor_critic import CompiledActorCritic
from arena.policies.compiled.adam import FlatAdam
from arena.policies.copies import copy_tensors
from arena.policies.encoders.composite import Encoder
from arena.policies.encoders.images import Nature
from arena.policies.encoders.leaves import Vector
from arena.policies.layers import Tanh
from arena.policies.local import Alone
from arena.policies.networks import ActorCritic
from arena.policies.on_policy.loss import select_rows
from arena.policies.recurrent import GRU, LSTM
from arena.policies.settings.networks import NetworkSettings
from arena.tensors.gradients import FlatGradient


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def encoder(space, **settings):
    torch.manual_seed(0)
    return Encoder(space, NetworkSettings(**settings))


def actor_critic(space, outputs=3, **settings):
    torch.manual_seed(0)
    return ActorCritic(space, outputs, [], NetworkSettings(**settings))


def bytes_box(*shape):
    return gym_spaces.Box(0, 255, shape, np.uint8)


@pytest.mark.parametrize("shape", [(84, 84, 4), (4, 84, 84), (7, 7, 3), (10, 5), (2, 40, 40, 3)], ids=str)
def test_the_residual_network_has_the_layers_of_its_paper_and_reads_any_image(shape):
    made = encoder(bytes_box(*shape), encoder="impala", encoder_settings={"scale": 2}, image_features=256)
    layers = [module for module in made.modules() if isinstance(module, torch.nn.Conv2d)]
    assert [layer.out_channels for layer in layers] == [32] * 5 + [64] * 10
    last = next(module for module in made.modules() if isinstance(module, torch.nn.Linear))
    if shape == (84, 84, 4):
        assert (layers[0].in_channels, last.in_features, made.width) == (4, 64 * 11 * 11, 256)
    rows = torch.randint(0, 256, (3, *shape), dtype=torch.uint8)
    assert torch.allclose(made(rows)[1:2], made(rows[1:2]), atol=1e-5) and made(rows).isfinite().all()
    assert torch.equal(made(made.arranged(rows)), made(rows))


@pytest.mark.parametrize(
    ("space", "kind", "width"),
    [
        (gym_spaces.Box(-1, 1, (5,)), Vector, 5),
        (gym_spaces.Box(-1, 1, (3, 2), np.float64), Vector, 6),
        (gym_spaces.Box(-1, 1, (8, 27)), Vector, 8 * 27),  # a stack of vectors
        (bytes_box(128), Vector, 128),
        (bytes_box(5, 5, 3), Vector, 75),
        (bytes_box(84, 84, 1), Nature, 512),
        (bytes_box(4, 84, 84), Nature, 512),
        (bytes_box(84, 84), Nature, 512),
        (gym_spaces.Box(-1, 1, (84, 84, 1)), Nature, 512),
        (bytes_box(10, 10, 3), Nature, 512),
        (bytes_box(4, 40, 40, 3), Nature, 512),
    ],
    ids=str,
)
def test_the_encoder_follows_from_the_space(space, kind, width):
    found = encoder(space)
    assert isinstance(found.leaves[0], kind)
    batch = torch.from_numpy(batch_space(space, 6).sample())
    assert found(batch).shape == (6, width) == (6, found.width)


def test_the_encoder_can_be_chosen():
    assert isinstance(encoder(bytes_box(84, 84, 1), encoder="mlp").leaves[0], Vector)
    assert isinstance(encoder(bytes_box(6, 6, 1), encoder="cnn").leaves[0], Nature)


@pytest.mark.parametrize("side", [10, 40])
def test_channels_first_and_last_are_the_same_image(side):
    first, last = encoder(bytes_box(3, side, side)), encoder(bytes_box(side, side, 3))
    image = torch.randint(0, 256, (2, 3, side, side), dtype=torch.uint8)
    assert torch.allclose(first(image), last(image.permute(0, 2, 3, 1)), atol=1e-6)


@pytest.mark.parametrize("shape", [(4, 40, 40), (40, 40, 3), (2, 40, 40, 3), (2, 3, 40, 40), (40, 40)])
@pytest.mark.parametrize("floats", [False, True])
def test_the_order_in_memory_changes_neither_features_nor_gradients(shape, floats):
    """Images are reordered once for each update; a sum that were of other numbers would be another network."""
    space = gym_spaces.Box(-1, 1, shape) if floats else bytes_box(*shape)
    encoder_ = encoder(space)
    leaf = encoder_.leaves[0]
    image = torch.rand(6, *shape) * 2 - 1 if floats else torch.randint(0, 256, (6, *shape), dtype=torch.uint8)
    rows = torch.tensor([4, 1, 5])

    def by_definition():
        x = image[rows].double() / (1 if floats else 255)
        x = (x.unsqueeze(1) if x.dim() == 3 else x).permute(0, *leaf.order)
        return copy.deepcopy(leaf.layers).double()(x.reshape(3, -1, *x.shape[-2:]).contiguous())

    expected = by_definition()
    arranged = select_rows(encoder_.arranged(image), rows)
    assert arranged.shape == image[rows].shape and torch.equal(arranged, image[rows])
    for found in (encoder_(arranged), encoder_(image[rows])):
        assert torch.allclose(found.double(), expected, atol=1e-5)
    image_before = image.clone()
    gradients = []
    for inputs in (arranged, image[rows]):
        encoder_.zero_grad()
        encoder_(inputs).square().sum().backward()
        gradients.append([parameter.grad.clone() for parameter in encoder_.parameters()])
    assert torch.equal(image, image_before), "scaled in place"
    assert all(torch.allclose(a, b, rtol=1e-5, atol=1e-5) for a, b in zip(*gradients, strict=True))


def test_stacked_frames_become_channels():
    stacked, plain = encoder(bytes_box(4, 40, 40, 1)), encoder(bytes_box(4, 40, 40))
    image = torch.randint(0, 256, (2, 4, 40, 40), dtype=torch.uint8)
    assert torch.allclose(stacked(image.unsqueeze(-1)), plain(image), atol=1e-6)


def test_bytes_are_scaled_to_one():
    assert encoder(bytes_box(2))(torch.tensor([[0, 255]], dtype=torch.uint8)).tolist() == [[0, pytest.approx(1)]]


def test_discrete_observations_become_one_hot():
    assert encoder(gym_spaces.Discrete(3, start=5))(torch.tensor([5, 7])).tolist() == [[1, 0, 0], [0, 0, 1]]
    found = encoder(gym_spaces.MultiDiscrete([2, 3]))(torch.tensor([[1, 0], [0, 2]]))
    assert found.tolist() == [[0, 1, 1, 0, 0], [1, 0, 0, 0, 1]]


def test_nested_observations_lie_side_by_side():
    space = gym_spaces.Dict(
        b=gym_spaces.Tuple([gym_spaces.Discrete(2), gym_spaces.MultiBinary(2)]), a=gym_spaces.Box(-9, 9, (1,))
    )
    found = encoder(space)({"a": torch.tensor([[7.0]]), "b": (torch.tensor([1]), torch.tensor([[1, 0]]))})
    assert found.tolist() == [[0, 1, 1, 0, 7]]


def test_a_space_that_cannot_be_read_is_named():
    with pytest.raises(ConfigError, match="cannot read observations of Text"):
        encoder(gym_spaces.Text(4))


def test_tanh_is_the_hyperbolic_tangent():
    x = torch.linspace(-12, 12, 200, requires_grad=True)
    y = x.detach().clone().requires_grad_()
    mine, theirs = Tanh()(x), torch.tanh(y)
    assert torch.allclose(mine, theirs, atol=5e-7)
    mine.sum().backward()
    theirs.sum().backward()
    assert torch.allclose(x.grad, y.grad, atol=1e-6)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("shared", [None, True], ids=["apart", "shared"])
@pytest.mark.parametrize("hidden", [None, (), (7, 5, 3)], ids=str)
def test_the_fast_forward_pass_computes_what_the_networks_do(activation, shared, hidden):
    settings = {"activation": activation, "shared": shared, "hidden": hidden, "normalize_observations": shared is None}
    networks = actor_critic(gym_spaces.Box(-1, 1, (2, 2)), **settings)
    assert CompiledActorCritic.serves(networks)
    parameters = FlatAdam(networks, 1e-5).parameters
    fast = CompiledActorCritic(networks, parameters.numpy(), np.empty(len(parameters), np.float32))
    for _ in range(2):
        x = np.random.default_rng(0).normal(size=(6, 2, 2)).astype(np.float32)
        expected = networks(torch.from_numpy(x))
        outputs, values = map(np.copy, fast.forward(x))
        np.testing.assert_allclose(outputs, expected.outputs.detach().numpy(), atol=1e-5)
        np.testing.assert_allclose(values, expected.values.detach().numpy(), atol=1e-5)
        np.testing.assert_allclose(fast.act(x), outputs, atol=1e-6)
        np.testing.assert_allclose(fast.values(x), values, atol=1e-6)
        if shared is None:  # and it keeps up with statistics and weights that change
            networks.encoder.measure([x * 5 + 1], slice(None), Alone())
        with torch.no_grad():
            for parameter in networks.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.1)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize(
    "sharing",
    [{}, {"shared": "encoder"}, {"shared": True}, {"shared": True, "value_gradient": 1.0}],
    ids=str,
)
@pytest.mark.parametrize("hidden", [None, (), (7, 5, 3)], ids=str)
def test_the_fast_backward_pass_gives_the_gradients_of_torch(activation, sharing, hidden):
    space = gym_spaces.Box(0, 255, (2, 2), np.uint8)
    networks = actor_critic(space, activation=activation, hidden=hidden, **sharing)
    x = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (9, 2, 2), np.uint8))

    def loss(outputs, values):
        return (outputs.softmax(-1)[:, 0] * values).sum() + values.square().mean()

    gradient = FlatGradient(networks.parameters())
    answer = networks(x)
    by_outputs, by_values = torch.autograd.grad(
        loss(answer.outputs, answer.values), (answer.outputs, answer.values), retain_graph=True
    )
    loss(answer.outputs, answer.values).backward()
    expected = gradient.values.clone()
    gradient.values.fill_(5.0)  # is overwritten
    fast = CompiledActorCritic(networks, FlatAdam(networks, 1e-5).parameters.numpy(), gradient.values.numpy())
    fast.forward(x.numpy())
    fast.backward(by_outputs.numpy(), by_values.numpy())
    assert expected.abs().max() > 0.1
    torch.testing.assert_close(gradient.values, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("space", "settings"),
    [
        (bytes_box(10, 10, 3), {}),
        (gym_spaces.Box(-1, 1, (2,)), {"lstm": 4}),
        (gym_spaces.Box(-1, 1, (2,)), {"activation": "elu"}),
        (gym_spaces.Discrete(3), {}),
        (gym_spaces.Dict(a=gym_spaces.Box(-1, 1, (2,))), {}),
    ],
    ids=str,
)
def test_the_fast_forward_pass_does_not_serve_what_it_cannot(space, settings):
    assert not CompiledActorCritic.serves(actor_critic(space, **settings))


def test_sharing_follows_from_the_space():
    vector, image = gym_spaces.Box(-1, 1, (4,)), bytes_box(10, 10, 1)
    for memory in ({}, {"lstm": 8}, {"gru": 8}):
        assert actor_critic(vector, **memory).critic.encoder is not None
        assert actor_critic(image, shared=False, **memory).critic.encoder is not None
        assert actor_critic(vector, shared=True, **memory).critic is None
    assert actor_critic(image).critic is None
    with_memory = actor_critic(image, lstm=8)  # one convolution, which is dear, and two memories
    assert with_memory.critic.encoder is None and with_memory.critic.memory is not with_memory.actor.memory


@pytest.mark.parametrize("shared", [False, "encoder", True], ids=str)
@pytest.mark.parametrize("memory", ["lstm", "gru"])
def test_one_loss_does_not_reach_what_the_other_has_for_itself(shared, memory):
    networks = actor_critic(bytes_box(10, 10, 1), shared=shared, value_gradient=0.5, **{memory: 5})
    seen = torch.randint(0, 256, (6, 10, 10, 1), dtype=torch.uint8)
    starts, state = torch.zeros(3, 2, dtype=torch.bool), torch.zeros(2, *networks.state_shape)

    def reached(loss):
        networks.zero_grad()
        loss(networks(seen, starts, state)).backward()
        return {name for name, each in networks.named_parameters() if each.grad is not None and each.grad.any()}

    by_policy = reached(lambda answer: answer.outputs.square().sum())
    by_value = reached(lambda answer: answer.values.square().sum())
    common = {name.rpartition(".")[0] for name in by_policy & by_value}
    expected = {
        False: set(),
        "encoder": {
            "actor.encoder.leaves.0.layers.0",
            "actor.encoder.leaves.0.layers.2",
            "actor.encoder.leaves.0.layers.5",
        },
        True: {
            "actor.encoder.leaves.0.layers.0",
            "actor.encoder.leaves.0.layers.2",
            "actor.encoder.leaves.0.layers.5",
            "actor.memory.read",
            "actor.memory.recall",
        },
    }
    assert common == expected[shared]
    assert by_policy | by_value == {name for name, _ in networks.named_parameters()}


def test_first_policies_are_nearly_uniform_and_weights_orthogonal():
    networks = actor_critic(gym_spaces.Box(-1, 1, (4,)), hidden=(8,))
    assert networks(torch.randn(50, 4)).outputs.abs().max() < 0.1
    weight = networks.actor.hidden[0].weight
    assert torch.allclose(weight.T @ weight, 2 * torch.eye(4), atol=1e-5)


MEMORIES = pytest.mark.parametrize("kind", [LSTM, GRU], ids=["lstm", "gru"])
LIBRARY = {LSTM: torch.nn.LSTM, GRU: torch.nn.GRU}


@MEMORIES
def test_memory_equals_the_library_s(kind):
    torch.manual_seed(0)
    memory, library = kind(3, 5), LIBRARY[kind](3, 5)
    with torch.no_grad():
        library.weight_ih_l0.copy_(memory.read.weight)
        library.weight_hh_l0.copy_(memory.recall.weight)
        library.bias_ih_l0.copy_(memory.read.bias.normal_())
        library.bias_hh_l0.copy_(memory.recall.bias.normal_())
    x, state = torch.randn(7, 2, 3), torch.randn(2, memory.rows, 5)
    found, after = memory(x, torch.zeros(7, 2, dtype=torch.bool), state)
    given = tuple(part[None].contiguous() for part in state.unbind(1))
    expected, ends = library(x, given if kind is LSTM else given[0])
    assert torch.allclose(found, expected, atol=1e-6)
    assert torch.allclose(after, torch.cat(ends if kind is LSTM else (ends,)).transpose(0, 1), atol=1e-6)


@MEMORIES
@pytest.mark.parametrize("lanes", [1, 3])
def test_compiled_memory_has_the_results_and_gradients_of_torch(kind, lanes):
    torch.manual_seed(0)
    memory = kind(3, 6)
    memory.recall.bias.data.normal_()
    x, state = torch.randn(9, lanes, 3, requires_grad=True), torch.randn(lanes, memory.rows, 6)
    keep = (torch.rand(9, lanes) > 0.3).float()
    weight = torch.randn(9, lanes, 6)

    def all_of(sequence):
        hidden, after = sequence(memory.read(x), keep, state)
        asked = [x, *memory.parameters()]
        return [hidden, after, *torch.autograd.grad((hidden * weight).sum(), asked)]

    for found, expected in zip(all_of(memory.compiled), all_of(memory.step_by_step), strict=True):
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@MEMORIES
def test_new_memories_keep_a_cue_for_many_slots(kind):
    """With biases of zero nothing of it is left after 50 slots, and no gradient reaches it."""
    memory = kind(1, 64)
    starts = torch.zeros(51, 2, dtype=torch.bool)
    cue = torch.zeros(51, 2, 1)
    cue[0, 0], cue[0, 1] = -1, 1

    def left():
        _, after = memory(cue, starts, torch.zeros(2, memory.rows, 64))
        return (after[0] - after[1]).abs()[-1].median().item()  # of the cell of an LSTM, the hidden state of a GRU

    kept = left()
    torch.nn.init.zeros_(memory.read.bias)
    assert kept > 100 * left()


@MEMORIES
def test_memory_forgets_where_an_episode_starts_and_only_in_that_lane(kind):
    memory = kind(3, 5)
    x, state = torch.randn(6, 2, 3), torch.randn(2, memory.rows, 5)
    starts = torch.zeros(6, 2, dtype=torch.bool)
    kept, _ = memory(x, starts, state)
    starts[3, 0] = True
    found, _ = memory(x, starts, state)
    fresh, _ = memory(x[3:], torch.zeros(3, 2, dtype=torch.bool), torch.zeros(2, memory.rows, 5))
    assert torch.allclose(found[3:, 0], fresh[:, 0], atol=1e-6)
    assert torch.allclose(found[:, 1], kept[:, 1], atol=1e-6)
    assert not torch.allclose(found[3:, 0], kept[3:, 0], atol=1e-3)


@pytest.mark.parametrize("settings", [{"lstm": 6}, {"gru": 6}, {"lstm": 6, "shared": True}], ids=str)
def test_reading_a_sequence_equals_reading_it_slot_by_slot(settings):
    space = gym_spaces.Dict(a=gym_spaces.Box(-1, 1, (3,)), b=gym_spaces.Discrete(2))
    networks = actor_critic(space, **settings)
    batch = {"a": torch.randn(5 * 2, 3), "b": torch.randint(0, 2, (10,))}
    starts = torch.rand(5, 2) < 0.3
    state = torch.zeros(2, *networks.state_shape)
    whole = networks(batch, starts, state)
    for slot in range(5):
        one = networks(map_tree(lambda x, s=slot: x[2 * s : 2 * s + 2], batch), starts[slot : slot + 1], state)
        state = one.state
        assert torch.allclose(one.outputs, whole.outputs[2 * slot : 2 * slot + 2], atol=1e-6)
        assert torch.allclose(one.values, whole.values[2 * slot : 2 * slot + 2], atol=1e-6)
    assert torch.allclose(state, whole.state, atol=1e-6)


def test_weights_that_do_not_fit_are_refused_whole():
    into = {"a": torch.zeros(2), "b": torch.zeros(3)}
    with pytest.raises(ConfigError, match=r"missing \['b'\], unknown \['c'\]"):
        copy_tensors(into, {"a": torch.ones(2), "c": torch.ones(3)})
    with pytest.raises(ConfigError, match=r"expected b of shape \(3,\), found \(4,\)"):
        copy_tensors(into, {"a": torch.ones(2), "b": torch.ones(4)})
    assert not into["a"].any()
    copy_tensors(into, {"a": torch.ones(2), "b": np.ones(3, np.float32)})
    assert into["b"].tolist() == [1, 1, 1]
