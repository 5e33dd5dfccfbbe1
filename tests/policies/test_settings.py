"""If these fail, a typo in a config file trains something other than intended, or the root loads torch."""

import subprocess
import sys

import pytest
from pydantic import ValidationError

from arena.policies.on_policy.settings import PPOSettings
from arena.policies.settings.random import RandomSettings
from arena.policies.settings.sb3 import StableBaselines3Settings

MODELS = [RandomSettings, PPOSettings, StableBaselines3Settings]


@pytest.mark.parametrize("model", MODELS)
def test_defaults_are_complete_and_every_setting_is_explained(model):
    model()
    assert all(field.description for field in model.model_fields.values())


@pytest.mark.parametrize("model", MODELS)
def test_an_unknown_key_is_refused(model):
    with pytest.raises(ValidationError, match="learning_rat\n.*Extra inputs are not permitted"):
        model(learning_rat=1)


def test_settings_are_frozen():
    with pytest.raises(ValidationError, match="frozen"):
        PPOSettings().gamma = 0.5


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gamma": 1.5}, "gamma\n.*less than or equal to 1"),
        ({"horizon": 0}, "horizon\n.*expected a whole number of at least 1, or auto, found 0"),
        ({"hidden": [64, -1]}, "hidden"),
        ({"activation": "softmax"}, "activation\n.*'tanh', 'relu'"),
        ({"burn_in": 4}, "expected lstm or gru: a width, found null"),
        (
            {"lstm": 8, "horizon": 128, "burn_in": 200},
            "expected burn_in of at most the horizon of 128 slots, found 200",
        ),
        ({"gru": 8, "horizon": 128, "burn_in": 200}, "expected burn_in of at most the horizon of 128 slots, found 200"),
        ({"lstm": 8, "gru": 4}, r"expected lstm or gru, found both \(8 and 4\)"),
        ({"shared": "memory"}, "shared.*\n.*valid boolean"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused(settings, message):
    with pytest.raises(ValidationError, match=message):
        PPOSettings(**settings)


def test_settings_load_without_torch():
    code = (
        "import sys, arena.policies.on_policy.settings, arena.policies.settings.sb3; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


@pytest.mark.parametrize(
    ("lanes", "entities", "expected"),
    [
        (1, 1, (2048, 32, 10)),
        (8, 1, (256, 32, 10)),
        (64, 1, (32, 32, 10)),
        (256, 1, (32, 32, 10)),  # no shorter, and as many gradient steps, from larger minibatches
        (24, 3, (85, 32, 4)),  # eight copies with three entities: as many transitions, which resemble each other
    ],
)
def test_an_update_takes_as_much_however_many_copies_collect_it(lanes, entities, expected):
    assert PPOSettings().update_size(lanes, entities)[:3] == expected


@pytest.mark.parametrize(
    ("lanes", "expected"), [(2, (2048, 4, 4)), (32, (128, 4, 4)), (64, (64, 4, 4)), (512, (32, 4, 4))]
)
def test_beside_players_that_change_an_update_has_few_large_minibatches(lanes, expected):
    assert PPOSettings().among(changing_players=True).update_size(lanes)[:3] == expected
    assert PPOSettings(epochs=1, horizon=8).among(changing_players=True).update_size(512)[:3] == (8, 4, 1)


@pytest.mark.parametrize("settings", [{"lstm": 8}, {"gru": 8}])
def test_a_memory_or_images_are_learned_from_in_fewer_and_larger_minibatches(settings):
    assert PPOSettings(**settings).update_size(8) == PPOSettings().update_size(8, images=True) == (128, 4, 4, 256)


def test_what_is_set_is_kept_and_the_rest_follows():
    assert PPOSettings(horizon=128).update_size(8)[:3] == (128, 16, 10)
    assert PPOSettings(horizon=128, minibatches=4, epochs=4).update_size(8)[:3] == (128, 4, 4)
    assert PPOSettings(minibatch_size=512).update_size(8)[:3] == (256, 4, 10)
    assert PPOSettings(minibatch_size=64).update_size(256)[:3] == (32, 128, 10)


def test_two_sizes_of_a_minibatch_are_refused():
    with pytest.raises(ValidationError, match="expected minibatches or minibatch_size, found both"):
        PPOSettings(minibatches=4, minibatch_size=64)
