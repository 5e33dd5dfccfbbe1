"""Pictures of a league: the heat map of a payoff, ratings over time, the family tree, and exploitability."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np

from arena.common.colors import CYCLE, resolve
from arena.records.readers.league import RatingCurve, Relative
from arena.report.plots import FAINT, GRID, INK, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure

LABELLED = 40
"""Number of names that fit along an axis; of more, every second, third, ... is shown."""

ANNOTATED = 24
"""Largest number of players for which each cell of a heat map also holds its number."""

LETTER = 0.075
"""Inches of a letter of a name along an axis, at the size of the labels."""

FROZEN = "snapshots, when frozen"

Points = tuple[np.ndarray, np.ndarray]
"""Points of a curve: x ``[N]``, y ``[N]``."""


def draw_heat_map(
    title: str,
    note: str,
    names: Sequence[str],
    matrix: np.ndarray,
    interval: tuple[np.ndarray, np.ndarray] | None,
) -> "Figure":
    """Return a picture of a matrix ``[N, N]``: rows against columns; NaN for pairs without games.

    Args:
      title: title of the picture.
      note: a line below it.
      names: names of the players.
      matrix: win rates, or mean returns.
      interval: ends of the intervals of win rates, ``[N, N]`` each; None for returns, which are coloured around 0.
    """
    count, rates = len(names), interval is not None
    cells = min(max(0.42 * count, 2.4), 10.4)
    labels = LETTER * max(map(len, names), default=0)
    figure, (axes,) = new_figure(1, 1, (max(cells + labels + 1.6, 6.0), cells + labels + 1.5))
    known = matrix[np.isfinite(matrix)]
    reach = 0.5 if rates else max(float(np.abs(known).max(initial=0)), 1e-9)
    middle = 0.5 if rates else 0.0
    image = axes.imshow(matrix, cmap=_diverging(), vmin=middle - reach, vmax=middle + reach)
    if count <= ANNOTATED:
        for (row, column), value in np.ndenumerate(matrix):
            if np.isfinite(value):
                color = "white" if abs(value - middle) > 0.7 * reach else INK
                text = f"{value:.2g}" if interval is None else f"{value:.0%}"
                axes.text(column, row, text, ha="center", va="center", fontsize=8, color=color)
                if interval is not None:
                    low, high = (end[row, column] for end in interval)
                    # A bar across the cell from 0 to 100 %: the thinner the part in the middle, the surer.
                    axes.plot([column - 0.45 + 0.9 * low, column - 0.45 + 0.9 * high], [row + 0.36] * 2, color=color,
                              linewidth=2, alpha=0.6, solid_capstyle="butt")  # fmt: skip
        if rates:
            note += "\nbars: 95 % intervals, a cell is 0 to 100 % wide"
    shown = range(0, count, -(-count // LABELLED))
    written = [names[index] for index in shown]
    axes.set_xticks(shown, written, rotation=90, fontsize=8.5)
    axes.set_yticks(shown, written, fontsize=8.5)
    axes.grid(visible=False)
    axes.set_facecolor(GRID)
    bar = figure.colorbar(image, ax=axes, shrink=0.7, aspect=28, pad=0.02)
    bar.outline.set_visible(False)
    bar.ax.tick_params(colors=FAINT, length=0, labelsize=8.5)
    if rates:
        bar.set_ticks([0, 0.5, 1], labels=["0%", "50%", "100%"])
    _titles(axes, title, note)
    return figure


def draw_ratings(title: str, curves: Mapping[str, RatingCurve], active: Sequence[str]) -> "Figure":
    """Return the ratings over time: a line and a band of one deviation for active players, dots for frozen ones.

    Args:
      title: title of the picture.
      curves: rating curves by player.
      active: ids of active players.
    """
    figure, (axes,) = new_figure(1, 1, (9.0, 5.4))
    frozen = [name for name in curves if name not in active]
    if frozen:
        last = [(curves[name].minutes[0], curves[name].mu[-1]) for name in frozen]
        axes.plot(*zip(*last, strict=True), ".", color=INK, alpha=0.6, markersize=5, label=FROZEN, zorder=5)
    named = [name for name in active if name in curves]
    colors = resolve(dict.fromkeys(named))
    for name in named:
        minutes, mu, sigma = curves[name]
        axes.fill_between(minutes, mu - sigma, mu + sigma, color=colors[name], alpha=0.14, linewidth=0)
        axes.plot(minutes, mu, color=colors[name], linewidth=2, label=name, marker="o" if len(mu) < 3 else "")
    _minutes(axes)
    axes.set_ylabel("rating")
    _legend(axes, [*named, *([FROZEN] if frozen else [])])
    _titles(axes, title, "openskill rating; the bands are one standard deviation")
    return figure


def draw_family(title: str, family: Mapping[str, Relative]) -> "Figure":
    """Return the family tree: a lane for each initial player, a dot for each snapshot at its steps.

    Args:
      title: title of the picture.
      family: every player, in any order.
    """
    lanes = _lanes(family)
    heads = list(dict.fromkeys(lanes.values()))
    rows = {head: len(heads) - 1 - index for index, head in enumerate(heads)}
    colors = resolve(dict.fromkeys(heads))
    figure, (axes,) = new_figure(1, 1, (9.5, max(0.5 * len(heads) + 1.9, 3.0)))
    for head in heads:
        members = sorted((family[name].steps, name) for name in lanes if lanes[name] == head)
        steps = [step for step, _ in members]
        axes.plot(steps, [rows[head]] * len(steps), color=colors[head], linewidth=1.6, zorder=2)
        for active, size, face in ((False, 5.0, colors[head]), (True, 9.0, "white")):
            chosen = [family[name].steps for _, name in members if family[name].active == active]
            axes.plot(
                chosen, [rows[head]] * len(chosen), "o", color=colors[head], markerfacecolor=face, markersize=size,
                markeredgewidth=2, zorder=4,
            )  # fmt: skip
    for name, relative in family.items():
        parent = relative.parent
        if parent is not None and parent in family and lanes[parent] != lanes[name]:
            ends = [(family[parent].steps, rows[lanes[parent]]), (relative.steps, rows[lanes[name]])]
            axes.annotate(
                "", xy=ends[1], xytext=ends[0], zorder=1,
                arrowprops={"arrowstyle": "-", "color": FAINT, "linewidth": 1, "connectionstyle": "arc3,rad=0.15"},
            )  # fmt: skip
    axes.set_yticks(list(rows.values()), list(rows), fontsize=9.5, color=INK)
    axes.set_ylim(-0.6, len(heads) - 0.4)
    axes.grid(visible=False)
    axes.margins(x=0.04)
    axes.set_xlabel("transition steps of the player")
    _titles(axes, title, "rings learn, dots are their snapshots")
    return figure


def draw_exploitability(title: str, alone: Mapping[str, Points], mixtures: Mapping[str, Points]) -> "Figure":
    """Return NashConv against steps, 0 being a Nash equilibrium; on a logarithmic scale if all are positive.

    Args:
      title: title of the picture.
      alone: (steps, NashConv) of each player's snapshots, one by one.
      mixtures: likewise of mixtures of all snapshots so far.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    figure, (axes,) = new_figure(1, 1, (9.0, 5.4))
    colors = dict(zip([*mixtures, *alone], cycle(CYCLE)))
    for name, (steps, values) in alone.items():
        axes.plot(steps, values, color=colors[name], linewidth=1, alpha=0.65, label=name, marker="o", markersize=3)
    for name, (steps, values) in mixtures.items():
        axes.plot(steps, values, color=colors[name], linewidth=2.4, label=name, marker="o" if len(values) < 3 else "")
    shown = [values[np.isfinite(values)] for _, values in (*alone.values(), *mixtures.values())]
    if all((values > 1e-6).all() for values in shown):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        axes.set_ylim(bottom=0)
    axes.set_xlabel("transition steps of the player")
    axes.set_ylabel("NashConv")
    _legend(axes, list(colors))
    _titles(axes, title, "how much the players would gain by best answers, computed exactly; 0 is a Nash equilibrium")
    return figure


