"""Touchdown keeps its rules, number by number, and the contract of an environment."""

from collections.abc import Sequence

import numpy as np
import pytest
from gymnasium import spaces

from arena.common.errors import ConfigError
from arena.envs.contract import EnvironmentContract
from arena.envs.interface import Timestep
from arena.envs.touchdown.environment import Touchdown

STAY, RIGHT, LEFT, FORWARD, BACK = range(5)
# Nineteen steps lead from the start exactly onto the line, the twentieth across it.
TO_THE_LINE = 19


def play(game: Touchdown, *moves: Sequence[int], times: int = 1) -> Timestep:
    """Step ``times`` times through ``moves``, one action per entity in each, and return what came last."""
    for _ in range(times):
        for move in moves:
            timestep = game.step(move)
    return timestep


def position(timestep: Timestep, entity: int) -> tuple[float, float]:
    """Return where an entity sees itself (vector observations; red sees both coordinates negated)."""
    x, y = timestep.observations[entity][:2]
    return round(float(x), 6), round(float(y), 6)


class TestVectorContract(EnvironmentContract):
    def make_environment(self) -> Touchdown:
        return Touchdown(team_size=2, max_steps=120)


class TestImageAndContinuousContract(EnvironmentContract):
    steps = 60

    def make_environment(self) -> Touchdown:
        return Touchdown(
            team_size=1,
            actions={"blue": "continuous", "red": "discrete"},
            observations={"blue": "image", "red": "vector"},
            max_steps=40,
        )


def test_teams_start_at_their_own_end() -> None:
    timestep = Touchdown(team_size=2).reset()
    # Each sees itself at (0, 0.9), and the opponents across the field.
    for observation in timestep.observations:
        np.testing.assert_allclose(observation, [0, 0.9, 0, 0.9, 0, -0.9, 0, -0.9], atol=1e-7)


def test_names_and_order_are_blue_then_red() -> None:
    names = [entity.name for entity in Touchdown(team_size=3).entities]
    assert names == ["blue_0", "blue_1", "blue_2", "red_0", "red_1", "red_2"]


@pytest.mark.parametrize(
    ("action", "expected"),
    [(STAY, (0, 0.9)), (RIGHT, (0.1, 0.9)), (LEFT, (-0.1, 0.9)), (FORWARD, (0, 0.8)), (BACK, (0, 1.0))],
)
def test_a_discrete_action_means_the_same_to_both_teams(action: int, expected: tuple[float, float]) -> None:
    game = Touchdown(team_size=1)
    game.reset()
    timestep = game.step([action, action])
    assert position(timestep, 0) == position(timestep, 1) == expected


def test_red_moves_the_other_way_on_the_field() -> None:
    game = Touchdown(team_size=1)
    game.reset()
    timestep = game.step([STAY, RIGHT])
    # Blue sees the field as it is: red's right is -x.
    np.testing.assert_allclose(timestep.observations[0], [0, 0.9, -0.1, -0.9], atol=1e-7)
    timestep = game.step([STAY, FORWARD])
    np.testing.assert_allclose(timestep.observations[0], [0, 0.9, -0.1, -0.8], atol=1e-7)


def test_continuous_actions_are_right_and_forward_in_tenths() -> None:
    game = Touchdown(team_size=1, actions="continuous")
    game.reset()
    timestep = game.step([np.float32([0.5, 1.0]), np.float32([-0.5, 0.25])])
    assert position(timestep, 0) == (0.05, 0.8)
    assert position(timestep, 1) == (-0.05, 0.875)


def test_continuous_actions_beyond_the_box_are_no_faster() -> None:
    game = Touchdown(team_size=1, actions="continuous")
    game.reset()
    timestep = game.step([np.float32([7, 7]), np.float32([0, 0])])
    assert position(timestep, 0) == (0.1, 0.8)


def test_actions_and_observations_are_chosen_per_team() -> None:
    game = Touchdown(
        team_size=1,
        actions={"blue": "continuous", "red": "discrete"},
        observations={"blue": "vector", "red": "image"},
    )
    blue, red = game.entities
    assert blue.action == spaces.Box(-1.0, 1.0, (2,), np.float32)
    assert red.action == spaces.Discrete(5)
    assert blue.observation.shape == (4,)
    assert red.observation.shape == (84, 84, 1)
    assert red.observation.dtype == np.int8


