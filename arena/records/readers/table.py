"""Reader of win rates and ratings of a run with a table of matches, counted from its episodes."""

import sqlite3
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from arena.common.errors import ConfigError
from arena.common.outcomes import ranks_of, scores_of
from arena.league.battle_record import BattleRecord
from arena.league.rating.openskill import Ratings
from arena.league.settings import RatingConfig
from arena.records.readers.league import League, Member, PairRecord, RatingCurve
from arena.records.readers.run import stored_outcome

COUNTED = 20_000
"""Number of episodes that are counted, the latest ones: a player learns, and its old results are little evidence."""

CURVE_EVERY = 100
"""Games of a player between two points of its curve."""

EPISODES = f"""
    SELECT e.id, e.ended_at, x.player, x.return, x.outcome
    FROM (SELECT id, ended_at FROM episodes
          WHERE (cause IS NULL OR cause NOT LIKE 'fault%')
            AND id IN (SELECT episode FROM episode_entities GROUP BY episode HAVING count(DISTINCT player) > 1)
          ORDER BY id DESC LIMIT {COUNTED}) e
    JOIN episode_entities x ON x.episode = e.id ORDER BY e.id, x.entity
"""


class _Entrant(NamedTuple):
    """A player in the form that ratings require.

    Attributes:
      active: whether it learns.
    """

    active: bool


class _Roster:
    """Players in the order of the configuration."""

    def __init__(self, players: list[tuple[str, bool]]) -> None:
        self._places = {name: place for place, (name, _) in enumerate(players)}
        self.players = [_Entrant(active) for _, active in players]

    def index(self, name: str) -> int:
        """Return the index of a player."""
        return self._places[name]

    def __len__(self) -> int:
        """Return the number of players."""
        return len(self.players)


def read_table(connection: sqlite3.Connection) -> League:
    """Return the players of a run with a table of matches in the form of a league.

    Truncated games count by the returns so far, unless a fault cut them. Games of a player with itself do not count.

    Raises:
      ConfigError: no two players have met.
    """
    known = connection.execute('SELECT player, learns, "use" FROM players ORDER BY rowid').fetchall()
    listed = [(name, bool(learns)) for name, learns, _ in known]
    roster: Any = _Roster(listed)
    ratings = Ratings(roster, RatingConfig())
    names = {name for name, _ in listed}
    records: dict[tuple[str, str], BattleRecord] = {}
    margins: dict[tuple[str, str], float] = {}
    games = dict.fromkeys(names, 0)
    points: dict[str, list[tuple[float, float, float]]] = {}
    began = None
    for _, rows in groupby(connection.execute(EPISODES), key=itemgetter(0)):
        _, times, players, returns, outcomes = zip(*rows, strict=True)
        sides = [name for name in dict.fromkeys(players) if name in names]
        if len(sides) < 2:
            continue
        groups = [[entity for entity, name in enumerate(players) if name == side] for side in sides]
        means = [float(np.mean([returns[entity] for entity in group])) for group in groups]
        ranks = ranks_of(scores_of(groups, returns, [stored_outcome(outcome) for outcome in outcomes]))
        ratings.update([[side] for side in sides], ranks)
        began = began or times[0]
        for here, home in enumerate(sides):
            games[home] += 1
            if games[home] % CURVE_EVERY == 1:
                points.setdefault(home, []).append(((times[0] - began) / 60, *ratings[home][:2]))
            for there, away in enumerate(sides):
                if here != there:
                    records[home, away] = records.get((home, away), BattleRecord()).add(ranks[here], ranks[there])
                    margins[home, away] = margins.get((home, away), 0.0) + means[here]
    if not records:
        raise ConfigError(
            "expected a run with a league, or with matches in which several players meet, found neither in its "
            "records; arena eval plays its players"
        )
    steps = dict(connection.execute("SELECT player, max(steps) FROM episode_entities GROUP BY player"))
    met = {home for home, _ in records}
    members = {
        name: Member(use.rpartition(":")[2], "", None, bool(learns), steps.get(name) or 0, "")
        for name, learns, use in known
        if name in met
    }
    pairs = {
        pair: PairRecord(*record.counts(), margins[pair] / record.games, record.games)
        for pair, record in records.items()
    }
    curves = {name: RatingCurve(*np.array(points_).T) for name, points_ in points.items()}
    rated = {name: ratings[name] for name in met}
    return League(members, pairs, rated, games, curves, totals=pairs, restarts={}, has_totals=True)
