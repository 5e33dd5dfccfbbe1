"""If these fail, a typo in a config file trains something else than was asked for, or the root loads torch."""

import subprocess
import sys

import pytest
from pydantic import ValidationError

from arena.policies.settings import PPOSettings, RandomSettings, StableBaselines3Settings

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
        ({"horizon": 0}, "horizon\n.*greater than 0"),
        ({"hidden": [64, -1]}, "hidden"),
        ({"activation": "softmax"}, "activation\n.*'tanh', 'relu'"),
        ({"burn_in": 4}, "expected lstm or gru: a width, found null"),
        ({"lstm": 8, "burn_in": 200}, "expected burn_in of at most the horizon of 128 slots, found 200"),
        ({"gru": 8, "burn_in": 200}, "expected burn_in of at most the horizon of 128 slots, found 200"),
        ({"lstm": 8, "gru": 4}, r"expected lstm or gru, found both \(8 and 4\)"),
        ({"shared": "memory"}, "shared.*\n.*valid boolean"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused(settings, message):
    with pytest.raises(ValidationError, match=message):
        PPOSettings(**settings)


def test_settings_load_without_torch():
    code = "import sys, arena.policies.settings; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