def test_nobody_leaves_sideways_or_through_their_own_end() -> None:
    game = Touchdown(team_size=1)
    game.reset()
    timestep = play(game, [RIGHT, LEFT], [BACK, BACK], times=30)
    assert position(timestep, 0) == (1.0, 1.0)
    assert position(timestep, 1) == (-1.0, 1.0)
    assert not timestep.over


def test_standing_on_the_line_is_not_crossing_it() -> None:
    game = Touchdown(team_size=1)
    game.reset()
    # Red stands aside, so that nobody touches.
    play(game, [STAY, RIGHT], times=5)
    timestep = play(game, [FORWARD, STAY], times=TO_THE_LINE)
    assert position(timestep, 0) == (0.0, -1.0)
    assert not timestep.over
    timestep = game.step([FORWARD, STAY])
    assert timestep.over
    assert timestep.rewards == (1.0, -1.0)
    assert timestep.terminated == (True, True)
    assert timestep.truncated == (False, False)


@pytest.mark.parametrize("wobble", [(RIGHT, LEFT), (FORWARD, BACK), (LEFT, RIGHT)])
def test_a_long_way_to_the_line_ends_on_it_too(wobble: tuple[int, int]) -> None:
    """Rounding errors of many moves must not decide whether a team scored."""
    game = Touchdown(team_size=1)
    game.reset()
    play(game, [STAY, RIGHT], times=6)
    play(game, *([move, STAY] for move in wobble), times=300)
    assert not play(game, [FORWARD, STAY], times=TO_THE_LINE).over
    assert game.step([FORWARD, STAY]).over


def test_touching_sends_both_home() -> None:
    game = Touchdown(team_size=1)
    game.reset()
    # 1.8 apart: eight steps of both leave 0.2, and the ninth would put both onto (0, 0).
    timestep = play(game, [FORWARD, FORWARD], times=8)
    assert position(timestep, 0) == position(timestep, 1) == (0.0, 0.1)
    timestep = game.step([FORWARD, FORWARD])
    assert position(timestep, 0) == position(timestep, 1) == (0.0, 0.9)
    assert timestep.rewards == (0.0, 0.0)
    assert not timestep.over


def test_a_tenth_apart_is_not_touching() -> None:
    game = Touchdown(team_size=1)
    game.reset()
    play(game, [FORWARD, FORWARD], times=8)
    timestep = game.step([FORWARD, STAY])
    assert position(timestep, 0) == (0.0, 0.0)
    assert position(timestep, 1) == (0.0, 0.1)
    assert position(game.step([FORWARD, STAY]), 0) == (0.0, 0.9), "0 apart must touch"


@pytest.mark.parametrize(
    ("aside", "red_forward", "touches"),
    [(0.7, 0.4, True), (0.7, 0.2, False), (-0.7, 0.4, True), (0.99, 1.0, True), (1.0, 1.0, False)],
)
def test_distance_counts_across_and_along(aside: float, red_forward: float, touches: bool) -> None:
    game = Touchdown(team_size=1, actions="continuous")
    game.reset()
    forward = np.float32([0, 1])
    # They face each other 0.2 apart; then blue steps forward and aside, and red forward.
    for _ in range(8):
        game.step([forward, forward])
    timestep = game.step([np.float32([aside, 1]), np.float32([0, red_forward])])
    assert (np.hypot(0.1 * aside, 0.1 - 0.1 * red_forward) < 0.1) == touches
    assert (position(timestep, 0) == (0.0, 0.9)) == touches
    assert (position(timestep, 1) == (0.0, 0.9)) == touches


def test_allies_do_not_touch_each_other() -> None:
    game = Touchdown(team_size=2)
    game.reset()
    timestep = play(game, [FORWARD, FORWARD, STAY, STAY], times=3)
    assert position(timestep, 0) == position(timestep, 1) == (0.0, 0.6)


def test_all_who_touch_go_home_however_many_they_are() -> None:
    """One runner between two opponents sends both back, not just the first."""
    game = Touchdown(team_size=2)
    game.reset()
    # blue_1 waits at the start, the other three meet in the middle.
    play(game, [FORWARD, STAY, FORWARD, FORWARD], times=8)
    timestep = game.step([FORWARD, STAY, FORWARD, FORWARD])
    assert [position(timestep, entity) for entity in range(4)] == [(0.0, 0.9)] * 4


