"""Pictures of a run: every player's reward curve, and the metrics of each one's learning."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from arena.common.errors import ConfigError
from arena.common.files import write_atomically
from arena.records.player_statistics import RECENT, PlayerInfo
from arena.records.readers.run import (
    EvaluationSeries,
    Series,
    open_records,
    read_evaluations,
    read_metrics,
    read_players,
    read_returns,
)
from arena.records.run_directory import RunDirectory

if TYPE_CHECKING:  # slow to import, and needed at the end of a run only
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

logger = logging.getLogger(__name__)

INK, FAINT, GRID = "#1f2937", "#6b7280", "#e5e7eb"
MAX_POINTS = 1500
"""Points drawn of a curve: more than pixels would only cost time."""

LEGEND_WIDTH = 110
"""Characters that fit side by side below the curves."""

DOTS = 1200
"""Single episodes shown behind a curve."""

PANELS = (
    ("Policy loss", ("loss/policy", "policy_loss")),
    ("Value loss", ("loss/value", "value_loss")),
    ("Entropy", ("entropy",)),
    ("KL divergence per update", ("kl", "approx_kl")),
    ("Explained variance", ("explained_variance",)),
    ("Clipped fraction", ("clip_fraction",)),
)
"""The first panels of a player's picture, and the names of metrics shown in them."""

MAX_PANELS = 48
"""Panels of a picture: every other metric gets one, while there are any left."""


def write_plots(run: RunDirectory) -> list[Path]:
    """Draw a run, as far as possible: a failure to draw must not lose a run."""
    try:
        return draw_plots(run)
    except (OSError, ConfigError, ImportError) as error:
        logger.warning("the plots of %s cannot be drawn: %s", run, error)
        return []


def draw_plots(run: RunDirectory) -> list[Path]:
    """Draw ``plots/returns.png`` and a ``plots/<player>.png`` for each player that has metrics.

    Returns:
      The pictures, the reward curves first; empty if there is nothing to draw.

    Raises:
      ConfigError: the run has no records.
      OSError: the disk is full or the write fails.
    """
    with open_records(run.database) as connection:
        players, returns, metrics = read_players(connection), read_returns(connection), read_metrics(connection)
        evaluations = read_evaluations(connection)
    pictures = []
    run.plots.mkdir(exist_ok=True)
    if returns:
        figure = draw_returns(run.name, players, returns, evaluations)
        pictures.append(save_figure(figure, run.plots / "returns.png"))
    for player, named in metrics.items():
        figure = draw_metrics(run.name, player, players[player].color, named)
        pictures.append(save_figure(figure, run.plots / f"{player}.png"))
    return pictures


