"""Picture of a comparison: the curves of the groups with their intervals, a panel for each player."""

from typing import TYPE_CHECKING

from arena.common.colors import CYCLE
from arena.report.comparison import Comparison
from arena.report.plots import FAINT, INK, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

MAX_PANELS = 12
"""Players with a panel."""

LEGEND_WIDTH = 120
"""Characters of labels that fit side by side below the panels."""

LINES = ("-", (0, (5, 2)), (0, (1, 1.5)))
"""Styles of curves, where there are more groups than colours."""


def draw_comparison(title: str, comparison: Comparison) -> "Figure":
    """Return the interquartile mean of each group along the steps, in a band of its 95 % bootstrap interval."""
    players = comparison.players[:MAX_PANELS]
    columns = min(len(players), 3)
    rows = -(-len(players) // columns)
    size = (9.0, 5.6) if columns == 1 else (5.0 * columns, 3.6 * rows + 1.2)
    figure, axes = new_figure(rows, columns, size)
    groups = list(dict.fromkeys(result.group.label for result in comparison.results))
    handles: dict[str, Line2D] = {}
    for panel, player in zip(axes, players, strict=False):
        for result in comparison.results:
            if result.player != player:
                continue
            number = groups.index(result.group.label)
            color, style = CYCLE[number % len(CYCLE)], LINES[number // len(CYCLE) % len(LINES)]
            steps, iqm, low, high = result.band
            if len(result.runs) > 1:
                panel.fill_between(steps, low, high, color=color, alpha=0.15, linewidth=0)
            marker = "o" if len(steps) < 3 else ""
            (line,) = panel.plot(steps, iqm, color=color, linestyle=style, linewidth=2.2, marker=marker)
            seeds = f"{len(result.runs)} seed{'s' * (len(result.runs) != 1)}"
            handles.setdefault(f"{result.group.label} ({seeds})" if result.group.label else seeds, line)
        if len(players) > 1:
            panel.set_title(player, loc="left", fontsize=11, fontweight="bold", color=INK, parse_math=False)
        panel.set_ylabel("return")
    for panel in axes[len(players) :]:
        panel.set_visible(False)
    for panel in axes[max(len(players) - columns, 0) : len(players)]:
        panel.set_xlabel("transition steps of the player")
    figure.suptitle(title, x=0.015, ha="left", fontsize=15, fontweight="bold", color=INK)
    what = "evaluations while training" if comparison.measure == "evaluations" else "returns of training episodes"
    left_out = len(comparison.players) - len(players)
    more = f"; {left_out} more players are not drawn" if left_out else ""
    axes[0].text(
        0, 1.1 if len(players) > 1 else 1.03, f"{what}: interquartile mean over seeds, 95 % bootstrap interval{more}",
        transform=axes[0].transAxes, fontsize=10, color=FAINT,
    )  # fmt: skip
    widest = max(map(len, handles))
    columns = max(min(len(handles), LEGEND_WIDTH // (widest + 6)), 1)
    figure.legend(
        list(handles.values()), list(handles), loc="outside lower center", frameon=False,
        labelcolor=INK, fontsize=10, ncols=columns,
    )  # fmt: skip
    return figure