def _lanes(family: Mapping[str, Relative]) -> dict[str, str]:
    """Return each player's lane, named by its first player: an active one, or a frozen one without such a parent."""
    lanes = {}
    for name, relative in family.items():
        parent = relative.parent or ""
        follows = not relative.active and parent in family and family[parent].active
        lanes[name] = parent if follows else name
    return dict(sorted(lanes.items(), key=lambda item: list(family).index(item[1])))


def _diverging() -> "LinearSegmentedColormap":
    from matplotlib import colors

    return colors.LinearSegmentedColormap.from_list("payoff", ["#b91c1c", "#fca5a5", "#f8fafc", "#93c5fd", "#1d4ed8"])


def _minutes(axes: "Axes") -> None:
    from matplotlib.ticker import FuncFormatter

    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel("minutes")


def _legend(axes: "Axes", labels: Sequence[str]) -> None:
    # As many columns as the longest name allows.
    columns = max(min(100 // (max(map(len, labels), default=1) + 8), 4, len(labels)), 1)
    axes.legend(
        loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=columns, frameon=False, labelcolor=INK, fontsize=9.5
    )


def _titles(axes: "Axes", title: str, note: str) -> None:
    pad = 24 + 12 * note.count("\n")
    axes.set_title(title, loc="left", fontsize=14, fontweight="bold", color=INK, pad=pad)
    axes.annotate(
        note, (0, 1), xytext=(0, 6), xycoords="axes fraction", textcoords="offset points", fontsize=9.5, color=FAINT,
        va="bottom", ha="left", annotation_clip=False,
    )  # fmt: skip
