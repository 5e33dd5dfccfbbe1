"""What a dry run says of updates that are too large: a user would find out from a curve that does not rise."""

import pytest
import yaml

from arena.config.run import load_config
from arena.launch.preflight import notes_on_updates
from arena.plan.layout import plan, ranks_of_run


@pytest.fixture
def notes(tmp_path):
    def notes(copies, steps, settings, seats=("p",), use="ppo"):
        config = {
            "name": "run",
            "steps": steps,
            "env": {"use": "gymnasium:CartPole-v1", "num_envs": copies},
            "policies": {"p": {"use": use, "settings": settings}},
            "matches": [{"seats": list(seats), "replicas": 2}],
        }
        path = tmp_path / "file.yaml"
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        loaded = load_config(path)
        (round_,) = loaded.round_list()
        return notes_on_updates(loaded, round_, plan(round_.rows, [0] * ranks_of_run(loaded)))

    return notes


def test_the_defaults_are_right_for_few_and_many_copies(notes):
    assert not any(notes(copies, 100_000, {}) for copies in (1, 8, 64, 512))
    assert not notes(8, 100_000, {}, use="dqn")


def test_minibatches_that_average_over_far_more_than_usual_are_named(notes):
    (note,) = notes(64, 10_000_000, {"horizon": 256, "minibatches": 4})
    assert note.startswith(
        "p learns little from each transition: an epoch has 4 minibatches of 8,192 transitions, over 16"
    )
    assert not notes(64, 10_000_000, {"horizon": 256, "minibatches": 32})


def test_an_update_of_over_half_of_the_budget_is_named(notes):
    (note,) = notes(64, 20_000, {"horizon": 128})
    assert "an update takes 16,384 transitions (128 lanes x horizon 128) of a budget of 20,000" in note
    assert not notes(64, 40_000, {"horizon": 128})
