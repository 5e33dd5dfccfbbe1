"""Matchmaking: prioritised fictitious self-play, nearest rating, round robin, and a Nash mixture."""

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from arena.common.errors import ConfigError
from arena.common.text import suggestion
from arena.league.battle_payoff import BattleSharedPayoff

WEIGHTINGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "squared": lambda rates: (1 - rates) ** 2,
    "variance": lambda rates: rates * (1 - rates),
    "linear": lambda rates: 1 - rates,
    "linear_capped": lambda rates: np.minimum(0.5, 1 - rates),
    "uniform": np.ones_like,
}
"""Win rates [candidates] -> weights (Vinyals et al., "Grandmaster level in StarCraft II", 2019, methods)."""

LOSING = 0.3
"""Win rate below which a player counts as losing, as in AlphaStar's verification of exploited players."""

NEGLIGIBLE = 1e-9  # sum of weights that is too small to normalise by


def pfsp(rates: np.ndarray, weighting: str) -> np.ndarray:
    """Return the probability of each candidate, given the win rates against them.

    Raises:
      ConfigError: there is no such weighting, or there are no candidates.
    """
    if weighting not in WEIGHTINGS:
        raise ConfigError(
            f"weighting: expected one of {', '.join(WEIGHTINGS)}, found {weighting!r}"
            f"{suggestion(weighting, WEIGHTINGS)}"
        )
    rates = np.asarray(rates, dtype=np.float64)
    if not rates.size:
        raise ConfigError("expected at least one candidate to weigh, found none")
    weights = WEIGHTINGS[weighting](rates)
    total = weights.sum()
    # All weights vanish if every candidate is always beaten: then none is preferred.
    return np.full(rates.shape, 1 / rates.size) if total < NEGLIGIBLE else weights / total


def loses_to_all(rates: np.ndarray) -> bool:
    """Return whether a player loses to all candidates, given its win rates against them.

    To prefer those that it loses to most would then leave it with games that are lost whatever it does.
    """
    return bool(rates.size and rates.max() < LOSING)


def draw(candidates: np.ndarray, rng: np.random.Generator, probabilities: np.ndarray | None = None) -> int:
    """Return one of the candidates, by ``probabilities`` or uniformly.

    Raises:
      ConfigError: there are no candidates.
    """
    if not len(candidates):
        raise ConfigError("expected at least one candidate to draw from, found none")
    if probabilities is None:
        return int(candidates[rng.integers(len(candidates))])
    sums = np.cumsum(probabilities)
    place = int(np.searchsorted(sums, rng.random() * sums[-1], side="right"))
    return int(candidates[min(place, len(candidates) - 1)])


def nearest_rating(home: float, ratings: np.ndarray) -> np.ndarray:
    """Return the probability of each candidate: uniform over those with the rating nearest to ``home``.

    Raises:
      ConfigError: there are no candidates.
    """
    if not len(ratings):
        raise ConfigError("expected at least one candidate to compare ratings with, found none")
    away = np.abs(np.asarray(ratings) - home)
    first = away == away.min()
    return first / first.sum()


def round_robin(home: int, candidates: np.ndarray, turn: int) -> int:
    """Return the next candidate in turn: those after ``home`` first, then from the beginning.

    Raises:
      ConfigError: there are no candidates.
    """
    if not len(candidates):
        raise ConfigError("expected at least one other player for a round robin, found none")
    start = int(np.searchsorted(candidates, home))
    return int(candidates[(start + turn) % len(candidates)])


def zero_sum_nash(matrix: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the row player's optimal strategy [rows] and the value of a zero-sum game, by linear programming.

    Maximise ``v`` subject to ``matrix.T @ x >= v``, ``sum(x) = 1``, ``x >= 0`` (von Neumann).

    Args:
      matrix: payoff of the row player, [rows, columns].
    """
    # Imported where needed: it takes a third of a second, and few leagues solve games.
    from scipy.optimize import linprog  # type: ignore[import-untyped]

    matrix = np.asarray(matrix, dtype=np.float64)
    rows, columns = matrix.shape
    solution = linprog(
        np.append(np.zeros(rows), -1.0),
        A_ub=np.hstack([-matrix.T, np.ones((columns, 1))]),
        b_ub=np.zeros(columns),
        A_eq=np.append(np.ones(rows), 0.0)[None],
        b_eq=[1.0],
        bounds=[(0, None)] * rows + [(None, None)],
        method="highs",
    )
    if not solution.success:
        raise ArithmeticError(f"the {rows} x {columns} game has no solution that linprog finds: {solution.message}")
    strategy = np.clip(solution.x[:-1], 0.0, None)
    return strategy / strategy.sum(), float(solution.x[-1])


def empirical_game(payoff: BattleSharedPayoff, ids: Sequence[str]) -> np.ndarray:
    """Return the payoff of each player against each other one, [players, players], antisymmetric.

    The payoff is the mean margin of returns; if none were reported, the margin of wins.
    """
    game = np.zeros((len(ids), len(ids)))
    for row, column in combinations(range(len(ids)), 2):
        margin = payoff.margin(ids[row], ids[column])
        game[row, column] = 2 * payoff.win_rate(ids[row], ids[column]) - 1 if margin is None else margin
    return game - game.T


class NashMixture:
    """The Nash mixture of the empirical game among the newest candidates (PSRO: Lanctot et al., 2017).

    The game is solved again when the candidates change, or when ``games`` more games have been counted.
    """

    def __init__(self, size: int, games: int) -> None:
        self._size, self._every = size, games
        self._candidates: list[int] = []
        self._weights: list[float] = []
        self._solved_at = 0

    def probabilities(self, payoff: BattleSharedPayoff, candidates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the candidates in the game and their probabilities.

        Raises:
          ConfigError: there are no candidates.
        """
        if not len(candidates):
            raise ConfigError("expected at least one candidate for a mixture, found none")
        newest = candidates[-self._size :]
        if newest.tolist() != self._candidates or payoff.games - self._solved_at >= self._every:
            ids = [payoff.roster.players[index].player_id for index in newest]
            self._candidates, self._weights = newest.tolist(), zero_sum_nash(empirical_game(payoff, ids))[0].tolist()
            self._solved_at = payoff.games
        return newest, np.array(self._weights)

    def state_dict(self) -> dict[str, Any]:
        """Return the solved game as JSON values."""
        return {"candidates": self._candidates, "weights": self._weights, "solved_at": self._solved_at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from :meth:`state_dict`."""
        self._candidates, self._weights = list(state["candidates"]), list(state["weights"])
        self._solved_at = state["solved_at"]
