"""Pictures of the container trade: ports on a circle with bars of containers, vessels on their routes."""

import math
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from arena.envs.ecr.simulation import Trade
from arena.envs.ecr.topology import Topology

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, HEIGHT, DPI = 6.4, 4.8, 100
EMPTY, FULL, SHORT, INK = "#4c78a8", "#f58518", "#e45756", "#333333"
BAR, TALLEST = 0.09, 0.55  # size of a bar, relative to the circle's radius


def draw_trade(trade: Trade, topology: Topology) -> np.ndarray:
    """Return a picture, uint8 ``[480, 640, 3]``.

    Bars beside a port are its empties, the full containers that wait, and the mean shortage of the last ticks; numbers
    on a vessel are the empties and the full containers on board, in thousands.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, HEIGHT), dpi=DPI)
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-1.9, 1.9), ylim=(-1.3, 1.55))
    axes.set_axis_off()
    count = len(trade.ports)
    places = [
        (math.cos(2 * math.pi * n / count + math.pi / 4), math.sin(2 * math.pi * n / count + math.pi / 4))
        for n in range(count)
    ]
    for number, route in enumerate(trade.routes):
        ring = [places[port] for port in (*route, route[0])]
        axes.plot(*zip(*ring, strict=True), color=f"C{number + 4}", alpha=0.35, lw=1.5, zorder=0)
    _draw_ports(axes, trade, places)
    _draw_vessels(axes, trade, places)
    share = trade.shortage / max(1, trade.orders)
    text = f"tick {trade.tick} of {topology.ticks}   shortage {trade.shortage:,} of {trade.orders:,} ({share:.0%})"
    axes.text(0, 1.46, text, ha="center", va="top", color=INK, fontsize=11)
    for x, name, color in ((-1.1, "empties", EMPTY), (-0.1, "full, waiting", FULL), (1.1, "shortage", SHORT)):
        axes.text(x, -1.27, name, color=color, ha="center", va="bottom", fontsize=9)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def _draw_ports(axes: "Axes", trade: Trade, places: list[tuple[float, float]]) -> None:
    highest = max(1, *(max(port.empties, sum(port.full.values())) for port in trade.ports))
    for port, (x, y) in zip(trade.ports, places, strict=True):
        bars = (
            (port.empties, EMPTY),
            (sum(port.full.values()), FULL),
            (highest * sum(port.short) / max(1, sum(port.booked)), SHORT),
        )
        side = 0.16 if x > 0 else -0.16 - 3 * BAR
        axes.scatter([x], [y], s=90, color=INK, zorder=2)
        axes.text(x, y - 0.09, port.name, ha="center", va="top", color=INK, fontsize=10)
        for number, (height, color) in enumerate(bars):
            axes.bar(x + side + number * BAR, TALLEST * height / highest, BAR * 0.85, y, align="edge", color=color)


def _draw_vessels(axes: "Axes", trade: Trade, places: list[tuple[float, float]]) -> None:
    labels: Counter[tuple[float, float]] = Counter()  # existing labels: those of vessels in one place are stacked
    for vessel in trade.vessels:
        route = trade.routes[vessel.route]
        x, y = to = places[route[vessel.stop]]
        if vessel.leaves < 0:
            start = places[route[vessel.stop - 1]]
            left = min(1.0, max(0.0, (vessel.arrives - trade.tick) / max(1, vessel.arrives - vessel.left)))
            x, y = (left * a + (1 - left) * b for a, b in zip(start, to, strict=True))
        axes.scatter([x], [y], s=70, marker="D", color=f"C{vessel.route + 4}", edgecolor="white", zorder=3)
        load = f"{vessel.empties / 1000:.0f} | {vessel.cargo / 1000:.0f}"
        above = 0.05 + 0.08 * labels[x, y]
        labels[x, y] += 1
        axes.text(x + 0.05, y + above, load, color=INK, fontsize=7, zorder=4)
