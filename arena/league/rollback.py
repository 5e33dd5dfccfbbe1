"""Rollback of a player that has got worse: it continues from the best of its own newest snapshots."""

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from arena.league.battle_payoff import BattleSharedPayoff
from arena.league.report import battle_report
from arena.league.settings import RollbackConfig


class OwnGames:
    """Results of a player's latest games against its own newest snapshots.

    Results are kept in their order rather than read from the payoff: a record there reaches back to before the player
    got worse.

    Attributes:
      below: share of the points below which the player has got worse.
    """

    def __init__(self, cfg: RollbackConfig, player_id: str, payoff: BattleSharedPayoff) -> None:
        self.below = cfg.below
        self._cfg, self._player, self._payoff = cfg, player_id, payoff
        self._points: deque[tuple[str, float]] = deque(maxlen=cfg.games)

    def newest(self) -> np.ndarray:
        """Return the indices of the player's newest snapshots, oldest first."""
        return self._payoff.roster.historical(parent=self._player)[-self._cfg.snapshots :]

    def count(self, job_info: Mapping[str, Any]) -> None:
        """Count the games of a valid report that the player played alone against one of its newest snapshots."""
        sides, games, _ = battle_report(job_info, self._payoff.roster)
        teams = [set(side) for side in sides]
        if {self._player} not in teams:
            return
        own = teams.index({self._player})
        snapshots = self._names()
        for ranks in games:
            for side, team in enumerate(teams):
                if len(team) == 1 and (name := min(team)) in snapshots:
                    self._points.append((name, 0.5 + 0.5 * float(np.sign(ranks[side] - ranks[own]))))

    @property
    def share(self) -> float | None:
        """Mean share of the points against a snapshot, draws as one half; None while there are too few games.

        Each snapshot counts as much as any other: matchmaking prefers those that the player loses to.
        """
        if len(self._points) < self._cfg.games:
            return None
        names = self._names()
        points: dict[str, list[float]] = {}
        for name, value in self._points:
            if name in names:
                points.setdefault(name, []).append(value)
        return float(np.mean([np.mean(values) for values in points.values()])) if points else None

    def best_snapshot(self) -> Any:
        """Return the snapshot to continue from, the best rated of the newest; None if the player is good enough."""
        share = self.share
        if share is None or share >= self._cfg.below:
            return None
        newest = self.newest()[::-1]  # of equal ratings the newest
        return self._payoff.roster.players[newest[np.argmax(self._payoff.ratings.mu(newest))]]

    def clear(self) -> None:
        """Drop all results: they were those of other weights."""
        self._points.clear()

    def state_dict(self) -> list[list[Any]]:
        """Return the results as JSON values."""
        return [[name, points] for name, points in self._points]

    def load_state_dict(self, state: list[list[Any]]) -> None:
        """Continue from :meth:`state_dict`."""
        self._points = deque(((name, points) for name, points in state), maxlen=self._cfg.games)

    def _names(self) -> set[str]:
        return {self._payoff.roster.players[index].player_id for index in self.newest()}
