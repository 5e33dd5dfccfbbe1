"""Reader of a run's league from its records: players, win rates, and rating curves."""

import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from arena.common.errors import ConfigError
from arena.league.rating.elo import fit_elo
from arena.league.rating.intervals import win_rate_interval

if TYPE_CHECKING:
    from arena.league.rating.openskill import Rating

NEVER = "never met"
"""Reason of two players without games, of which neither has got other weights."""

MOST_FITTED = 1_000
"""Largest number of players in a fit of Elo: its time grows with the cube, and is a second for these."""


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
    """Record of two players from the first one's view.

    Attributes:
      wins, draws, losses, games: counts; of a payoff they decay with every game.
      margin: mean return of the first one against the other, None if unknown.
      effective: number of games of one weight with the same uncertainty.
    """

    wins: float
    draws: float
    losses: float
    games: float
    margin: float | None
    effective: float

    @property
    def win_rate(self) -> float:
        """Win rate, draws as one half; NaN without games."""
        return (self.wins + self.draws / 2) / self.games if self.games else np.nan

    def reversed(self) -> "PairRecord":
        """Return the same from the other player's view."""
        margin = None if self.margin is None else -self.margin
        return PairRecord(self.losses, self.draws, self.wins, self.games, margin, self.effective)


class Restart(NamedTuple):
    """The last time that an active player has got other weights than those that it had learned.

    Attributes:
      kind: what was done: reset, or rolled back.
      steps: transition steps of the player then.
    """

    kind: str
    steps: int


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


Records = dict[tuple[str, str], PairRecord]
"""Record of each two players that have met, from both views."""


class League(NamedTuple):
    """A league from the records of a run.

    Attributes:
      members: players by id, in order of arrival.
      records: records as the league counts them; recent games weigh more.
      ratings: latest rating of each player that has any.
      games: number of games of each of these under its own name.
      curves: rating curves.
      totals: all games, by the weights that played them.
      restarts: last restart of each player that had any.
      has_totals: whether all games are on record; an earlier version has kept the decayed ones only, which stand here.
    """

    members: dict[str, Member]
    records: Records
    ratings: dict[str, "Rating"]
    games: dict[str, int]
    curves: dict[str, RatingCurve]
    totals: Records
    restarts: dict[str, Restart]
    has_totals: bool

    def by_rating(self) -> list[str]:
        """Return all ids, the best rating first, those without one last."""
        return sorted(self.members, key=lambda name: -self.ratings[name].mu if name in self.ratings else np.inf)

    def counts(self, name: str) -> tuple[float, float, float]:
        """Return the wins, draws and losses of a player's weights against all others."""
        counts = [record[:3] for (home, _), record in self.totals.items() if home == name]
        wins, draws, losses = np.sum(counts, axis=0).tolist() if counts else (0.0, 0.0, 0.0)
        return wins, draws, losses

    def rated_by_parent(self, name: str) -> bool:
        """Return whether a player's rating is that of its parent: under its own name it has not played."""
        return self.members[name].parent is not None and not self.games.get(name)

    def beginnings(self, records: Records) -> dict[str, str]:
        """Return since when the games of active players stand in ``records``; none for those with all of their games.

        Args:
          records: ``self.records``, which a restart clears, or ``self.totals``, from which a snapshot takes them over.
        """
        events = {name: [(restart.steps, restart.kind)] for name, restart in self.restarts.items()}
        if self.has_totals and records is self.totals:
            for member in self.members.values():
                if member.parent is not None and member.steps:
                    events.setdefault(member.parent, []).append((member.steps, "frozen"))
        latest = {name: max(own) for name, own in events.items() if name in self.members and self.members[name].active}
        return {name: f"{name} was {kind} at {steps:,} steps" for name, (steps, kind) in latest.items()}

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
    records, totals = _read_pairs(connection)
    restarts: dict[str, Restart] = {}
    for kind, table in (("reset", "resets"), ("rolled back", "rollbacks")):
        for player, steps in connection.execute(f"SELECT player, max(steps) FROM {table} GROUP BY player"):
            if player not in restarts or steps > restarts[player].steps:
                restarts[player] = Restart(kind, steps)
    from arena.league.rating.openskill import Rating  # slow to import, and rarely needed

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
    return League(members, records, ratings, games, curves, totals or records, restarts, bool(totals) or not records)


def _read_pairs(connection: sqlite3.Connection) -> tuple[Records, Records]:
    """Return the records as the league counts them, and all games; the latter are empty if they were not recorded."""
    records: Records = {}
    totals: Records = {}
    query = (
        "SELECT payoff.home, payoff.away, payoff.wins, payoff.draws, payoff.losses, payoff.games, payoff.home_return, "
        "coalesce(payoff_games, payoff.games) FROM payoff LEFT JOIN game_totals USING (home, away)"
    )
    every = "SELECT home, away, wins, draws, losses, games, home_return, games FROM game_totals"
    for found, text in ((records, query), (totals, every)):
        for home, away, *fields in connection.execute(text):
            if fields[3]:
                found[home, away] = PairRecord(*fields)
                found[away, home] = found[home, away].reversed()
    return records, totals


def why_empty(pair: tuple[str, str], records: Records, beginnings: Mapping[str, str]) -> str | None:
    """Return why two players have no games in ``records``; None if they have some, or are one player.

    Args:
      pair: names of both.
      records: the records.
      beginnings: since when the games of players stand there (``League.beginnings``).
    """
    if pair[0] == pair[1] or pair in records:
        return None
    since = [beginnings[name] for name in pair if name in beginnings]
    return f"not met since {' and '.join(since)}" if since else NEVER


def matrix(records: Records, names: Sequence[str], value: Callable[[PairRecord], float | None]) -> np.ndarray:
    """Return a value of the records of each against each, ``[N, N]``; NaN if it is unknown, or without games."""
    values = np.full((len(names), len(names)), np.nan)
    place = {name: index for index, name in enumerate(names)}
    for (home, away), record in records.items():
        if home in place and away in place and record.games and (known := value(record)) is not None:
            values[place[home], place[away]] = known
    return values


def win_rates(records: Records, names: Sequence[str]) -> np.ndarray:
    """Return the win rate of each against each, ``[N, N]``, draws as one half; NaN for pairs without games."""
    return matrix(records, names, lambda record: record.win_rate)


def mean_returns(records: Records, names: Sequence[str]) -> np.ndarray:
    """Return the mean return of each against each, ``[N, N]``; NaN if it is unknown."""
    return matrix(records, names, lambda record: record.margin)


def intervals(records: Records, names: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends of the 95 % interval of each win rate, ``[N, N]`` each; NaN for pairs without games."""
    wins, draws, losses, games = (
        matrix(records, names, lambda record, field=field: getattr(record, field))  # type: ignore[misc]
        for field in ("wins", "draws", "losses", "effective")
    )
    return win_rate_interval(wins, draws, losses, games)


def elo_of(league: League) -> dict[str, tuple[float, float, float]]:
    """Return the Elo of each player from all games of its weights, with the ends of its 95 % interval.

    Of more than ``MOST_FITTED`` players those with the most games have one.
    """
    games = Counter[str]()
    for (home, _), record in league.totals.items():
        games[home] += round(record.games)
    names = [name for name, _ in games.most_common(MOST_FITTED) if name in league.members]
    played = matrix(league.totals, names, lambda record: record.games)
    points = matrix(league.totals, names, lambda record: record.wins + record.draws / 2)
    fitted = fit_elo(np.nan_to_num(points), np.nan_to_num(played))
    return dict(zip(names, zip(*(part.tolist() for part in fitted), strict=True), strict=True))
