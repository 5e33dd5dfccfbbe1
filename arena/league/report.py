"""Reports of finished jobs, validated as a whole before any result counts."""

import math
from collections.abc import Container, Mapping, Sequence
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

TWO_SIDED = {"wins": (1, 2), "draws": (1, 1), "losses": (2, 1)}
"""Result of the first of two sides -> the ranks of both."""


class InvalidReport(ValueError):
    """A report that cannot be counted; the text states why."""


class BattleReport(NamedTuple):
    """Games between the same sides.

    Attributes:
      sides: players of each side; one in several places of a team is listed as often.
      games: for each game the rank of each side; 1 is best, equal ranks are a draw.
      returns: for each game the return of each side; empty if not reported.
    """

    sides: tuple[tuple[str, ...], ...]
    games: tuple[tuple[float, ...], ...]
    returns: tuple[tuple[float, ...], ...] = ()


def battle_report(job_info: Mapping[str, Any], known: Container[str]) -> BattleReport:
    """Validate a report of games.

    ``job_info["sides"]`` are ids or lists of ids, ``job_info["results"]`` words for two sides or ranks, and the
    optional ``job_info["returns"]`` a number for each side of each game.

    Raises:
      InvalidReport: an id or a result is unknown, or the shape is wrong.
    """
    sides, results = _list(job_info, "sides"), _list(job_info, "results")
    teams = tuple((side,) if isinstance(side, str) else _team(side) for side in sides)
    if len(teams) < 2:
        raise InvalidReport(f"expected at least two sides, found {len(teams)}")
    for player_id in (member for team in teams for member in team):
        if player_id not in known:
            raise InvalidReport(f"expected ids of players, found {player_id!r}, which no match plays")
    games = tuple(_ranks(result, len(teams)) for result in results)
    if job_info.get("returns") is None:
        return BattleReport(teams, games)
    returns = _list(job_info, "returns")
    if len(returns) != len(games):
        raise InvalidReport(f"expected the returns of {len(games)} games, found {len(returns)}")
    return BattleReport(teams, games, tuple(_numbers(game, len(teams), "returns") for game in returns))


def solo_report(job_info: Mapping[str, Any]) -> tuple[float, ...]:
    """Validate ``job_info["results"]``: one finite number per episode.

    Raises:
      InvalidReport: an item is something else.
    """
    results = _list(job_info, "results")
    for result in results:
        if not _is_number(result):
            raise InvalidReport(f"expected a finite number per episode, found {result!r}")
    return tuple(float(result) for result in results)


def _list(job_info: Mapping[str, Any], key: str) -> Sequence[Any]:
    if not isinstance(job_info, Mapping):
        raise InvalidReport(f"expected a mapping, found {job_info!r}")
    value = _plain(job_info.get(key))
    if not isinstance(value, (list, tuple)):
        raise InvalidReport(f"expected a list of {key}, found {value!r}")
    return value


def _plain(value: Any) -> Any:
    """Return an array as a list."""
    return value.tolist() if isinstance(value, np.ndarray) else value


def _team(side: Any) -> tuple[str, ...]:
    if not isinstance(side, (list, tuple)) or not side or not all(isinstance(member, str) for member in side):
        raise InvalidReport(f"expected a player's id or a list of ids as a side, found {side!r}")
    return tuple(side)


def _ranks(result: Any, sides: int) -> tuple[float, ...]:
    if isinstance(result, str):
        if sides != 2 or result not in TWO_SIDED:
            raise InvalidReport(f"expected wins, draws or losses (two sides) or {sides} ranks, found {result!r}")
        return TWO_SIDED[result]
    return _numbers(result, sides, "ranks")


def _numbers(numbers: Any, sides: int, field: str) -> tuple[float, ...]:
    numbers = _plain(numbers)
    if (
        not isinstance(numbers, (list, tuple))
        or len(numbers) != sides
        or not all(_is_number(number) for number in numbers)
    ):
        raise InvalidReport(f"expected {sides} {field}, one for each side, found {numbers!r}")
    return tuple(float(number) for number in numbers)  # NumPy's numbers are not JSON values


def _is_number(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)