def test_a_touch_on_the_line_stops_the_score() -> None:
    """Touches come before crossings: a defender on the line is worth having."""
    game = Touchdown(team_size=1, actions="continuous")
    game.reset()
    still = np.float32([0, 0])
    # Blue passes red at a distance of 0.2, then turns in to cross just beside it.
    for _ in range(2):
        game.step([np.float32([1, 0]), still])
    for _ in range(18):
        game.step([np.float32([0, 1]), still])
    timestep = game.step([np.float32([0, 0.95]), np.float32([0, -0.5])])
    assert position(timestep, 0) == (0.2, -0.995)
    assert position(timestep, 1) == (0.0, 0.95)
    timestep = game.step([np.float32([-1, 0.2]), np.float32([-0.2, -0.5])])
    assert not timestep.over
    assert position(timestep, 0) == position(timestep, 1) == (0.0, 0.9)


def around(game: Touchdown, blues: int, reds: int) -> Timestep:
    """Bring this many of a 3v3 across in the same step, the teams passing on different sides, and return that step."""
    game.reset()
    size = game.team_size
    runs = [entity % size < (blues if entity < size else reds) for entity in range(2 * size)]
    # To its own right, each team leaves the middle for another side of the field.
    play(game, [RIGHT] * (2 * size), times=5)
    return play(game, [FORWARD if run else STAY for run in runs], times=TO_THE_LINE + 1)


@pytest.mark.parametrize(
    ("blues", "reds", "blue_reward", "outcomes"),
    [
        (1, 0, 1.0, ("win", "loss")),
        (0, 1, -1.0, ("loss", "win")),
        (2, 0, 2.0, ("win", "loss")),
        (0, 3, -3.0, ("loss", "win")),
        (1, 1, 0.0, ("draw", "draw")),
        (3, 1, 2.0, ("win", "loss")),
    ],
)
def test_everybody_is_paid_per_crosser(blues: int, reds: int, blue_reward: float, outcomes: tuple[str, str]) -> None:
    timestep = around(Touchdown(team_size=3), blues, reds)
    assert timestep.over
    assert list(timestep.rewards) == [blue_reward] * 3 + [-blue_reward] * 3
    assert all(timestep.terminated)
    assert not any(timestep.truncated)
    assert not any(timestep.acting)
    assert [info["outcome"] for info in timestep.infos] == [outcomes[0]] * 3 + [outcomes[1]] * 3


def test_an_episode_is_truncated_at_1500_steps() -> None:
    game = Touchdown(team_size=1)
    game.reset()
    assert not play(game, [STAY, STAY], times=1499).over
    timestep = game.step([STAY, STAY])
    assert timestep.over
    assert timestep.truncated == (True, True)
    assert timestep.terminated == (False, False)
    assert timestep.rewards == (0.0, 0.0)
    assert [info["outcome"] for info in timestep.infos] == ["draw", "draw"]


def test_a_score_in_the_last_step_terminates_rather_than_truncates() -> None:
    game = Touchdown(team_size=1, max_steps=TO_THE_LINE + 2)
    game.reset()
    game.step([RIGHT, STAY])
    timestep = play(game, [FORWARD, STAY], times=TO_THE_LINE + 1)
    assert timestep.terminated == (True, True)
    assert timestep.truncated == (False, False)


def test_a_new_episode_starts_from_the_start() -> None:
    game = Touchdown(team_size=1, max_steps=3)
    first = game.reset()
    play(game, [FORWARD, LEFT], times=3)
    again = game.reset()
    for before, after in zip(first.observations, again.observations, strict=True):
        np.testing.assert_array_equal(before, after)
    assert not game.step([STAY, STAY]).over, "the step count must start again"


def test_vector_observations_list_oneself_allies_then_opponents_in_order() -> None:
    game = Touchdown(team_size=2)
    game.reset()
    timestep = game.step([RIGHT, FORWARD, LEFT, FORWARD])
    blue_0, blue_1, red_0, red_1 = (0.1, 0.9), (0.0, 0.8), (0.1, -0.9), (0.0, -0.8)
    by_entity = [
        (blue_0, blue_1, red_0, red_1),
        (blue_1, blue_0, red_0, red_1),
        (red_0, red_1, blue_0, blue_1),
        (red_1, red_0, blue_0, blue_1),
    ]
    for entity, (observation, expected) in enumerate(zip(timestep.observations, by_entity, strict=True)):
        side = 1 if entity < 2 else -1
        np.testing.assert_allclose(observation, side * np.ravel(expected), atol=1e-7)
        assert observation.dtype == np.float32


