"""Records of a run as columns, NumPy arrays of equal length, for analysis in Python."""

import json
import sqlite3
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np

from arena.common.text import suggestion
from arena.league.rating.intervals import win_rate_interval
from arena.records.player_statistics import entities_by_player, mean_by_player, mean_metrics, outcomes_of
from arena.records.readers.league import League, elo_of
from arena.records.readers.run import NO_FAULT, EvaluationSeries, read_evaluations, stored_outcome, superseded_steps

EPISODES = f"""
    SELECT id, attempt, match, ended_at, episodes.length, truncated, player, return, outcome, steps, metrics
    FROM episodes JOIN episode_entities ON episodes.id = episode WHERE {NO_FAULT} ORDER BY id, entity
"""


def episode_columns(connection: sqlite3.Connection) -> dict[str, np.ndarray]:
    """Return the episodes of a run, one row for each player of each episode, without those cut by a fault.

    Returns:
      ``episode``, ``player``, ``steps`` (the player's transition steps when it ended), ``time`` (Unix time), ``match``,
      ``length`` (environment steps), ``return`` (mean over the player's entities), ``outcome`` (``win``, ``draw``,
      ``loss``, or None), ``truncated``; and ``metrics/NAME`` for each measurement of the environment, NaN where an
      episode has none.
    """
    skipped = superseded_steps(connection)
    names = ("episode", "player", "steps", "time", "match", "length", "return", "outcome", "truncated")
    rows: list[tuple[Any, ...]] = []
    measured: list[dict[str, float]] = []
    for _, entities in groupby(connection.execute(EPISODES), key=itemgetter(0)):
        ids, attempts, matches, times, lengths, truncated, players, returns, outcomes, steps, metrics = zip(
            *entities, strict=True
        )
        means = mean_by_player(players, [np.nan if value is None else value for value in returns])
        results = outcomes_of(
            players, [value or 0.0 for value in returns], [stored_outcome(value) for value in outcomes]
        )
        for player, own in entities_by_player(players).items():
            at = steps[own[0]]
            if at > skipped.get((attempts[0], player), at):
                continue
            rows.append(
                (ids[0], player, at, times[0], matches[0], lengths[0], means[player], results[player], truncated[0])
            )
            measured.append(mean_metrics([json.loads(metrics[e]) for e in own if metrics[e]]))
    columns = _columns(names, rows, {"episode": int, "steps": int, "match": int, "length": int, "truncated": bool})
    for name in dict.fromkeys(name for values in measured for name in values):
        columns[f"metrics/{name}"] = np.array([values.get(name, np.nan) for values in measured])
    return columns


def metric_columns(connection: sqlite3.Connection) -> dict[str, np.ndarray]:
    """Return what the policies have reported of their learning, one row for each value.

    Returns:
      ``player``, ``name``, ``steps`` (the player's transition steps), ``updates``, ``time`` (Unix time), ``value``.
    """
    skipped = superseded_steps(connection)
    query = "SELECT attempt, player, name, steps, updates, time, value FROM metrics ORDER BY rowid"
    rows = [row for attempt, *row in connection.execute(query) if row[2] <= skipped.get((attempt, row[0]), row[2])]
    return _columns(("player", "name", "steps", "updates", "time", "value"), rows, {"steps": int, "updates": int})


def evaluation_columns(connection: sqlite3.Connection) -> dict[str, np.ndarray]:
    """Return the evaluations of learning players while they trained, one row for each.

    Returns:
      ``player``, and the names of ``arena.records.readers.run.EvaluationSeries``, with ``time`` for its ``times``.
    """
    rows: list[tuple[Any, ...]] = []
    for player, series in read_evaluations(connection).items():
        rows += [(player, *values) for values in zip(*series, strict=True)]
    names = ("player", *("time" if name == "times" else name for name in EvaluationSeries._fields))
    return _columns(names, rows, {"steps": int, "episodes": int})


def payoff_columns(league: League, *, all_games: bool = False) -> dict[str, np.ndarray]:
    """Return the results of each two players that have met, from the view of ``player``.

    Args:
      league: the league.
      all_games: whether to return all games, by the weights that played them, in place of those that the league counts.

    Returns:
      ``player``, ``against``, ``games``, ``wins``, ``draws``, ``losses``, ``win_rate``, ``low`` and ``high`` (the ends
      of its 95 % interval), ``mean_return``.
    """
    rows = [
        (
            *pair,
            record.games,
            record.wins,
            record.draws,
            record.losses,
            record.win_rate,
            record.effective,
            record.margin,
        )
        for pair, record in (league.totals if all_games else league.records).items()
    ]
    names = ("player", "against", "games", "wins", "draws", "losses", "win_rate", "effective", "mean_return")
    columns = _columns(names, rows, {})
    effective = columns.pop("effective")
    low, high = win_rate_interval(columns["wins"], columns["draws"], columns["losses"], effective)
    return columns | {"low": low, "high": high}


def rating_columns(league: League) -> dict[str, np.ndarray]:
    """Return the ratings, the best first.

    Returns:
      ``player``, ``mu``, ``sigma``, ``elo``, ``games``, ``rating_of`` (its parent if it has the rating from it), and
      ``fitted_elo``, ``fitted_low``, ``fitted_high``: Elo from all games of its weights, and its 95 % interval.
    """
    fitted = elo_of(league)
    rows = []
    for name in league.by_rating():
        if name in league.ratings:
            rating_of = league.members[name].parent if league.rated_by_parent(name) else name
            ends = fitted.get(name, (np.nan,) * 3)
            rows.append((name, *league.ratings[name], league.games[name], rating_of, *ends))
    names = ("player", "mu", "sigma", "elo", "games", "rating_of", "fitted_elo", "fitted_low", "fitted_high")
    return _columns(names, rows, {})


def select(columns: dict[str, np.ndarray], **wanted: str | None) -> dict[str, np.ndarray]:
    """Return the rows in which text columns have the given values; None allows all.

    Raises:
      KeyError: no row has a value; the message lists the values that there are.
    """
    for name, value in wanted.items():
        if value is None:
            continue
        chosen = columns[name] == value
        present = list(dict.fromkeys(columns[name].tolist()))
        if not chosen.any():
            listed = ", ".join(present) or "none yet"
            raise KeyError(f"no records of {name} {value!r}{suggestion(value, present)}; there are: {listed}")
        columns = {column: array[chosen] for column, array in columns.items()}
    return columns


_TEXT = ("player", "against", "name", "outcome", "rating_of")


def _columns(names: tuple[str, ...], rows: list[Any], types: dict[str, type]) -> dict[str, np.ndarray]:
    """Return rows as columns: objects for texts, numbers of the given types, float64 otherwise."""
    values = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    return {
        name: np.array(column, object if name in _TEXT else types.get(name, np.float64))
        for name, column in zip(names, values, strict=True)
    }