def draw_returns(
    title: str,
    players: Mapping[str, PlayerInfo],
    returns: Mapping[str, Series],
    evaluations: Mapping[str, EvaluationSeries] | None = None,
) -> "Figure":
    """Return every player's mean return against its transition steps: a curve over single episodes as light dots.

    Evaluations while training are a dashed curve with points, in a band of one standard deviation.
    """
    figure, (axes,) = new_figure(1, 1, (9.0, 5.2))
    for number, (player, info) in enumerate(players.items()):
        if player not in returns:
            continue
        steps, _, values = returns[player]
        shown = np.unique(np.linspace(0, len(steps) - 1, min(len(steps), DOTS)).astype(int))
        axes.plot(steps[shown], values[shown], ".", color=info.color, alpha=0.13, markersize=4, markeredgewidth=0)
        # A mean of the first two or three episodes is noise that would set the scale.
        skipped = min(len(values) // 2, RECENT // 10)
        x, y = thin(steps[skipped:], running_mean(values, RECENT)[skipped:])
        # Few points would be no line at all; the first players lie on top.
        marker = "o" if len(x) < 3 else ""
        axes.plot(x, y, color=info.color, linewidth=2.2, label=_label(player, info), zorder=50 - number, marker=marker)
        if evaluations is not None and player in evaluations:
            _draw_evaluations(axes, evaluations[player], f"{player}, evaluated", info.color)
    axes.set_title(title, loc="left", fontsize=15, fontweight="bold", color=INK, pad=26)
    band = "; dashed: evaluations ± deviation" if evaluations else ""
    axes.text(
        0, 1.03, f"return of an episode, mean of the last {RECENT}; dots are single episodes{band}",
        transform=axes.transAxes, fontsize=10, color=FAINT,
    )  # fmt: skip
    axes.set_xlabel("transition steps of the player")
    axes.set_ylabel("return")
    longest = max((len(_label(player, info)) for player, info in players.items() if player in returns), default=0)
    columns = max(min(len(returns) + len(evaluations or ()), LEGEND_WIDTH // (longest + 7)), 1)
    axes.legend(
        loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=columns, frameon=False, labelcolor=INK, fontsize=10
    )
    return figure


def _draw_evaluations(axes: "Axes", series: EvaluationSeries, label: str, color: str) -> None:
    low, high = series.mean - series.deviation, series.mean + series.deviation
    axes.fill_between(series.steps, low, high, color=color, alpha=0.12, linewidth=0, zorder=1)
    axes.plot(
        series.steps, series.mean, color=color, linewidth=1.5, linestyle=(0, (4, 2)), marker="o", markersize=4.5,
        markeredgecolor="white", label=label, zorder=60,
    )  # fmt: skip


def draw_metrics(title: str, player: str, color: str, metrics: Mapping[str, Series]) -> "Figure":
    """Return a picture with a panel for each metric of a player, well-known ones first."""
    first = {name: next((key for key in keys if key in metrics), None) for name, keys in PANELS}
    known = {key: name for name, key in first.items() if key is not None}
    order = [*known, *(key for key in metrics if key not in known)]
    panels = [(known.get(key, key), metrics[key]) for key in order[:MAX_PANELS]]
    if len(order) > len(panels):
        title = f"{title} ({len(panels)} of {len(order)} metrics)"
    columns = min(len(panels), 3)
    rows = -(-len(panels) // columns)
    figure, axes = new_figure(rows, columns, (4.0 * columns, 2.9 * rows + 0.7))
    for panel, (name, series) in zip(axes, panels, strict=False):
        x, y = thin(series.steps, series.values)
        panel.plot(x, y, color=color, alpha=0.3, linewidth=0.9)
        panel.plot(*thin(series.steps, mean_over_steps(series.steps, series.values)), color=color, linewidth=2)
        panel.set_title(name, loc="left", fontsize=11, fontweight="bold", color=INK, parse_math=False)
    for panel in axes[len(panels) :]:
        panel.set_visible(False)
    for panel in axes[max(len(panels) - columns, 0) : len(panels)]:
        panel.set_xlabel("transition steps")
    figure.suptitle(f"{title}: {player}", x=0.015, ha="left", fontsize=15, fontweight="bold", color=INK)
    return figure


def running_mean(values: np.ndarray, window: int) -> np.ndarray:
    """Return the mean over each value and up to ``window - 1`` before it, ``[N]``."""
    return _means(values, np.maximum(np.arange(len(values)) - window + 1, 0))


def mean_over_steps(steps: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the mean over each value and those before it within a fortieth of all steps, ``[N]``.

    The window is not a number of values, since the later ones of long runs are thinned.
    """
    return _means(values, np.searchsorted(steps, steps - (steps[-1] - steps[0]) / 40))


def _means(values: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Return the mean of the values from each start to the value itself, ``[N]``."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    ends = np.arange(1, len(values) + 1)
    return (sums[ends] - sums[starts]) / (ends - starts)


def thin(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return at most ``MAX_POINTS`` points of a curve: the means of neighbours with equal, or nearly equal, x."""
    if len(x) < 2 or x[-1] <= x[0]:
        return x[-1:], y[-1:]
    place = ((x - x.min()) / (x.max() - x.min()) * (MAX_POINTS - 1)).astype(int)
    counts = np.bincount(place)
    filled = counts > 0
    return np.bincount(place, x)[filled] / counts[filled], np.bincount(place, y)[filled] / counts[filled]


def _label(player: str, info: PlayerInfo) -> str:
    policy = info.use.rpartition(":")[2].rpartition("/")[2]
    label = f"{player} ({policy})" if info.learns or policy == "random" else f"{player} ({policy}, frozen)"
    return label if len(label) < LEGEND_WIDTH - 7 else f"{label[: LEGEND_WIDTH - 8]}…"


def new_figure(rows: int, columns: int, size: tuple[float, float]) -> "tuple[Figure, list[Axes]]":
    """Return an empty picture in the common style, and its panels row by row; ``size`` is in inches."""
    # No pyplot: it keeps global state and looks for a screen.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    figure = Figure(
        size,
        dpi=150,
        facecolor="white",
        layout=ConstrainedLayoutEngine(w_pad=0.14, h_pad=0.12, wspace=0.02, hspace=0.03),
    )
    FigureCanvasAgg(figure)
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for panel in axes:
        panel.spines[["top", "right", "left"]].set_visible(False)
        panel.spines["bottom"].set_color(GRID)
        panel.grid(axis="y", color=GRID, linewidth=0.9)
        panel.set_axisbelow(True)
        panel.tick_params(colors=FAINT, length=0, labelsize=9.5)
        panel.xaxis.label.set_color(FAINT)
        panel.yaxis.label.set_color(FAINT)
        panel.xaxis.set_major_formatter(FuncFormatter(_steps_tick))
        panel.xaxis.set_major_locator(MaxNLocator(6 if columns == 1 else 4))
        panel.margins(x=0.02)
    return figure, axes


def _steps_tick(value: float, _position: Any = None) -> str:
    """Return a number of steps in the short form of an axis: 20k."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def save_figure(figure: "Figure", path: Path) -> Path:
    """Write a picture as PNG or SVG, by the suffix of ``path``, and return the path.

    Raises:
      ConfigError: the suffix is another one.
      OSError: the disk is full or the write fails.
    """
    kind = path.suffix[1:].lower()
    if kind not in ("png", "svg"):
        raise ConfigError(f"{path}: expected a name that ends in .png or .svg")
    write_atomically(path, lambda temporary: figure.savefig(temporary, format=kind))
    return path