def test_image_shows_oneself_over_allies_over_opponents() -> None:
    game = Touchdown(team_size=2, observations="image")
    game.reset()
    timestep = game.step([RIGHT, STAY, STAY, STAY])
    image = timestep.observations[1][:, :, 0]
    # y = 0.9 is row 4, x = 0 column 42, x = 0.1 column 46; markers reach three pixels.
    assert image[4, 42] == 2
    assert image[4, 45] == 2, "oneself lies over the ally"
    assert image[4, 49] == 1
    assert image[79, 42] == -1
    assert image[40, 42] == 0
    # One 7x7 marker, one that it half covers, and two opponents on one spot.
    assert (image == 2).sum() == 49
    assert (image == 1).sum() == 7 * 4
    assert (image == -1).sum() == 49


def test_image_of_red_is_blues_turned_by_half() -> None:
    """Blue's image of a position is red's of the mirrored one: one policy can play both sides."""
    game = Touchdown(team_size=2, observations="image")
    game.reset()
    timestep = game.step([RIGHT, FORWARD, RIGHT, FORWARD])
    np.testing.assert_array_equal(timestep.observations[0], timestep.observations[2])
    np.testing.assert_array_equal(timestep.observations[1], timestep.observations[3])
    timestep = game.step([RIGHT, STAY, STAY, STAY])
    blue, red = timestep.observations[0], timestep.observations[2]
    own, seen_by_red = blue == 2, (red == -1)[::-1, ::-1]
    assert (own & seen_by_red).sum() == own.sum() == 49


def test_a_scorer_is_still_seen() -> None:
    game = Touchdown(team_size=1, observations="image")
    timestep = around(game, 1, 0)
    assert (timestep.observations[0] == 2).any()
    assert game.entities[0].observation.contains(timestep.observations[0])


def test_the_last_vector_observation_is_in_its_space() -> None:
    game = Touchdown(team_size=1)
    timestep = around(game, 1, 1)
    for entity, observation in zip(game.entities, timestep.observations, strict=True):
        assert position(timestep, 0)[1] == -1.1
        assert entity.observation.contains(observation)


def test_rendered_frame_shows_both_teams_in_their_colours() -> None:
    game = Touchdown(team_size=1, colors={"blue": "#00ff00", "red": "#102030"})
    game.reset()
    frame = game.render()
    assert frame.shape == (400, 400, 3)
    assert frame.dtype == np.uint8
    # Blue starts at the top: 0.9 times 168 pixels above the middle.
    assert tuple(frame[200 - 151, 200]) == (0x00, 0xFF, 0x00)
    assert tuple(frame[200 + 151, 200]) == (0x10, 0x20, 0x30)
    game.step([FORWARD, STAY])
    moved = game.render()
    assert tuple(moved[200 - 134, 200]) == (0x00, 0xFF, 0x00)
    assert (frame[:30, :120] != moved[:30, :120]).any(), "the step count must change"


@pytest.mark.parametrize("entity", [0, 1])
def test_an_action_that_does_not_exist_names_the_entity(entity: int) -> None:
    game = Touchdown(team_size=1)
    game.reset()
    actions = [STAY, STAY]
    actions[entity] = 5
    with pytest.raises(ValueError, match=f"{game.entities[entity].name}: expected an action from 0 to 4, found 5"):
        game.step(actions)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"team_size": 0}, "team_size: expected a whole number of at least 1, found 0"),
        ({"max_steps": 2.5}, "max_steps: expected a whole number of at least 1, found 2.5"),
        ({"actions": "analogue"}, "actions: expected discrete or continuous"),
        ({"observations": {"blue": "vector"}}, "observations: expected vector or image for both teams"),
        ({"colors": {"green": "red"}}, "colors: expected the teams blue and red, found green"),
        ({"colors": {"red": "reddd"}}, "found 'reddd' .did you mean 'red'"),
    ],
)
def test_wrong_settings_are_refused_with_what_was_expected(settings: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Touchdown(**settings)
