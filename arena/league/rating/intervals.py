"""Intervals of win rates, and the number of games that decide which of two players is better."""

import math

import numpy as np

Z = 1.959964
"""Standard deviations on both sides of the mean that hold 95 % of a normal distribution."""

MOST_GAMES = 10_000
"""Largest number of games that is worth naming: closer players are equal for all purposes."""


def win_rate_interval(
    wins: np.ndarray | float, draws: np.ndarray | float, losses: np.ndarray | float, games: np.ndarray | float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the 95 % interval of a win rate, draws as one half: its lower and its upper end; NaN without games.

    It is Wilson's score interval (Wilson, "Probable inference", 1927) with the variance of three results in place of
    two: ``p (1 - p) - d / 4`` for a share ``d`` of draws. That share is that of ``Z ** 2`` more games without a draw: a
    few draws are no proof that every game is drawn.

    Args:
      wins: number of games won; all three counts may be decayed, since only their ratios matter.
      draws: number of games drawn.
      losses: number of games lost.
      games: effective number of games: of decayed counts, ``sum(weights) ** 2 / sum(weights ** 2)``.
    """
    total = np.asarray(wins, np.float64) + draws + losses
    played = np.asarray(games, np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        rate, drawn = (wins + 0.5 * np.asarray(draws)) / total, draws / total
        spread = Z**2 / played
        share = drawn * played / (played + Z**2) / 4
        middle = (rate + spread / 2) / (1 + spread)
        half = np.sqrt(np.maximum(middle**2 - (rate**2 + spread * share) / (1 + spread), 0.0))
    # Rounding may leave a rate of 0 or 1 just outside of its interval.
    return np.clip(np.minimum(middle - half, rate), 0.0, 1.0), np.clip(np.maximum(middle + half, rate), 0.0, 1.0)


def games_to_decide(wins: float, draws: float, losses: float) -> int | None:
    """Return how many more games decide which of two players is better, if the shares of the results stay the same.

    It is decided when one half is no longer in the interval of the win rate.

    Args:
      wins: number of games that one has won against the other so far, without decay.
      draws: number of games drawn.
      losses: number of games lost.

    Returns:
      0 if they are decided already; None if they would be more than ``MOST_GAMES``.
    """
    games = wins + draws + losses
    away = abs(wins - losses) / 2 / games if games else 0.0
    if not away:
        return None
    # (Z / 2 away)^2 (1 - d n / (n + Z^2)) games suffice: solved for n, from which the share d of draws is not taken yet
    scale, drawn = (Z / (2 * away)) ** 2, draws / games
    middle = (scale * (1 - drawn) - Z**2) / 2
    more = middle + math.sqrt(middle**2 + scale * Z**2) - games
    if more <= 0:
        return 0
    return None if more > MOST_GAMES else math.ceil(more)
