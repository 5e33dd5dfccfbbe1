"""If these fail, the workers of a player drift apart, or weigh each other's experience wrongly."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from arena.policies.local import Alone, Lockstep
from arena.tensors.gradients import FlatGradient


def network(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))


def gradients(model: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def test_backward_fills_the_flat_buffer():
    model = network()
    flat = FlatGradient(model.parameters(), extras=2)
    model(torch.ones(4, 3)).sum().backward()
    assert flat.values.abs().sum() > 0
    assert torch.equal(flat.values, gradients(model))
    flat.zero()
    assert not gradients(model).any() and flat.extras.shape == (2,)


def test_gradients_from_before_are_kept():
    model = network()
    model(torch.ones(4, 3)).sum().backward()
    before = gradients(model).clone()
    assert torch.equal(FlatGradient(model.parameters()).values, before)


def test_gradients_that_an_optimizer_detached_come_home():
    model = network()
    flat = FlatGradient(model.parameters())
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    optimizer.zero_grad()  # sets every .grad to None
    model[0](torch.ones(4, 3)).sum().backward()  # and only the first layer gets a new one
    flat.gather()
    assert flat.values[: 3 * 5 + 5].abs().sum() > 0 and not flat.values[3 * 5 + 5 :].any()
    assert all(parameter.grad.data_ptr() >= flat.values.data_ptr() for parameter in model.parameters())


def test_average_weighs_workers_by_their_samples():
    weights = (1.0, 3.0, 0.0)

    def work(member):
        model = network()
        flat = FlatGradient(model.parameters(), extras=1)
        flat.values.fill_(float(member.rank + 1))
        flat.extras.fill_(10.0 * member.rank)
        total = flat.average(member, weights[member.rank])
        return total, flat.values.clone(), flat.extras.item()

    for total, values, extra in Lockstep(3).run(work):
        assert total == 4
        assert torch.allclose(values, torch.full_like(values, (1 * 1 + 3 * 2) / 4))
        assert extra == pytest.approx((1 * 0 + 3 * 10) / 4)


def test_group_average_equals_the_gradient_of_all_samples_together():
    inputs = torch.from_numpy(np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32))
    parts = (inputs[:2], inputs[2:9], inputs[9:])
    whole = network()
    models = [copy.deepcopy(whole) for _ in parts]  # made here: the generator of fresh weights is shared by threads
    whole(inputs).square().mean().backward()

    def work(member):
        model = models[member.rank]
        flat = FlatGradient(model.parameters())
        part = parts[member.rank]
        model(part).square().mean().backward()
        flat.average(member, len(part))
        return flat.values.clone()

    found = Lockstep(3).run(work)
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])
    assert torch.allclose(found[0], gradients(whole), atol=1e-6)


@pytest.mark.parametrize("size", [1, 2])
def test_nothing_is_left_where_no_worker_had_samples(size):
    def work(member):
        model = network()
        flat = FlatGradient(model.parameters())
        flat.values.fill_(7.0)
        return flat.average(member, 0.0), flat.values.abs().sum().item()

    assert Lockstep(size).run(work) == [(0.0, 0.0)] * size


def test_one_worker_alone_keeps_its_gradient_bit_for_bit():
    model = network()
    flat = FlatGradient(model.parameters())
    model(torch.ones(4, 3)).sum().backward()
    before = copy.deepcopy(flat.values)
    assert flat.average(Alone(), 17) == 17
    assert torch.equal(flat.values, before)


def test_a_model_without_parameters_is_refused():
    with pytest.raises(ValueError, match="expected at least one parameter that requires a gradient"):
        FlatGradient(nn.Tanh().parameters())
