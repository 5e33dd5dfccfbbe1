"""A resumed run keeps the settings that it began with where the file leaves them to defaults that have changed."""

import pytest
import yaml

from arena.config.resumed import kept_settings, load_stored_config
from arena.config.run import load_config

BEFORE = {  # what a run of an earlier version has written down, where today's defaults are others
    "ppo": {"learning_rate_schedule": "linear", "horizon": 128, "minibatches": 4, "epochs": 4},
    "dqn": {"hidden": None, "n_step": 1, "target_every": 500, "target_average": None},
}


@pytest.fixture
def resume(tmp_path):
    def resume(use, given, began, overrides=()):
        config = {
            "name": "run",
            "steps": 10_000,
            "env": {"use": "gymnasium:CartPole-v1"},
            "policies": {"p": {"use": use, "settings": given}},
            "matches": [{"seats": ["p"]}],
        }
        path, stored = tmp_path / "file.yaml", tmp_path / "stored.yaml"
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        whole = yaml.safe_load(load_config(path).to_yaml())
        whole["policies"]["p"]["settings"].update(began)
        stored.write_text(yaml.safe_dump(whole), encoding="utf-8")
        kept = kept_settings(path, overrides, stored)
        return load_config(path, [*kept, *overrides]).policies["p"].settings, kept

    return resume


@pytest.mark.parametrize("use", BEFORE)
def test_what_the_file_leaves_out_stays_as_the_run_began(resume, use):
    settings, _ = resume(use, {}, BEFORE[use])
    assert {key: settings[key] for key in BEFORE[use]} == BEFORE[use]


def test_what_the_file_or_the_command_line_sets_is_taken(resume):
    settings, kept = resume("ppo", {"epochs": 8}, BEFORE["ppo"], ["policies.p.settings.horizon=64"])
    assert (settings["epochs"], settings["horizon"], settings["minibatches"]) == (8, 64, 4)
    assert not any("epochs" in line or "horizon" in line for line in kept)


def test_what_does_not_fit_what_the_file_sets_is_not_kept(resume):
    settings, _ = resume("ppo", {"minibatch_size": 32}, BEFORE["ppo"])
    assert (settings["minibatch_size"], settings["minibatches"]) == (32, None)
    settings, _ = resume("dqn", {"target_average": 0.1}, BEFORE["dqn"])
    assert (settings["target_average"], settings["target_every"]) == (0.1, None)


def test_a_run_of_this_version_changes_nothing(resume):
    assert resume("ppo", {"gamma": 0.9}, {})[1] == []


def test_a_run_of_before_a_setting_existed_goes_on_and_is_read_without_it(resume, tmp_path):
    resume("ppo", {}, {})
    stored = tmp_path / "stored.yaml"
    assert load_stored_config(stored).policies["p"].settings["normalize_rewards"] is True
    whole = yaml.safe_load(stored.read_text())
    for key in ("normalize_observations", "normalize_rewards", "changing_players"):
        del whole["policies"]["p"]["settings"][key]
    stored.write_text(yaml.safe_dump(whole), encoding="utf-8")
    kept = kept_settings(tmp_path / "file.yaml", [], stored)
    for settings in (
        load_stored_config(stored).policies["p"].settings,
        load_config(tmp_path / "file.yaml", kept).policies["p"].settings,
    ):
        assert (
            settings["normalize_observations"] is settings["normalize_rewards"] is settings["changing_players"] is False
        )
