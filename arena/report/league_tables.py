"""Tables of a league on the terminal: its players, and the win rate of each pair."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table

from arena.common.text import number, percentages
from arena.league.ratings import Rating

WIDEST = 16
"""Largest number of players for which a matrix is printed: more columns fit no terminal."""


class Line(NamedTuple):
    """Line of a player in a standing.

    Attributes:
      player: name of the player.
      rating: None if it has none yet.
      games: number of games (decayed, if counted so).
      counts: wins, draws and losses.
      mean_return: mean return and its standard error; None omits the column.
      notes: texts of further columns.
    """

    player: str
    rating: Rating | None
    games: float
    counts: tuple[float, float, float]
    mean_return: tuple[float, float] | None = None
    notes: tuple[str, ...] = ()


def standing_table(title: str, lines: Sequence[Line], notes: Sequence[str] = ()) -> Table:
    """Return a table with a line for each player; ``notes`` are the titles of the further columns."""
    table = _table(title)
    table.add_column("player")
    for name in notes:
        table.add_column(name, justify="right" if name == "steps" else "left")
    means = any(line.mean_return is not None for line in lines)
    for name in ("rating", "Elo", "games", "win / draw / loss", *(["mean return"] if means else [])):
        table.add_column(name, justify="right")
    for line in lines:
        rating = ("", "") if line.rating is None else (_with_error(line.rating), f"{line.rating.elo:.0f}")
        cells = [line.player, *line.notes, *rating, f"{line.games:,.0f}", percentages(line.counts)]
        if line.mean_return is not None:
            cells.append(f"{number(line.mean_return[0])} ± {number(line.mean_return[1])}")
        table.add_row(*cells)
    return table


def matrix_table(title: str, names: Sequence[str], matrix: np.ndarray, *, rates: bool) -> Table | None:
    """Return a matrix ``[N, N]`` as a table with columns named by row numbers; None if it is too wide.

    Args:
      title: title of the table.
      names: names of the players.
      matrix: win rates, or mean returns; NaN leaves a cell empty.
      rates: whether these are win rates.
    """
    if len(names) > WIDEST:
        return None
    table = _table(title)
    table.add_column("", justify="right")
    table.add_column("player")
    for column in range(len(names)):
        table.add_column(str(column + 1), justify="right")
    for row, name in enumerate(names):
        shown = ["" if np.isnan(v) else f"{v:.0%}" if rates else number(round(float(v), 2) + 0.0) for v in matrix[row]]
        table.add_row(str(row + 1), name, *shown)
    return table


def _table(title: str) -> Table:
    # A title would be wrapped at the width of a narrow table.
    return Table(
        box=SIMPLE_HEAD, title=f"[bold]{title}[/bold]", title_justify="left", title_style="", min_width=len(title)
    )


def _with_error(rating: Rating) -> str:
    return f"[bold]{rating.mu:.1f}[/bold] ± {rating.sigma:.1f}"
