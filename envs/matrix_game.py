"""Matrix games: two entities choose simultaneously, and a matrix holds the payoffs of each pair of choices."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from arena.common.errors import ConfigError
from arena.common.text import suggestion
from arena.envs.interface import EntitySpaces, Timestep

NAMED: dict[str, list] = {
    "rock_paper_scissors": [[0, -1, 1], [1, 0, -1], [-1, 1, 0]],
    # Balduzzi et al., "Open-ended learning in symmetric zero-sum games", 2019; matrix_brps of OpenSpiel.
    "biased_rock_paper_scissors": [[0, -25, 50], [25, 0, -5], [-50, 5, 0]],
    "matching_pennies": [[1, -1], [-1, 1]],
    "prisoners_dilemma": [[[5, 0], [10, 1]], [[5, 10], [0, 1]]],
}
"""Payoffs of the row player, [rows, columns], or of both players, [2, rows, columns]."""


# Constant parts of a timestep: shared, so that a step allocates next to nothing.
EVERYBODY, NOBODY, NO_MASKS = (True, True), (False, False), (None, None)


class MatrixGame:
    """A matrix game: entity ``row`` chooses a row, ``column`` a column.

    An episode has a number of rounds, and its return is their sum. Observations are constant: a single 1 in a game that
    is symmetric, so that a policy trained on one side can play the other; in any other game the side, ``[1, 0]`` or
    ``[0, 1]``.

    Attributes:
      payoffs: payoff of each entity in a round, ``[2, rows, columns]``.
    """

    turn_based = False

    def __init__(self, payoffs: Any = "rock_paper_scissors", rounds: int = 1) -> None:
        """Set up the game.

        Args:
          payoffs: gain of the row player and loss of the column player, ``[rows, columns]``; a pair of such matrices,
            the gains of each; or a name in ``NAMED``.
          rounds: moves per episode.

        Raises:
          ConfigError: ``payoffs`` is none of these, or ``rounds`` is not positive.
        """
        if isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 1:
            raise ConfigError(f"rounds: expected a whole number above 0, found {rounds!r}")
        self.payoffs = _payoffs(payoffs)
        self._rounds, self._left = rounds, 0
        row, column = self.payoffs
        looks_the_same = row.shape == column.T.shape and np.array_equal(row, column.T)
        self._seen = tuple(np.ones((2, 1), np.float32)) if looks_the_same else tuple(np.eye(2, dtype=np.float32))
        for observation in self._seen:
            observation.flags.writeable = False
        box = spaces.Box(0, 1, self._seen[0].shape, np.float32)
        self.entities: tuple[EntitySpaces, ...] = tuple(
            EntitySpaces(name, box, spaces.Discrete(count))
            for name, count in zip(("row", "column"), row.shape, strict=True)
        )
        self._paid = [
            [(float(a), float(b)) for a, b in zip(*line, strict=True)] for line in zip(row, column, strict=True)
        ]

    def reset(self, seed: int | None = None, options: dict | None = None) -> Timestep:
        """Start an episode, which has no randomness."""
        self._left = self._rounds
        return Timestep(self._seen, (0.0, 0.0), NOBODY, NOBODY, ({}, {}), EVERYBODY, NO_MASKS, False)

    def step(self, actions: Sequence[Any]) -> Timestep:
        """Play one round."""
        paid = self._paid[actions[0]][actions[1]]
        self._left -= 1
        if self._left:
            return Timestep(self._seen, paid, NOBODY, NOBODY, ({}, {}), EVERYBODY, NO_MASKS, False)
        return Timestep(self._seen, paid, EVERYBODY, NOBODY, ({}, {}), NOBODY, NO_MASKS, True)

    def render(self) -> None:
        """Return None: the game has no picture."""

    def close(self) -> None:
        """Do nothing: the game holds no resources."""


def _payoffs(payoffs: Any) -> np.ndarray:
    """Return the payoffs of each entity, ``[2, rows, columns]``.

    Raises:
      ConfigError: ``payoffs`` has another form.
    """
    if isinstance(payoffs, str):
        if payoffs not in NAMED:
            raise ConfigError(
                f"payoffs: unknown game {payoffs!r}{suggestion(payoffs, NAMED)}; expected one of {', '.join(NAMED)}, "
                "a matrix, or a pair of them"
            )
        payoffs = NAMED[payoffs]
    try:
        matrices = np.array(payoffs, np.float64)
    except (TypeError, ValueError):
        matrices = np.empty(0)
    if matrices.ndim == 2:
        matrices = np.stack([matrices, 0 - matrices])  # avoids negative zeros
    if matrices.ndim != 3 or len(matrices) != 2 or not matrices.size or not np.isfinite(matrices).all():
        raise ConfigError(
            "payoffs: expected a matrix of finite numbers (what the row player wins), a pair of matrices of one "
            f"shape, or one of {', '.join(NAMED)}; found {payoffs!r:.80}"
        )
    return matrices
