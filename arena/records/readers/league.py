"""Reader of a run's league from its records: players, win rates, and rating curves."""

import sqlite3
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from arena.common.errors import ConfigError

if TYPE_CHECKING:
    from arena.league.ratings import Rating


class Member(NamedTuple):
    """A player of the league.

    Attributes:
      type: name of its class, or of the class it was trained as.
      category: its category.
      parent: player that it is a snapshot of; None for active players.
      active: whether it learns.
      steps: its transition steps.
      path: its weights file, relative to the run directory.
    """

    type: str
    category: str
    parent: str | None
    active: bool
    steps: int
    path: str


class PairRecord(NamedTuple):
    """Record of two players from the first one's view; counts decay with every game.

    Attributes:
      wins, draws, losses, games: decayed counts.
      margin: mean return of the first one against the other, None if unknown.
    """

    wins: float
    draws: float
    losses: float
    games: float
    margin: float | None

    def reversed(self) -> "PairRecord":
        """Return the same from the other player's view."""
        return PairRecord(self.losses, self.draws, self.wins, self.games, None if self.margin is None else -self.margin)


class RatingCurve(NamedTuple):
    """Ratings of a player in the order in which they were recorded; all arrays are ``[N]``.

    Attributes:
      minutes: time since the run began.
      mu: rating.
      sigma: its uncertainty, one standard deviation.
    """

    minutes: np.ndarray
    mu: np.ndarray
    sigma: np.ndarray


class Relative(NamedTuple):
    """Position of a player in the family tree.

    Attributes:
      parent: player that it is a snapshot of; None for an initial player.
      steps: its transition steps.
      active: whether it still learns.
    """

    parent: str | None
    steps: int
    active: bool


class League(NamedTuple):
    """A league from the records of a run.

    Attributes:
      members: players by id, in order of arrival.
      records: record of each two players that have met, from both views.
      ratings: latest rating of each player that has any.
      games: number of games of each of these.
      curves: rating curves.
    """

    members: dict[str, Member]
    records: dict[tuple[str, str], PairRecord]
    ratings: dict[str, "Rating"]
    games: dict[str, int]
    curves: dict[str, RatingCurve]

    def by_rating(self) -> list[str]:
        """Return all ids, the best rating first, those without one last."""
        return sorted(self.members, key=lambda name: -self.ratings[name].mu if name in self.ratings else np.inf)

    def counts(self, name: str) -> tuple[float, float, float]:
        """Return a player's wins, draws and losses against all others."""
        counts = [record[:3] for (home, _), record in self.records.items() if home == name]
        wins, draws, losses = np.sum(counts, axis=0).tolist() if counts else (0.0, 0.0, 0.0)
        return wins, draws, losses

    def win_rates(self, names: Sequence[str]) -> np.ndarray:
        """Return the win rate of each against each, ``[N, N]``, draws as one half; NaN for pairs without games."""
        return self._matrix(names, lambda record: (record.wins + record.draws / 2) / record.games)

    def returns(self, names: Sequence[str]) -> np.ndarray:
        """Return the mean return of each against each, ``[N, N]``; NaN if unknown."""
        return self._matrix(names, lambda record: np.nan if record.margin is None else record.margin)

    def _matrix(self, names: Sequence[str], value: Callable[[PairRecord], float]) -> np.ndarray:
        matrix = np.full((len(names), len(names)), np.nan)
        for i, home in enumerate(names):
            for j, away in enumerate(names):
                record = self.records.get((home, away))
                if record is not None and record.games:
                    matrix[i, j] = value(record)
        return matrix

    def family(self) -> dict[str, Relative]:
        """Return the position of every player in the family tree."""
        return {name: Relative(member.parent, member.steps, member.active) for name, member in self.members.items()}


def has_league(connection: sqlite3.Connection) -> bool:
    """Return whether a run's records have a league."""
    query = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'league_players'"
    if not connection.execute(query).fetchone()[0]:
        return False
    return bool(connection.execute("SELECT EXISTS (SELECT 1 FROM league_players)").fetchone()[0])


def read_league(connection: sqlite3.Connection) -> League:
    """Return the league of a run.

    Raises:
      ConfigError: the run has none.
    """
    if not has_league(connection):
        raise ConfigError(
            "expected a run with a league, found none in its records; arena eval and arena tournament play its players"
        )
    columns = "player, type, category, parent, active, steps, path"
    rows = connection.execute(f"SELECT {columns} FROM league_players ORDER BY created, player")
    members = {
        name: Member(kind, category, parent, bool(active), steps, path)
        for name, kind, category, parent, active, steps, path in rows
    }
    records = {}
    for home, away, *fields in connection.execute(
        "SELECT home, away, wins, draws, losses, games, home_return FROM payoff"
    ):
        records[home, away] = PairRecord(*fields)
        records[away, home] = records[home, away].reversed()
    from arena.league.ratings import Rating  # slow to import, and rarely needed

    ratings: dict[str, Rating] = {}
    games: dict[str, int] = {}
    series: dict[str, list[tuple[float, float, float]]] = {}
    (began,) = connection.execute("SELECT min(time) FROM ratings").fetchone()
    query = "SELECT time, player, games, mu, sigma, elo FROM ratings ORDER BY time, rowid"
    for time, player, played, mu, sigma, elo in connection.execute(query):
        if player in members:
            ratings[player], games[player] = Rating(mu, sigma, elo), played
            series.setdefault(player, []).append(((time - began) / 60, mu, sigma))
    curves = {player: RatingCurve(*np.array(points).T) for player, points in series.items()}
    return League(members, records, ratings, games, curves)
