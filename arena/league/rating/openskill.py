"""Ratings of players from results of teams of any number: openskill with uncertainty, and Elo."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from openskill.models import PlackettLuce

from arena.league.roster import Roster
from arena.league.settings import RatingConfig


class Rating(NamedTuple):
    """Rating of a player.

    Attributes:
      mu: openskill rating.
      sigma: its uncertainty, one standard deviation.
      elo: Elo.
    """

    mu: float
    sigma: float
    elo: float


class Ratings:
    """Ratings of the players of a roster.

    The openskill ratings follow Weng & Lin, "A Bayesian Approximation Method for Online Ranking" (JMLR 12, 2011),
    algorithm 4 (Plackett-Luce). Only active players gain uncertainty between games: snapshots do not change.
    """

    def __init__(self, roster: Roster, cfg: RatingConfig) -> None:
        self._roster, self._cfg = roster, cfg
        self._model = PlackettLuce(mu=cfg.mu, sigma=cfg.sigma, tau=0.0)
        self._values = np.empty((0, 3))  # [capacity, (mu, sigma, elo)]
        self._count = 0

    def __getitem__(self, player_id: str) -> Rating:
        return Rating(*self._all()[self._roster.index(player_id)].tolist())

    def mu(self, players: np.ndarray | int) -> np.ndarray:
        """Return the ratings of players, given by index."""
        return self._all()[players, 0]

    def reset(self, player_id: str) -> None:
        """Reset a player's rating to that of a new player."""
        self._all()[self._roster.index(player_id)] = self._cfg.mu, self._cfg.sigma, self._cfg.elo

    def inherit(self, player_id: str, from_id: str) -> None:
        """Give a player the rating of another one: a snapshot has that of its parent."""
        values = self._all()
        values[self._roster.index(player_id)] = values[self._roster.index(from_id)]

    def update(self, sides: Sequence[Sequence[str]], ranks: Sequence[float]) -> None:
        """Update the ratings after one game; a game in which a player meets itself is ignored."""
        if len({member for side in sides for member in set(side)}) < sum(len(set(side)) for side in sides):
            return
        values = self._all()
        indices = [[self._roster.index(member) for member in side] for side in sides]
        elo = self._elo(indices, ranks, values)
        rated = self._model.rate([[self._rating(i, values) for i in side] for side in indices], ranks=list(ranks))
        # A player in several places of a team gets the same result for each of them.
        for side, after in zip(indices, rated, strict=True):
            for index, rating in zip(side, after, strict=True):
                values[index, 0], values[index, 1] = rating.mu, rating.sigma
        for index, change in elo.items():
            values[index, 2] += change

    def state_dict(self) -> dict[str, Any]:
        """Return all ratings as JSON values, in the roster's order."""
        return {"values": self._all()[: self._count].tolist()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from :meth:`state_dict`; the roster must hold the same players in the same order."""
        values = self._all()
        values[: self._count] = np.array(state["values"]).reshape(self._count, 3)

    def _all(self) -> np.ndarray:
        """Return the values, extended to the roster's size."""
        count = len(self._roster)
        if count > self._count:
            if count > len(self._values):
                grown = np.empty((2 * count, 3))
                grown[: self._count] = self._values[: self._count]
                self._values = grown
            self._values[self._count : count] = self._cfg.mu, self._cfg.sigma, self._cfg.elo
            self._count = count
        return self._values

    def _rating(self, index: int, values: np.ndarray) -> Any:
        mu, sigma = float(values[index, 0]), float(values[index, 1])
        if self._roster.players[index].active:
            sigma = min((sigma**2 + self._cfg.tau**2) ** 0.5, max(sigma, self._cfg.sigma))
        return self._model.rating(mu=mu, sigma=sigma)

    def _elo(self, indices: list[list[int]], ranks: Sequence[float], values: np.ndarray) -> dict[int, float]:
        """Return the changes of Elo: every two sides play a game of a team's mean against another's."""
        means = [sum(values[side, 2].tolist()) / len(side) for side in indices]
        changes = dict.fromkeys((index for side in indices for index in side), 0.0)
        for i in range(len(means)):
            for j in range(i + 1, len(means)):
                expected = 1 / (1 + 10 ** ((means[j] - means[i]) / 400))
                score = 0.5 + 0.5 * ((ranks[i] < ranks[j]) - (ranks[i] > ranks[j]))
                change = self._cfg.elo_k * (score - expected) / (len(means) - 1)
                for side, sign in ((i, 1), (j, -1)):
                    for index in set(indices[side]):
                        changes[index] += sign * change
        return changes
