"""Results of episodes by player and by pair of players, and their tables."""

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from rich.box import SIMPLE_HEAD
from rich.table import Table

from arena.common.text import number, percentages
from arena.evaluation.play import Result
from arena.records.player_statistics import mean_by_player, outcomes_of


class PlayerResults(NamedTuple):
    """Results of a player's episodes.

    Attributes:
      returns: of each episode, mean over the player's entities.
      lengths: of each episode, environment steps.
      outcomes: numbers of wins, draws and losses against other players.
    """

    returns: list[float]
    lengths: list[int]
    outcomes: dict[str, int]


def tally(results: Sequence[Result]) -> dict[str, PlayerResults]:
    """Return the results of each player, in order of appearance."""
    tallies: dict[str, PlayerResults] = {}
    for result in results:
        outcomes = outcomes_of(result.players, result.returns, result.outcomes)
        for player, total in mean_by_player(result.players, result.returns).items():
            player_results = tallies.setdefault(player, PlayerResults([], [], {"win": 0, "draw": 0, "loss": 0}))
            player_results.returns.append(total)
            player_results.lengths.append(result.length)
            outcome = outcomes[player]
            if outcome in player_results.outcomes:
                player_results.outcomes[outcome] += 1
    return tallies


def pairings(results: Sequence[Result]) -> dict[tuple[str, str], dict[str, int]]:
    """Return, for each two players that met, how many episodes the first one won, drew and lost against the second."""
    pairs: dict[tuple[str, str], dict[str, int]] = {}
    for result in results:
        for home, away in combinations(sorted(set(result.players), key=result.players.index), 2):
            pair = (away, home) if (away, home) in pairs else (home, away)
            places = [index for index, player in enumerate(result.players) if player in pair]
            outcome = outcomes_of(
                [result.players[index] for index in places],
                [result.returns[index] for index in places],
                [result.outcomes[index] for index in places],
            )[pair[0]]
            counts = pairs.setdefault(pair, {"win": 0, "draw": 0, "loss": 0})
            if outcome in counts:
                counts[outcome] += 1
    return pairs


def standard_error(values: Sequence[float]) -> float:
    """Return the standard error of the mean; 0 for a single value."""
    if len(values) < 2:
        return 0.0
    mean = sum(values) / len(values)
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return math.sqrt(variance / len(values))


def player_table(
    title: str,
    policies: Mapping[str, str],
    tallies: Mapping[str, PlayerResults],
    colors: Mapping[str, str],
    *,
    outcomes: bool,
) -> Table:
    """Return a line for each player.

    Args:
      title: title of the table.
      policies: name of each player's policy.
      tallies: result of ``tally``.
      colors: ``#rrggbb`` of each player.
      outcomes: whether to show wins, draws and losses.
    """
    table = Table(box=SIMPLE_HEAD, title=f"[bold]{title}[/bold]", title_justify="left", title_style="")
    for title in ("player", "policy"):
        table.add_column(title)
    for title in ("episodes", "mean return", *(["win / draw / loss"] if outcomes else []), "mean length"):
        table.add_column(title, justify="right")
    for name, results in tallies.items():
        mean = sum(results.returns) / len(results.returns)
        row = [_dot(name, colors), policies[name].rpartition(":")[2], f"{len(results.returns):,}"]
        row.append(f"[bold]{number(mean)}[/bold] ± {number(standard_error(results.returns))}")
        row += [_percentages(results.outcomes)] if outcomes else []
        table.add_row(*row, f"{sum(results.lengths) / len(results.lengths):.1f}")
    return table


def pair_table(pairs: Mapping[tuple[str, str], Mapping[str, int]], colors: Mapping[str, str]) -> Table:
    """Return a line for each two players; ``pairs`` is the result of ``pairings``."""
    table = Table(box=SIMPLE_HEAD, title="[bold]pairings[/bold]", title_justify="left", title_style="")
    for title in ("player", "against"):
        table.add_column(title)
    for title in ("episodes", "win / draw / loss"):
        table.add_column(title, justify="right")
    for (home, away), counts in pairs.items():
        table.add_row(_dot(home, colors), _dot(away, colors), f"{sum(counts.values()):,}", _percentages(counts))
    return table


def _dot(name: str, colors: Mapping[str, str]) -> str:
    return f"[{colors[name]}]●[/] {name}"


def _percentages(counts: Mapping[str, int]) -> str:
    return percentages([counts[kind] for kind in ("win", "draw", "loss")])
