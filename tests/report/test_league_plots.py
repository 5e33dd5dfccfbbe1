"""If these fail, a league cannot be looked at, or its pictures show what is not there."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_hex

from arena.records.readers.league import RatingCurve, Relative
from arena.report.league_plots import (
    draw_exploitability,
    draw_family,
    draw_heat_map,
    draw_ratings,
)
from arena.report.plots import save_figure


@pytest.mark.parametrize("suffix", ["png", "svg"])
@pytest.mark.parametrize("count", [1, 3, 50])
def test_a_heat_map_of_any_size_is_written(tmp_path: Path, count: int, suffix: str) -> None:
    matrix = np.full((count, count), np.nan)
    matrix[0, -1] = 0.75
    figure = draw_heat_map(
        "league", "note", [f"player_{i}" for i in range(count)], matrix, (matrix - 0.1, matrix + 0.1)
    )
    path = save_figure(figure, tmp_path / f"map.{suffix}")
    assert path.stat().st_size > 5000
    written = {text.get_text() for text in figure.axes[0].texts}
    assert ("75%" in written) == (count < 50), "numbers are written where there is room for them"
    assert not any("nan" in text for text in written), "who has not met has no number"


def test_the_family_tree_gives_each_founder_a_lane_and_links_who_descends_from_another() -> None:
    family = {
        "main": Relative(None, 9000, True),
        "main_4000": Relative("main", 4000, False),
        "seed": Relative(None, 0, False),
        "late": Relative("main_4000", 6000, True),
    }
    axes = draw_family("league", family).axes[0]
    lanes = [label.get_text() for label in axes.get_yticklabels()]
    assert lanes == ["main", "seed", "late"]
    links = [text for text in axes.texts if getattr(text, "arrow_patch", None) is not None]
    assert [(link.xyann, link.xy) for link in links] == [((4000, 2), (6000, 0))]


def test_ratings_show_who_learns_as_lines_and_the_frozen_as_dots() -> None:
    minutes = np.arange(5.0)
    curves = {
        "main": RatingCurve(minutes, 25 + minutes, np.ones(5)),
        "main_4000": RatingCurve(np.array([2.0]), np.array([26.5]), np.ones(1)),
    }
    axes = draw_ratings("league", curves, ["main", "never_met"]).axes[0]
    dots, line = axes.lines
    assert (list(dots.get_xdata()), list(dots.get_ydata())) == ([2.0], [26.5])
    assert line.get_label() == "main" and to_hex(line.get_color()) == "#3b82f6"


def test_exploitability_is_drawn_for_each_player_and_for_mixtures_of_all() -> None:
    steps, values = np.array([0, 500, 900]), np.array([2.0, 1.0, 0.5])
    alone, mixtures = {"a": (steps[:2], values[:2]), "b": (steps[2:], values[2:])}, {"mixed": (steps, values)}
    axes = draw_exploitability("run", alone, mixtures).axes[0]
    assert axes.get_yscale() == "log" and [line.get_label() for line in axes.lines] == ["a", "b", "mixed"]
    assert list(axes.lines[1].get_xdata()) == [900]
    mixtures["mixed"] = (steps, np.array([2.0, 0.0, np.nan]))
    assert draw_exploitability("run", alone, mixtures).axes[0].get_yscale() == "linear", "0 has no logarithm"
