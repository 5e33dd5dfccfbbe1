"""If these fail, the benchmark that guards the defaults of leagues measures another league, or another opponent."""

import numpy as np
import pytest
import yaml

from arena.common.registry import build_policy, make_environment
from arena.config.run import load_config
from benchmarks.league_strength import LEAGUES, MINIMAX, self_play, text_of
from benchmarks.tools.minimax import Minimax, has_line


@pytest.mark.parametrize("name", LEAGUES)
def test_each_league_and_its_self_play_are_valid(tmp_path, name):
    league = LEAGUES[name]
    path = tmp_path / "league.yaml"
    path.write_text(text_of(league), encoding="utf-8")
    config = load_config(path, league.overrides)
    changes = [word for word in league.overrides if not word.startswith("league.")]
    alone = load_config(path, [*changes, *self_play(league, yaml.safe_load(text_of(league)))])
    assert (alone.steps, alone.league.use, len(alone.players)) == (config.steps, "self_play", 1)


def board(*lines):
    """Return a board ``[1, 6, 7, 2]`` whose last lines are given: x is the own stone, o the opponent's."""
    rows = ["." * 7] * (6 - len(lines)) + list(lines)
    return np.array([[[[cell == "x", cell == "o"] for cell in row] for row in rows]], np.int8)


@pytest.mark.parametrize(
    "lines",
    [
        ["xxxx..."],
        ["x......", "x......", "x......", "x......"],
        ["...x...", "..x....", ".x.....", "x......"],
        ["x......", ".x.....", "..x....", "...x..."],
    ],
    ids=["row", "column", "rising", "falling"],
)
def test_four_stones_in_a_line_are_found(lines):
    stones = board(*lines)[0, ..., 0].astype(bool)
    assert has_line(stones)
    stones[tuple(np.argwhere(stones)[0])] = False
    assert not has_line(stones)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["ooo.xxx"], {3}),  # it wins where the opponent would
        (["ooo..x."], {3}),  # it prevents a loss
        (["xxx.o..", "ooo.x.."], {3}),  # the stone that wins lies on the one that prevents the loss
    ],
)
def test_the_scripted_player_wins_and_prevents_losses(lines, expected):
    player = Minimax(None, {}, lanes=1, seed=0)
    moves = {int(player.act(board(*lines), action_mask=np.ones((1, 7), np.int8)).actions[0]) for _ in range(20)}
    assert moves == expected


def test_the_scripted_player_is_found_by_its_reference():
    spaces = make_environment("pettingzoo:classic.connect_four_v3", {}).entities[0]
    assert type(build_policy(MINIMAX, spaces, {}, lanes=2, seed=0)).__name__ == "Minimax"


def test_a_full_column_is_not_played():
    player = Minimax(None, {}, lanes=1, seed=0)
    mask = np.array([[0, 1, 0, 0, 0, 0, 0]], np.int8)
    assert player.act(board(), action_mask=mask).actions.tolist() == [1]
