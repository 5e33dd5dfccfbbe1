"""If these fail, the order of units counts, or units that are not there do."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from arena.common.errors import ConfigError
from arena.policies.encoders.composite import Encoder
from arena.policies.encoders.users import sample
from arena.policies.local import Alone
from arena.policies.settings.networks import NetworkSettings

UNITS = spaces.Box(-50, 50, (6, 4))


def encoder(space, *, measured=True, **settings):
    torch.manual_seed(0)
    made = Encoder(space, NetworkSettings(encoder="attention", **settings))
    if measured and any(made.normalizations):
        columns = sample(space, rows=32, seed=3)
        columns = list(columns.values()) if isinstance(columns, dict) else [columns]
        made.measure([column.numpy() for column in columns], slice(None), Alone())
    return made


def units(rows=8):
    x = sample(UNITS, rows=rows, seed=0)
    x[::2, 4:] = 0  # absent
    return x


@pytest.mark.parametrize("normalized", [True, False])
def test_the_order_of_rows_does_not_count(normalized):
    made, x = encoder(UNITS, normalize_observations=normalized), units()
    features = made(x)
    assert features.shape == (8, 128) and features.std(0).min() > 1e-3
    for seed in range(3):
        order = torch.randperm(6, generator=torch.Generator().manual_seed(seed))
        assert torch.allclose(made(x[:, order]), features, atol=1e-5)


def test_rows_that_are_absent_do_not_count_however_many_there_are():
    made, x = encoder(UNITS), units()
    x[:, 4:] = 0
    padded = torch.cat((x, torch.zeros(8, 5, 4)), 1)
    larger = encoder(spaces.Box(-50, 50, (11, 4)), measured=False)
    larger.load_state_dict(made.state_dict())
    assert torch.allclose(larger(padded), made(x), atol=1e-5)
    assert not torch.allclose(made(units()), made(x), atol=1e-3), "rows that are present do not count either"


def test_a_mask_excludes_rows_like_zeros():
    space = spaces.Dict({"units": UNITS, "units_mask": spaces.MultiBinary(6)})
    made, x = encoder(space, normalize_observations=False), units()
    present = x.ne(0).any(2)
    garbage = torch.where(present[:, :, None], x, 7.0)
    mask = present.to(torch.int8)
    assert torch.allclose(
        made({"units": garbage, "units_mask": mask}), made({"units": x, "units_mask": mask}), atol=1e-5
    )
    plain = encoder(UNITS, normalize_observations=False)
    plain.load_state_dict(made.state_dict())
    assert torch.allclose(plain(x), made({"units": garbage, "units_mask": mask}), atol=1e-5)


def test_with_a_mask_rows_of_zeros_are_rows_like_any_other():
    space = spaces.Dict({"units": UNITS, "units_mask": spaces.MultiBinary(6)})
    made, x = encoder(space, normalize_observations=True), units() + 50.0
    x[:, 0] = 0
    mask = torch.ones(8, 6, dtype=torch.int8)
    features = made({"units": x, "units_mask": mask})
    near = x.clone()
    near[:, 0] = 1e-3
    assert torch.allclose(made({"units": near, "units_mask": mask}), features, atol=1e-3)


def test_where_nothing_is_present_features_are_zeros_and_gradients_finite():
    made = encoder(UNITS)
    features = made(torch.zeros(3, 6, 4))
    assert not features.any()
    made(torch.cat((units(2), torch.zeros(1, 6, 4)))).square().sum().backward()
    gradients = {name: parameter.grad for name, parameter in made.named_parameters()}
    assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients.values())


def test_statistics_are_of_features_and_of_present_rows_alone():
    made, x = encoder(UNITS, measured=False), units(64)
    made.measure([x.numpy()], slice(None), Alone())
    (normalization,) = made.normalizations
    rows = x.numpy().reshape(-1, 4)
    rows = rows[rows.any(1)]
    np.testing.assert_allclose(normalization.shift.numpy(), rows.mean(0), rtol=1e-4)
    assert normalization.count == len(rows) < 64 * 6


def test_vectors_beside_sets_are_read_too():
    space = spaces.Dict({"kind": spaces.Discrete(3), "self": spaces.Box(-1, 1, (2,)), "units": UNITS})
    made, x = encoder(space), sample(space, rows=5, seed=0)
    for key, other in (("kind", (x["kind"] + 1) % 3), ("self", -x["self"]), ("units", -x["units"])):
        assert not torch.allclose(made({**x, key: other}), made(x), atol=1e-3), key
    # Bytes are scaled, whole numbers read as numbers.
    counts = encoder(spaces.Box(0, 255, (6, 4), np.uint8), normalize_observations=False)
    assert counts(torch.full((1, 6, 4), 255, dtype=torch.uint8)).abs().max() < 10


@pytest.mark.parametrize(
    ("space", "text"),
    [
        (spaces.Box(-1, 1, (4,)), "attention expects a set, a Box with two axes .entities, features., found none in"),
        (
            spaces.Dict({"map": spaces.Box(0, 255, (24, 24, 3), np.uint8), "units": UNITS}),
            r"found Box\(0, 255, \(24, 24, 3\), uint8\); name another encoder for its key",
        ),
        (
            spaces.Dict({"units": UNITS, "units_mask": spaces.MultiBinary(5)}),
            "expected a flag for each row of .* at 'units_mask', which names the mask of 'units', found MultiBinary",
        ),
    ],
    ids=["no set", "image", "mask"],
)
def test_what_is_no_set_is_refused(space, text):
    with pytest.raises(ConfigError, match=text):
        encoder(space)


def test_settings_are_checked():
    made = Encoder(UNITS, NetworkSettings(encoder="attention", encoder_settings={"layers": 1, "heads": 2, "width": 8}))
    assert made.width == 16 and len(made.leaves[0].blocks) == 1
    for own, text in (({"width": 30}, "multiple of heads"), ({"head": 2}, "did you mean 'heads'")):
        with pytest.raises(ValueError, match=text):
            NetworkSettings(encoder="attention", encoder_settings=own)
