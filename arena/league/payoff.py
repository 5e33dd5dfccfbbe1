"""Payoffs: win rates between players of battles, and the latest results of a solo player."""

import logging
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from arena.common.errors import ConfigError
from arena.common.text import suggestion
from arena.league.battle_record import BattleRecord
from arena.league.ratings import Ratings
from arena.league.report import InvalidReport, battle_report, solo_report
from arena.league.roster import Roster
from arena.league.settings import BattlePayoffConfig, SoloPayoffConfig, checked

logger = logging.getLogger(__name__)

# Number of cached rows of win rates: one per player that chooses opponents, 80 kB each among 10,000 players.
MAX_ROWS = 512

Side = str | tuple[str, ...]  # a player, or a team


class BattleSharedPayoff:
    """One record per unordered pair of players, and of teams, shared by all players.

    A game between sides is one game for every two players that meet across it. If a side is a mixed team, it is also
    one game of the team (a tuple of ids). A side of one player in several places is that player. A player on both sides
    wins and loses, which is not counted as a game of its own.
    """

    def __init__(self, cfg: BattlePayoffConfig | None = None) -> None:
        self.cfg = cfg or BattlePayoffConfig()
        self.roster = Roster()
        self.ratings = Ratings(self.roster, self.cfg.ratings)
        self.games = 0
        """Number of games counted so far, not decayed."""
        self._records: dict[tuple[int, int], BattleRecord] = {}  # lower index first; the pair that met last comes last
        self._met: list[dict[int, None]] = []  # by player: the players that it has met, in the same order
        self._teams: dict[tuple[tuple[str, ...], tuple[str, ...]], BattleRecord] = {}
        self._margins: dict[tuple[int, int], tuple[float, float]] = {}  # sum and count, from the lower index's view
        self._rows: dict[int, np.ndarray] = {}

    def add_player(self, player: Any) -> None:
        """Add a player.

        Raises:
          ConfigError: its id is taken.
        """
        self.roster.add(player)
        self._met.append({})

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
          others: indices of the other players.
          limit: largest number of them; None for all.
        """
        index, among, met = self.roster.index(home), set(others.tolist()), list[int]()
        needed = max(self.cfg.min_win_rate_games, 1)
        for other in reversed(self._met[index]):
            if len(met) == limit:
                break
            if other in among and self._pair(index, other).games >= needed:
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

    def reset(self, player_id: str) -> None:
        """Apply a reset of a player's weights: its records fade by ``reset_keep``, and its rating is reset.

        The results of its old weights are little evidence about the new ones.
        """
        self._fade(player_id, self.cfg.reset_keep)
        self.ratings.reset(player_id)

    def roll_back(self, player_id: str, snapshot_id: str) -> None:
        """Apply a rollback of a player to a snapshot: the snapshot's records and rating become its own."""
        self._fade(player_id, 0.0)
        index, source = self.roster.index(player_id), self.roster.index(snapshot_id)
        for other in [other for other in self._met[source] if other != index]:
            record = self._pair(source, other)
            pair = min(index, other), max(index, other)
            self._meet(*pair, record if index < other else record.reversed())
            total, count = self._margins.get((min(source, other), max(source, other)), (0.0, 0.0))
            if count:
                same_view = (source < other) == (index < other)
                self._margins[pair] = total if same_view else -total, count
        self.ratings.inherit(player_id, snapshot_id)

    def _fade(self, player_id: str, keep: float) -> None:
        """Multiply all records of a player by a factor."""
        index = self.roster.index(player_id)
        for other in self._met[index]:
            pair = min(index, other), max(index, other)
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
            "records": [[*pair, *record.counts()] for pair, record in self._records.items()],
            "teams": [[list(a), list(b), *record.counts()] for (a, b), record in self._teams.items()],
            "margins": [[*pair, *margin] for pair, margin in self._margins.items()],
            "ratings": self.ratings.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from :meth:`state_dict`.

        Raises:
          ConfigError: the players, or their order, differ.
        """
        same_players(self.roster, state)
        self.games = state["games"]
        self._rows, self._records = {}, {}
        self._met = [{} for _ in self.roster.players]
        for low, high, *counts in state["records"]:
            self._meet(low, high, BattleRecord(*counts))
        self._teams = {(tuple(a), tuple(b)): BattleRecord(*counts) for a, b, *counts in state["teams"]}
        self._margins = {(low, high): (total, count) for low, high, total, count in state["margins"]}
        self.ratings.load_state_dict(state["ratings"])

    def _count(self, home: tuple[str, ...], away: tuple[str, ...], rank: float, other: float) -> None:
        """Count one game between two sides."""
        if home == away:
            return
        decay = self.cfg.decay
        if len(home) > 1 or len(away) > 1:
            key, ranks = ((home, away), (rank, other)) if home < away else ((away, home), (other, rank))
            self._teams[key] = (self._teams.get(key, BattleRecord()) * decay).add(*ranks)
        indices = [[self.roster.index(member) for member in side] for side in (home, away)]
        both = set(indices[0]) & set(indices[1])
        for index in indices[0]:
            for two in indices[1]:
                if index in both or two in both:
                    continue
                low, high, ranks = (index, two, (rank, other)) if index < two else (two, index, (other, rank))
                self._meet(low, high, (self._records.get((low, high), BattleRecord()) * decay).add(*ranks))

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


class SoloSharedPayoff:
    """The latest results of the one active player."""

    def __init__(self, cfg: SoloPayoffConfig | None = None) -> None:
        self.cfg = cfg or SoloPayoffConfig()
        self.roster = Roster()
        self._results: deque[float] = deque(maxlen=self.cfg.buffer_size)

    @property
    def results(self) -> Sequence[float]:
        """The latest results, oldest first."""
        return tuple(self._results)

    def add_player(self, player: Any) -> None:
        """Add the active player, or a snapshot of it.

        Raises:
          ConfigError: there is an active player already.
        """
        if player.active and len(self.roster.active()):
            raise ConfigError(f"a solo payoff has one active player; found {player.player_id!r} as a second")
        self.roster.add(player)

    def update(self, job_info: Mapping[str, Any]) -> bool:
        """Record a finished job's results, all or none; return whether they were recorded."""
        try:
            results = solo_report(job_info)
            launched = job_info.get("launch_player")
            if not isinstance(launched, str) or launched not in self.roster:
                raise InvalidReport(f"expected the active player's id as launch_player, found {launched!r}")
            if not self.roster.players[self.roster.index(launched)].active:
                raise InvalidReport(f"expected the active player's id as launch_player, found {launched!r}")
        except InvalidReport as error:
            logger.warning("a result was refused: %s", error)
            return False
        self._results.extend(results)
        return True

    def reset(self, player_id: str) -> None:
        """Remove the results: the player's weights were reset."""
        self._results.clear()

    def state_dict(self) -> dict[str, Any]:
        """Return the results as JSON values."""
        return {"players": [player.player_id for player in self.roster.players], "results": list(self._results)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from :meth:`state_dict`.

        Raises:
          ConfigError: the players, or their order, differ.
        """
        same_players(self.roster, state)
        self._results = deque(state["results"], maxlen=self.cfg.buffer_size)


SharedPayoff = BattleSharedPayoff | SoloSharedPayoff

PAYOFFS: dict[str, type[BattlePayoffConfig] | type[SoloPayoffConfig]] = {
    "battle": BattlePayoffConfig,
    "solo": SoloPayoffConfig,
}


def create_payoff(cfg: BattlePayoffConfig | SoloPayoffConfig | Mapping[str, Any]) -> SharedPayoff:
    """Return the payoff that ``cfg.type`` names (default: battle).

    Raises:
      ConfigError: there is no such type, or a setting is invalid.
    """
    if isinstance(cfg, Mapping):
        name = cfg.get("type", "battle")
        if name not in PAYOFFS:
            raise ConfigError(
                f"payoff.type: expected one of {', '.join(PAYOFFS)}, found {name!r}{suggestion(name, PAYOFFS)}"
            )
        cfg = checked(PAYOFFS[name], cfg, "payoff")
    return SoloSharedPayoff(cfg) if isinstance(cfg, SoloPayoffConfig) else BattleSharedPayoff(cfg)


def same_players(roster: Roster, state: Mapping[str, Any]) -> None:
    """Check that ``state`` was saved with the players of ``roster``; raise a ConfigError if not."""
    ids = [player.player_id for player in roster.players]
    if state["players"] != ids:
        other = next(
            (id_ for id_ in (*ids, *state["players"]) if (id_ in ids) != (id_ in state["players"])), "the order"
        )
        raise ConfigError(
            f"the saved league has {len(state['players'])} players, this one {len(ids)}, and they differ in {other!r}; "
            f"resume with the configuration that the league was saved with"
        )
