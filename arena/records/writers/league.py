"""Writer of a league's players, jobs, payoff and ratings to tables that may be read meanwhile."""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

from arena.common.waiting import Pacer
from arena.records.database import Database

WRITE_EVERY = 2.0
"""Seconds between two updates of the standing."""


class LeagueRecords:
    """Writes changes at intervals; only the root process has one.

    Attributes:
      games: number of counted episodes of each player.
    """

    def __init__(
        self, database: Database, attempt: int, on_restart: Callable[[str], object] = lambda player: None
    ) -> None:
        """Prepare to write into an open database, for one attempt of the run.

        Args:
          database: the open database.
          attempt: number of the attempt.
          on_restart: called with a player that has got other weights.
        """
        self._database, self._attempt, self._on_restart = database, attempt, on_restart
        self._pacer = Pacer(WRITE_EVERY)
        self._known: dict[str, int] = {}  # player -> steps as written
        self._created: dict[str, float] = {}  # player -> Unix time at which an earlier attempt has written it first
        self._pairs: set[tuple[str, str]] = set()
        self.games: dict[str, int] = {}
        self._changed: set[str] = set()

    def begin(self, league: Any, games: Mapping[str, int]) -> None:
        """Write the whole standing; remove rows of an earlier attempt beyond its checkpoint.

        Args:
          league: manager of the league.
          games: number of games of each player so far.
        """
        self.games = dict(games)
        roster = league.payoff.roster
        created = self._database.rows("SELECT player, created FROM league_players")
        self._created = {player: float(at) for player, at in created if player in roster}
        for table in ("league_players", "payoff", "game_totals"):
            self._database.add(f"DELETE FROM {table}", ())
        self._database.add("DELETE FROM jobs WHERE ended IS NULL", ())
        for player in league.active_players:
            for table in ("resets", "rollbacks"):
                row = (player.player_id, max(player.total_agent_step, player.last_enough_step))
                self._database.add(f"DELETE FROM {table} WHERE player = ? AND steps > ?", row)
        self._known = {}
        self._changed = {player.player_id for player in roster.players}
        if hasattr(league.payoff, "records"):
            self._pairs = {_pair(home, away) for home, away, *_ in league.payoff.records()}
            names = [player.player_id for player in roster.players]
            self._pairs.update(_pair(names[low], names[high]) for low, high in league.payoff.totals.pairs())
        self.update(league, force=True)

    def met(self, casts: Iterable[Sequence[str]]) -> None:
        """Record the pairs that have played."""
        for players in casts:
            present = sorted(set(players))
            self._changed.update(present)
            self._pairs.update(combinations(present, 2))
            for player in present:
                self.games[player] = self.games.get(player, 0) + 1

    def changed(self, league: Any, player: str) -> None:
        """Record that all records of a player may have changed: it was reset or rolled back."""
        self._changed.add(player)
        if hasattr(league.payoff, "met"):
            self._pairs.update(_pair(player, other) for other in league.payoff.met(player))

    def frozen(self, league: Any, snapshot: Any) -> None:
        """Record that a snapshot has taken over games of its parent."""
        if not hasattr(league.payoff, "totals"):
            return
        roster = league.payoff.roster
        for index in league.payoff.totals.opponents(roster.index(snapshot.player_id)):
            other = roster.players[index].player_id
            self._pairs.update(_pair(player, other) for player in (snapshot.player_id, snapshot.parent_id))

    def restarted(self, player: str, steps: int, snapshot: str | None) -> None:
        """Record that a player has loaded the weights of its reset, or of the snapshot that it is rolled back to.

        Args:
          player: the player.
          steps: its transition steps.
          snapshot: id of the snapshot; None for its first weights.
        """
        self._on_restart(player)
        row = (self._attempt, time.time(), player, steps)
        if snapshot is None:
            self._database.add("INSERT INTO resets VALUES (?, ?, ?, ?)", row)
        else:
            self._database.add("INSERT INTO rollbacks VALUES (?, ?, ?, ?, ?)", (*row, snapshot))

    def update(self, league: Any, *, force: bool = False) -> None:
        """Write the changes since the last call."""
        if not force and not self._pacer.due():
            return
        now = time.time()
        payoff = league.payoff
        for player in payoff.roster.players:
            if self._known.get(player.player_id) != player.total_agent_step:
                self._known[player.player_id] = player.total_agent_step
                self._changed.add(player.player_id)
                parent = None if player.active else player.parent_id
                row = (player.player_id, player.origin.__name__, player.category, parent, player.active)
                created = self._created.get(player.player_id, now)
                self._database.add(
                    "INSERT INTO league_players VALUES (?, ?, ?, ?, ?, ?, ?, ?) "
                    "ON CONFLICT (player) DO UPDATE SET steps = excluded.steps",
                    (*row, player.total_agent_step, player.checkpoint_path, created),
                )
        if hasattr(payoff, "record"):
            self._write_battles(payoff, now)
        self._changed.clear()
        self._pairs.clear()

    def _write_battles(self, payoff: Any, now: float) -> None:
        known = payoff.roster
        for home, away in self._pairs:
            if home not in known or away not in known:
                continue
            record = payoff.record(home, away)
            row: tuple[Any, ...] = (home, away, *record.counts(), payoff.margin(home, away))
            self._database.add("INSERT OR REPLACE INTO payoff VALUES (?, ?, ?, ?, ?, ?, ?)", row)
            total, margin = payoff.totals.of(known.index(home), known.index(away))
            row = (home, away, *total.counts(), margin, record.effective_games)
            self._database.add("INSERT OR REPLACE INTO game_totals VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
        for player in sorted(self._changed):
            if player in known:
                rating = payoff.ratings[player]
                steps = known.players[known.index(player)].total_agent_step
                row = (now, player, steps, self.games.get(player, 0), *rating)
                self._database.add("INSERT INTO ratings VALUES (?, ?, ?, ?, ?, ?, ?)", row)

    def job_began(self, job: dict[str, Any], match: int) -> None:
        """Record the launch of a job."""
        row = (job["job_id"], self._attempt, match, time.time(), json.dumps(job))
        self._database.add("INSERT OR REPLACE INTO jobs VALUES (?, ?, ?, ?, NULL, ?, NULL)", row)

    def job_ended(self, job_id: int, results: int) -> None:
        """Record the end of a job, and its number of counted episodes."""
        row = (time.time(), json.dumps({"episodes": results}), job_id)
        self._database.add("UPDATE jobs SET ended = ?, result = ? WHERE id = ?", row)


def _pair(first: str, second: str) -> tuple[str, str]:
    """Return two players in the order of their row: each pair has one."""
    return min(first, second), max(first, second)
