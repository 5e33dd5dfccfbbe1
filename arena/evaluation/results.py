"""Results of episodes by player and by pair of players, and their tables."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table

from arena.common.text import number, percentages
from arena.evaluation.play import Result
from arena.records.player_statistics import entities_by_player, mean_by_player, mean_metrics, outcomes_of


class PlayerResults(NamedTuple):
    """Results of a player's episodes.

    Attributes:
      returns: of each episode, mean over the player's entities.
      lengths: of each episode, environment steps.
      outcomes: numbers of wins, draws and losses against other players.
      metrics: measurements of the environment by name: of each episode that has them, mean over the player's entities.
    """

    returns: list[float]
    lengths: list[int]
    outcomes: dict[str, int]
    metrics: dict[str, list[float]]

    @property
    def mean(self) -> float:
        """Mean return of an episode."""
        return float(np.mean(self.returns))  # as the records of evaluations while training

    @property
    def deviation(self) -> float:
        """Standard deviation of the returns, 0 for a single episode."""
        return standard_error(self.returns) * math.sqrt(len(self.returns))

    @property
    def mean_metrics(self) -> dict[str, float]:
        """Mean of each measurement of the environment."""
        return {name: sum(values) / len(values) for name, values in self.metrics.items()}


def tally(results: Sequence[Result]) -> dict[str, PlayerResults]:
    """Return the results of each player, in order of appearance."""
    tallies: dict[str, PlayerResults] = {}
    for result in results:
        outcomes = outcomes_of(result.players, result.returns, result.outcomes)
        for player, total in mean_by_player(result.players, result.returns).items():
            player_results = tallies.setdefault(player, PlayerResults([], [], {"win": 0, "draw": 0, "loss": 0}, {}))
            player_results.returns.append(total)
            player_results.lengths.append(result.length)
            outcome = outcomes[player]
            if outcome in player_results.outcomes:
                player_results.outcomes[outcome] += 1
            if result.metrics:
                entities = entities_by_player(result.players)[player]
                for name, value in mean_metrics([result.metrics[entity] for entity in entities]).items():
                    player_results.metrics.setdefault(name, []).append(value)
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


class Results(Mapping[str, PlayerResults]):
    """Results of an evaluation: those of each player by name.

    Attributes:
      pairs: for each two players that met, how many episodes the first one won, drew and lost against the second.
    """

    def __init__(self, results: Sequence[Result]) -> None:
        """Count the results of episodes."""
        self._players, self.pairs = tally(results), pairings(results)

    def __getitem__(self, name: str) -> PlayerResults:
        """Return the results of a player.

        Raises:
          KeyError: it has not played.
        """
        if name not in self._players:
            raise KeyError(f"expected a player that has played ({', '.join(self._players)}), found {name!r}")
        return self._players[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the players, in order of appearance."""
        return iter(self._players)

    def __len__(self) -> int:
        """Return the number of players."""
        return len(self._players)

    def __repr__(self) -> str:
        """Return the mean return of each player, with its standard error."""
        shown = [
            f"{name}: {number(one.mean)} ± {number(standard_error(one.returns))} in {len(one.returns)} episodes"
            for name, one in self.items()
        ]
        return f"Results({'; '.join(shown)})"

    def to_json(self) -> dict[str, Any]:
        """Return the results as JSON values, with the return of every episode."""
        players = {
            name: {
                "episodes": len(results.returns),
                "mean_return": results.mean,
                "deviation": results.deviation,
                "standard_error": standard_error(results.returns),
                "least_return": min(results.returns),
                "greatest_return": max(results.returns),
                "mean_length": sum(results.lengths) / len(results.lengths),
                "outcomes": results.outcomes,
                "metrics": results.mean_metrics,
                "returns": results.returns,
            }
            for name, results in self.items()
        }
        pairs = [{"player": home, "against": away, **counts} for (home, away), counts in self.pairs.items()]
        return {"players": players, "pairs": pairs}


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
    metrics = list(dict.fromkeys(name for results in tallies.values() for name in results.metrics))
    titles = ("episodes", "mean return", *(["win / draw / loss"] if outcomes else []), "mean length", *metrics)
    for title in titles:
        table.add_column(title, justify="right")
    for name, results in tallies.items():
        row = [_dot(name, colors), policies[name].rpartition(":")[2], f"{len(results.returns):,}"]
        row.append(f"[bold]{number(results.mean)}[/bold] ± {number(standard_error(results.returns))}")
        row += [_percentages(results.outcomes)] if outcomes else []
        row.append(f"{sum(results.lengths) / len(results.lengths):.1f}")
        means = results.mean_metrics
        table.add_row(*row, *(number(means[metric]) if metric in means else "" for metric in metrics))
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
