"""Sizes of updates in a plan: a league whose updates are those of a single task loses what its players have learned."""

import pytest
import yaml

from arena.config.run import load_config
from arena.plan.layout import plan, ranks_of_run
from arena.plan.updates import among_changing_players, notes_on_updates, sized_settings


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


def loaded(tmp_path, **keys):
    config = {
        "name": "run",
        "steps": 100_000,
        "env": {"use": "touchdown", "num_envs": 16},
        "policies": {name: {"use": "ppo"} for name in ("a", "b")}
        | {"still": {"use": "ppo", "frozen": True}, "chance": {"use": "random"}},
        **keys,
    }
    path = tmp_path / "file.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return load_config(path)


@pytest.mark.parametrize(
    ("seats", "expected"),
    [(["a", "b"], True), (["a", "still"], False), (["a", "chance"], False), (["a", "a"], False)],
    ids=lambda value: "-".join(value) if isinstance(value, list) else str(value),
)
def test_another_player_that_learns_makes_updates_large_and_few(tmp_path, seats, expected):
    config = loaded(tmp_path, matches=[{"seats": seats}])
    (round_,) = config.round_list()
    changing = among_changing_players(config, round_)
    assert ("a" in changing) is expected
    settings = sized_settings(config, "a", changing)
    lanes = 16 * seats.count("a")
    assert settings.update_size(lanes)[1:3] == ((4, 4) if expected else (32, 10))


def test_a_player_of_another_match_does_not_count(tmp_path):
    config = loaded(tmp_path, matches=[{"seats": ["a", "chance"]}, {"seats": ["b", "chance"]}])
    (round_,) = config.round_list()
    assert "a" not in among_changing_players(config, round_)


@pytest.mark.parametrize(("use", "expected"), [("alphastar", True), ("self_play", True), ("solo", False)])
def test_opponents_of_a_league_change_and_a_dry_run_names_the_sizes(tmp_path, use, expected):
    env = {"use": "touchdown" if expected else "gymnasium:CartPole-v1", "num_envs": 16}
    config = loaded(tmp_path, env=env, league={"use": use}, policies={"a": {"use": "ppo"}})
    (round_,) = config.round_list()
    notes = notes_on_updates(config, round_, plan(round_.rows, [0] * ranks_of_run(config)))
    assert any("updates of 4,096 transitions (32 lanes x horizon 128) in 4 epochs of 4" in note for note in notes) is (
        expected
    )


def test_sizes_of_the_file_are_not_named(tmp_path):
    settings = {"horizon": 128, "minibatch_size": 256, "epochs": 4}
    config = loaded(tmp_path, league={"use": "self_play"}, policies={"a": {"use": "ppo", "settings": settings}})
    (round_,) = config.round_list()
    assert not notes_on_updates(config, round_, plan(round_.rows, [0] * ranks_of_run(config)))


def test_a_file_may_say_otherwise(tmp_path):
    policies = {"a": {"use": "ppo", "settings": {"changing_players": False}}, "b": {"use": "ppo"}}
    config = loaded(tmp_path, policies=policies, matches=[{"seats": ["a", "b"]}])
    (round_,) = config.round_list()
    changing = among_changing_players(config, round_)
    assert sized_settings(config, "a", changing).update_size(16)[1:3] == (32, 10)
    assert sized_settings(config, "b", changing).update_size(16)[1:3] == (4, 4)
