"""If these fail, a matrix game pays other rewards than those of its matrix."""

import numpy as np
import pyspiel
import pytest

from arena.common.errors import ConfigError
from arena.envs.matrix_game import NAMED, MatrixGame


def paid(game: MatrixGame, row: int, column: int) -> list[float]:
    game.reset()
    return list(game.step([np.int64(row), np.int64(column)]).rewards)


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("rock_paper_scissors", "matrix_rps"),
        ("biased_rock_paper_scissors", "matrix_brps"),
        ("matching_pennies", "matrix_mp"),
        ("prisoners_dilemma", "matrix_pd"),
    ],
)
def test_named_games_are_those_that_the_field_knows(name: str, published: str) -> None:
    known = pyspiel.load_matrix_game(published)
    expected = np.stack([known.row_utilities(), known.col_utilities()])
    np.testing.assert_array_equal(MatrixGame(name).payoffs, expected)


def test_one_matrix_is_what_the_row_wins_and_the_column_loses() -> None:
    game = MatrixGame([[3, -2], [-2, 1]])
    assert [paid(game, row, column) for row in (0, 1) for column in (0, 1)] == [[3, -3], [-2, 2], [-2, 2], [1, -1]]


def test_a_pair_of_matrices_is_what_each_wins() -> None:
    game = MatrixGame([[[1, 2, 3]], [[4, 5, 6]]])
    assert [entity.action.n for entity in game.entities] == [1, 3]
    assert paid(game, 0, 2) == [3.0, 6.0]


def test_an_episode_lasts_as_many_rounds_and_pays_each() -> None:
    game = MatrixGame(NAMED["biased_rock_paper_scissors"], rounds=3)
    game.reset()
    played = [game.step([0, 2]) for _ in range(3)]
    assert [timestep.over for timestep in played] == [False, False, True]
    assert sum(timestep.rewards[0] for timestep in played) == 150.0


def test_both_sides_look_alike_only_where_the_game_does() -> None:
    """A player that plays either side must be able to distinguish them if they differ."""
    row, column = MatrixGame("biased_rock_paper_scissors").reset().observations
    assert row.tolist() == column.tolist() == [1.0]
    row, column = MatrixGame("matching_pennies").reset().observations
    assert row.tolist() == [1.0, 0.0] and column.tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"payoffs": "rock_paper_scisors"}, r"did you mean 'rock_paper_scissors'\?"),
        ({"payoffs": [[1, 2], [3]]}, "expected a matrix of finite numbers"),
        ({"payoffs": [[[1]], [[2]], [[3]]]}, "expected a matrix of finite numbers"),
        ({"payoffs": [[float("nan")]]}, "expected a matrix of finite numbers"),
        ({"payoffs": 3}, "expected a matrix of finite numbers"),
        ({"rounds": 0}, "rounds: expected a whole number above 0, found 0"),
    ],
)
def test_what_is_no_game_is_refused(settings: dict, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        MatrixGame(**settings)
