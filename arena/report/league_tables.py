"""Tables of a league on the terminal: its players, and the win rate of each pair."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table

from arena.common.text import number, percentages
from arena.league.rating.intervals import MOST_GAMES, games_to_decide, win_rate_interval
from arena.league.rating.openskill import Rating
from arena.records.readers.league import NEVER

WIDEST = 16
"""Largest number of players for which a matrix is printed: more columns fit no terminal."""

NEVER_MARK, SINCE_MARK = "·", "↺"
"""Marks of cells without games: of players that have never met, or not since one of them has got other weights."""

PARENTS = "*"
"""Mark of a rating that a player has from its parent."""

SHOWN_REASONS = 6
"""Number of lines of a legend."""


class Line(NamedTuple):
    """Line of a player in a standing.

    Attributes:
      player: name of the player.
      rating: None if it has none yet.
      games: number of games.
      counts: wins, draws and losses.
      mean_return: mean return and its standard error; None omits the column.
      notes: texts of further columns.
      elo: Elo from all games, and the ends of its 95 % interval; None if it has no games.
      is_parents: whether the rating is that of its parent, since it has not played under its own name.
    """

    player: str
    rating: Rating | None
    games: float
    counts: tuple[float, float, float]
    mean_return: tuple[float, float] | None = None
    notes: tuple[str, ...] = ()
    elo: tuple[float, float, float] | None = None
    is_parents: bool = False


def standing_table(title: str, lines: Sequence[Line], notes: Sequence[str] = ()) -> Table:
    """Return a table with a line for each player; ``notes`` are the titles of the further columns."""
    table = _table(title)
    table.add_column("player")
    for name in notes:
        table.add_column(name, justify="right" if name == "steps" else "left")
    means = any(line.mean_return is not None for line in lines)
    for name in ("rating", "Elo (95 %)", "games", "win / draw / loss", *(["mean return"] if means else [])):
        table.add_column(name, justify="right")
    for line in lines:
        rating = "" if line.rating is None else _with_error(line.rating) + PARENTS * line.is_parents
        elo = "" if line.elo is None else "{:.0f} ({:.0f}–{:.0f})".format(*line.elo)
        cells = [line.player, *line.notes, rating, elo, f"{line.games:,.0f}", percentages(line.counts)]
        if line.mean_return is not None:
            cells.append(f"{number(line.mean_return[0])} ± {number(line.mean_return[1])}")
        table.add_row(*cells)
    return table


def matrix_table(
    title: str,
    names: Sequence[str],
    matrix: np.ndarray,
    interval: tuple[np.ndarray, np.ndarray] | None,
    reasons: Sequence[Sequence[str | None]] = (),
) -> Table | None:
    """Return a matrix ``[N, N]`` as a table with columns named by row numbers; None if it is too wide.

    Args:
      title: title of the table.
      names: names of the players.
      matrix: win rates, or mean returns; NaN leaves a cell empty.
      interval: ends of the interval of each win rate, ``[N, N]`` each; None for mean returns.
      reasons: reason of each empty cell, in rows; None for cells without one, and nothing if no cell has any. The
        caption explains their marks.
    """
    if len(names) > WIDEST:
        return None
    table = _table(title)
    table.add_column("", justify="right")
    table.add_column("player")
    for column in range(len(names)):
        table.add_column(str(column + 1), justify="right")
    marked = dict[str, None]()

    def cell(row: int, column: int) -> str:
        value = float(matrix[row, column])
        if not np.isnan(value):
            if interval is None:
                return number(round(value, 2) + 0.0)
            low, high = (100 * float(end[row, column]) for end in interval)
            return f"{value:.0%}\n[dim]{low:.0f}–{high:.0f}[/dim]"
        reason = reasons[row][column] if reasons else None
        if reason is None:
            return ""
        marked[reason] = None
        return NEVER_MARK if reason == NEVER else SINCE_MARK

    for row, name in enumerate(names):
        table.add_row(str(row + 1), name, *(cell(row, column) for column in range(len(names))))
    table.caption = "\n".join(_legend(list(marked)))
    table.caption_justify = "left"
    return table


def _legend(reasons: Sequence[str]) -> list[str]:
    """Return lines with the meaning of the marks of empty cells."""
    lines = [f"{NEVER_MARK} {NEVER}"] if NEVER in reasons else []
    others = [reason for reason in reasons if reason != NEVER]
    lines += [f"{SINCE_MARK} {reason}" for reason in others[:SHOWN_REASONS]]
    if len(others) > SHOWN_REASONS:
        lines.append(f"  and {len(others) - SHOWN_REASONS} more: --json has all of them")
    return lines


def _table(title: str) -> Table:
    # A title would be wrapped at the width of a narrow table.
    return Table(
        box=SIMPLE_HEAD, title=f"[bold]{title}[/bold]", title_justify="left", title_style="", min_width=len(title)
    )


def _with_error(rating: Rating) -> str:
    return f"[bold]{rating.mu:.1f}[/bold] ± {rating.sigma:.1f}"


def undecided(pairs: Iterable[tuple[str, str, tuple[float, float, float]]]) -> Table | None:
    """Return the pairs of players of which neither is known to be better; None if there are none.

    Args:
      pairs: names of two players, and wins, draws and losses of the first one against the second.
    """
    table = _table("not decided: one half is within the interval of the win rate")
    for name in ("player", "against", "win rate (95 %)", "games", "more games needed"):
        table.add_column(name, justify="left" if name in ("player", "against") else "right")
    for home, away, (wins, draws, losses) in pairs:
        games = wins + draws + losses
        low, high = map(float, win_rate_interval(wins, draws, losses, games))
        if not low < 0.5 < high:
            continue
        more = games_to_decide(wins, draws, losses)
        needed = f"over {MOST_GAMES:,}" if more is None else f"{more:,}"
        rate = (wins + draws / 2) / games
        table.add_row(home, away, f"{rate:.0%} ({100 * low:.0f}–{100 * high:.0f})", f"{games:,.0f}", needed)
    return table if table.row_count else None
