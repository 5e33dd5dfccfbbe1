"""Elo of players with fixed weights from all of their games in any order, with its interval."""

from typing import NamedTuple

import numpy as np

from arena.league.rating.intervals import Z

MEAN = 1500.0
"""Elo of the mean player."""

DEVIATION = 600.0
"""Standard deviation of the Elo of players without games: wide, since a narrow one would draw the best and the worst
players of a league towards the mean, and out of their intervals."""

PER_LOGIT = 400 / np.log(10)
"""Elo of a difference of one in the logarithm of the odds."""

ITERATIONS = 50
"""Largest number of Newton's steps; some ten suffice."""


class Elo(NamedTuple):
    """Elo of N players.

    Attributes:
      mean: the most likely values ``[N]``; their mean is ``MEAN``.
      low, high: ends of the 95 % intervals ``[N]``, relative to the mean player.
    """

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


def fit_elo(points: np.ndarray, games: np.ndarray) -> Elo:
    """Return the Elo that best explains games: the model of Bradley and Terry (1952) with a normal prior.

    Draws are half a win and half a loss. The interval is that of the normal distribution with the curvature of the
    posterior at its maximum (Laplace's method).

    Args:
      points: points of each against each, ``[N, N]``: wins and half of the draws.
      games: number of their games, ``[N, N]``, symmetric; the diagonal is ignored.
    """
    count = len(games)
    if not count:
        return Elo(*np.empty((3, 0)))
    games = games * (1 - np.eye(count))
    won = np.where(games > 0, points, 0.0).sum(1)
    precision = (PER_LOGIT / DEVIATION) ** 2
    strength = np.zeros(count)
    for _ in range(ITERATIONS):
        expected = 1 / (1 + np.exp(strength[None] - strength[:, None]))
        gradient = won - (games * expected).sum(1) - precision * strength
        curvature = _curvature(games, expected, precision)
        step = np.linalg.solve(curvature, gradient)
        strength += np.clip(step, -2.0, 2.0)  # far from the maximum, a full step may leave the range of the model
        if np.abs(step).max() < 1e-9:
            break
    expected = 1 / (1 + np.exp(strength[None] - strength[:, None]))
    covariance = np.linalg.inv(_curvature(games, expected, precision))
    centred = covariance - covariance.mean(0) - covariance.mean(1)[:, None] + covariance.mean()
    half = Z * PER_LOGIT * np.sqrt(np.maximum(np.diag(centred), 0.0))
    mean = MEAN + PER_LOGIT * (strength - strength.mean())
    return Elo(mean, mean - half, mean + half)


def _curvature(games: np.ndarray, expected: np.ndarray, precision: float) -> np.ndarray:
    """Return the negative Hessian of the logarithm of the posterior ``[N, N]``."""
    weight = games * expected * (1 - expected)
    return np.diag(weight.sum(1) + precision) - weight
