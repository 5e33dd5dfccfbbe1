"""The payoff of battles: win rates between players, which matchmaking reads."""

import logging
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

import numpy as np

from arena.common.errors import ConfigError
from arena.common.text import suggestion
from arena.league.battle_record import BattleRecord
from arena.league.game_totals import GameTotals
from arena.league.rating.openskill import Ratings
from arena.league.report import InvalidReport, battle_report
from arena.league.roster import Roster, check_same_players
from arena.league.settings import BattlePayoffConfig

logger = logging.getLogger(__name__)

# Number of cached rows of win rates: one per player that chooses opponents, 80 kB each among 10,000 players.
MAX_ROWS = 512

NEGLIGIBLE = 1e-9  # number of games in a record that has faded

Side = str | tuple[str, ...]  # a player, or a team

Teams = tuple[tuple[str, ...], tuple[str, ...]]
"""Two teams, each in the order of its ids; the lower one first."""


class BattleSharedPayoff:
    """One record per unordered pair of players, and of teams, shared by all players.

    A game between sides is one game for every two players that meet across it. If a side is a mixed team, it is also
    one game of the team (a tuple of ids). A side of one player in several places is that player. A player on both sides
    wins and loses, which is not counted as a game of its own.

    Attributes:
      roster: the players.
      ratings: their ratings.
      games: number of games counted so far, not decayed.
      totals: all games, by the weights that played them.
    """

    def __init__(self, cfg: BattlePayoffConfig | None = None) -> None:
        self.cfg = cfg or BattlePayoffConfig()
        self.roster = Roster()
        self.ratings = Ratings(self.roster, self.cfg.ratings)
        self.games = 0
        self.totals = GameTotals()
        self._records: dict[tuple[int, int], BattleRecord] = {}  # lower index first; the pair that met last comes last
        self._met: list[dict[int, None]] = []  # by player: the players that it has met, in the same order
        self._teams: dict[Teams, BattleRecord] = {}
        # by active player: the teams with it that have played since its last snapshot
        self._team_phases: dict[str, dict[Teams, None]] = {}
        self._margins: dict[tuple[int, int], tuple[float, float]] = {}  # sum and count, from the lower index's view
        self._rows: dict[int, np.ndarray] = {}

    def add_player(self, player: Any) -> None:
        """Add a player.

        Raises:
          ConfigError: its id is taken.
        """
        self.roster.add(player)
        self._met.append({})
        self.totals.add_player()

    def __getitem__(self, pair: tuple[Side | list[Side], Side | list[Side]]) -> np.ndarray:
        """Return the win rates [homes, others]; a list names several, a tuple is one team."""
        homes, others = (list(part) if isinstance(part, list) else [part] for part in pair)
        rates = [[self.win_rate(home, away) for away in others] for home in homes]
        return np.array(rates, dtype=np.float64).reshape(len(homes), len(others))

    def win_rate(self, home: Side, away: Side) -> float:
        """Return the win rate of ``home`` against ``away``."""
        return self.record(home, away).win_rate(self.cfg.min_win_rate_games)

    def record(self, home: Side, away: Side) -> BattleRecord:
        """Return the record of ``home`` against ``away``.

        Raises:
          ConfigError: one of them is an unknown id.
        """
        first, second = self._side(home), self._side(away)
        if len(first) == len(second) == 1:
            return self._pair(self.roster.index(first[0]), self.roster.index(second[0]))
        team_record = self._teams.get((min(first, second), max(first, second)), BattleRecord())
        return team_record if first < second else team_record.reversed()

    def margin(self, home: str, away: str) -> float | None:
        """Return half the mean difference of the returns of ``home`` and ``away``; None if unknown.

        In a zero-sum game that is the mean return. It is unknown without reported returns, or with fewer games than a
        win rate needs.
        """
        home_index, away_index = self.roster.index(home), self.roster.index(away)
        total, count = self._margins.get((min(home_index, away_index), max(home_index, away_index)), (0.0, 0.0))
        if not count or count < self.cfg.min_win_rate_games:
            return None
        return total / count if home_index < away_index else -total / count

    def win_rates(self, home: str, others: np.ndarray) -> np.ndarray:
        """Return a player's win rates against players given by index, shape [others]."""
        return self._row(self.roster.index(home))[others]

    def latest(self, home: str, others: np.ndarray, limit: int | None) -> np.ndarray:
        """Return the players, among some, that a player has met last, and often enough for a win rate; indices.

        Args:
          home: id of the player.
          others: indices of the other players, in ascending order.
          limit: largest number of them; None for all.
        """
        index, met = self.roster.index(home), list[int]()
        needed = max(self.cfg.min_win_rate_games, 1)
        for other in reversed(self._met[index]):
            if len(met) == limit:
                break
            if self._records[min(index, other), max(index, other)].games < needed:
                continue
            place = bisect_left(others, other)  # few come so far: a set of all others would take longer
            if place < len(others) and others[place] == other:
                met.append(other)
        return np.array(met, np.intp)

    def update(self, job_info: Mapping[str, Any]) -> bool:
        """Count a finished job's games: all of them, or none if the report is invalid.

        Args:
          job_info: ``sides``, ``results`` and optionally ``returns``, see :func:`arena.league.report.battle_report`.

        Returns:
          whether they were counted; the log holds the reason if not.
        """
        try:
            sides, games, returns = battle_report(job_info, self.roster)
        except InvalidReport as error:
            logger.warning("a result was refused: %s", error)
            return False
        teams = [tuple(sorted(set(side))) for side in sides]
        for game, ranks in enumerate(games):
            for home, away in combinations(range(len(teams)), 2):
                self._count(teams[home], teams[away], ranks[home], ranks[away])
                if returns:
                    self._score(teams[home], teams[away], (returns[game][home] - returns[game][away]) / 2)
            self.ratings.update(sides, ranks)
            self.games += 1
        return True

    def met(self, player_id: str) -> list[str]:
        """Return the ids of the players that a player has met, the latest last."""
        return [self.roster.players[other].player_id for other in self._met[self.roster.index(player_id)]]

    def inherit(self, snapshot_id: str, parent_id: str, keep: float) -> None:
        """Give a new snapshot the games that its parent has played since the snapshot before, and its rating.

        They were games of these weights, or of those that led to them. So the snapshot also takes over the records of
        its parent against the players that it has met in these games, multiplied by ``keep``.
        """
        snapshot, parent = self.roster.index(snapshot_id), self.roster.index(parent_id)
        met = self._last_met(parent, set(self.totals.opponents(parent)))
        self.totals.hand_over(parent, snapshot)
        self.ratings.inherit(snapshot_id, parent_id)
        phase = self._team_phases.pop(parent_id, {})
        if not keep:
            return
        for other in met:
            self._take_over(snapshot, parent, other, keep)
        for teams in phase:
            renamed = [tuple(sorted({snapshot_id if p == parent_id else p for p in team})) for team in teams]
            record = self._teams[teams] * keep
            home, away = sorted(renamed)
            self._teams[home, away] = record if [home, away] == renamed else record.reversed()
            for member in {*home, *away} & self._team_phases.keys():
                if teams in self._team_phases[member]:
                    self._team_phases[member][home, away] = None

    def reset(self, player_id: str) -> None:
        """Apply a reset of a player's weights: its records fade by ``reset_keep``, and its rating is reset.

        The results of its old weights are little evidence about the new ones.
        """
        self._fade(player_id, self.cfg.reset_keep)
        self.ratings.reset(player_id)

    def roll_back(self, player_id: str, snapshot_id: str) -> None:
        """Apply a rollback of a player to a snapshot: the snapshot's records and rating become its own.

        The games since its last snapshot belong to no weights that are left.
        """
        self._fade(player_id, 0.0)
        index, source = self.roster.index(player_id), self.roster.index(snapshot_id)
        self.totals.drop(index)
        self._team_phases.pop(player_id, None)
        for other in [other for other in self._met[source] if other != index]:
            self._take_over(index, source, other)
        self.ratings.inherit(player_id, snapshot_id)

    def _last_met(self, player: int, others: set[int]) -> list[int]:
        """Return those of some others that a player has met, the latest last: an order that a resume keeps."""
        met = list[int]()
        for other in reversed(self._met[player]):
            if len(met) == len(others):
                break
            if other in others:
                met.append(other)
        return met[::-1]

    def _take_over(self, player: int, source: int, other: int, keep: float = 1.0) -> None:
        """Set the record of a player against another one to that of a third player, times ``keep``."""
        record = self._pair(source, other) * keep
        if record.games < NEGLIGIBLE:
            return
        pair = min(player, other), max(player, other)
        self._meet(*pair, record if player < other else record.reversed())
        total, count = self._margins.get((min(source, other), max(source, other)), (0.0, 0.0))
        if count:
            sees_alike = (source < other) == (player < other)
            self._margins[pair] = keep * (total if sees_alike else -total), keep * count

    def _fade(self, player_id: str, keep: float) -> None:
        """Multiply all records of a player by a factor."""
        index = self.roster.index(player_id)
        for other in self._met[index]:
            pair = min(index, other), max(index, other)
            if not self._records[pair].games:
                continue
            self._set(*pair, self._records[pair] * keep)
            if pair in self._margins:
                total, count = self._margins[pair]
                self._margins[pair] = total * keep, count * keep
        for teams, record in self._teams.items():
            if any(player_id in team for team in teams):
                self._teams[teams] = record * keep

    def state_dict(self) -> dict[str, Any]:
        """Return all records and ratings as JSON values; players are named by index in order of arrival."""
        return {
            "players": [player.player_id for player in self.roster.players],
            "games": self.games,
            "records": [[*pair, *record.state()] for pair, record in self._records.items()],
            "teams": [[list(a), list(b), *record.state()] for (a, b), record in self._teams.items()],
            "margins": [[*pair, *margin] for pair, margin in self._margins.items()],
            "totals": self.totals.state_dict(),
            "team_phases": {player: [list(map(list, t)) for t in teams] for player, teams in self._team_phases.items()},
            "ratings": self.ratings.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from :meth:`state_dict`.

        Raises:
          ConfigError: the players, or their order, differ.
        """
        check_same_players(self.roster, state)
        self.games = state["games"]
        self._rows, self._records = {}, {}
        self._met = [{} for _ in self.roster.players]
        for low, high, *counts in state["records"]:
            self._meet(low, high, BattleRecord.from_state(*counts))
        self._teams = {(tuple(a), tuple(b)): BattleRecord.from_state(*counts) for a, b, *counts in state["teams"]}
        self._margins = {(low, high): (total, count) for low, high, total, count in state["margins"]}
        totals = state.get("totals")
        phases = state.get("team_phases", {}).items()
        if totals is None:  # an earlier version has kept decayed counts only: they are the games that are known
            totals = [
                [low, high, *record.counts(), *self._margins.get((low, high), (0.0, 0.0))]
                for (low, high), record in self._records.items()
                if record.games > NEGLIGIBLE
            ]
            active = [self.roster.players[index].player_id for index in self.roster.active()]
            phases = [(player, [t for t in self._teams if any(player in team for team in t)]) for player in active]
        self.totals.load_state_dict(totals, len(self.roster))
        self._team_phases = {
            player: {(tuple(home), tuple(away)): None for home, away in teams} for player, teams in phases if teams
        }
        self.ratings.load_state_dict(state["ratings"])

    def _count(self, home: tuple[str, ...], away: tuple[str, ...], rank: float, other: float) -> None:
        """Count one game between two sides."""
        if home == away:
            return
        decay = self.cfg.decay
        if len(home) > 1 or len(away) > 1:
            key, ranks = ((home, away), (rank, other)) if home < away else ((away, home), (other, rank))
            self._teams[key] = (self._teams.get(key, BattleRecord()) * decay).add(*ranks)
            for member in {*home, *away}:
                if self.roster.players[self.roster.index(member)].active:
                    self._team_phases.setdefault(member, {})[key] = None
        indices = [[self.roster.index(member) for member in side] for side in (home, away)]
        both = set(indices[0]) & set(indices[1])
        for index in indices[0]:
            for two in indices[1]:
                if index in both or two in both:
                    continue
                low, high, ranks = (index, two, (rank, other)) if index < two else (two, index, (other, rank))
                self._meet(low, high, (self._records.get((low, high), BattleRecord()) * decay).add(*ranks))
                self.totals.add(low, high, *ranks)

    def _score(self, home: tuple[str, ...], away: tuple[str, ...], margin: float) -> None:
        """Count the difference of two players' returns; teams of several have no margin."""
        if len(home) > 1 or len(away) > 1 or home == away:
            return
        home_index, away_index = self.roster.index(home[0]), self.roster.index(away[0])
        pair, margin = (
            ((home_index, away_index), margin) if home_index < away_index else ((away_index, home_index), -margin)
        )
        total, count = self._margins.get(pair, (0.0, 0.0))
        self._margins[pair] = total * self.cfg.decay + margin, count * self.cfg.decay + 1
        self.totals.add_margin(*pair, margin)

    def records(self) -> Iterator[tuple[str, str, BattleRecord, float | None]]:
        """Yield every pair that has met: both ids, the record from the first one's view, and its margin."""
        for (low, high), record in self._records.items():
            home, away = self.roster.players[low].player_id, self.roster.players[high].player_id
            total, count = self._margins.get((low, high), (0.0, 0.0))
            yield home, away, record, total / count if count else None

    def _meet(self, low: int, high: int, record: BattleRecord) -> None:
        """Set the record of two players that have just met."""
        self._records.pop((low, high), None)
        for home, away in ((low, high), (high, low)):
            self._met[home].pop(away, None)
            self._met[home][away] = None
        self._set(low, high, record)

    def _set(self, low: int, high: int, record: BattleRecord) -> None:
        self._records[low, high] = record
        for home, away in ((low, high), (high, low)):
            row = self._rows.get(home)
            if row is not None and away < len(row):
                view = record if home == low else record.reversed()
                row[away] = view.win_rate(self.cfg.min_win_rate_games)

    def _pair(self, home: int, away: int) -> BattleRecord:
        if home < away:
            return self._records.get((home, away), BattleRecord())
        return self._records.get((away, home), BattleRecord()).reversed()

    def _row(self, home: int) -> np.ndarray:
        """Return the win rates of a player against all players, by index; cached and updated with each game."""
        row = self._rows.get(home)
        if row is None or len(row) < len(self.roster):
            row = np.full(2 * len(self.roster), 0.5)
            for away in self._met[home]:
                row[away] = self._pair(home, away).win_rate(self.cfg.min_win_rate_games)
            if len(self._rows) >= MAX_ROWS:
                self._rows.pop(next(iter(self._rows)))
            self._rows[home] = row
        return row

    def _side(self, side: Side) -> tuple[str, ...]:
        members = (side,) if isinstance(side, str) else tuple(sorted(set(side)))
        for member in members:
            if member not in self.roster:
                ids = [player.player_id for player in self.roster.players]
                raise ConfigError(f"expected a player's id, found {member!r}{suggestion(member, ids)}")
        return members
