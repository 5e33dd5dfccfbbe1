"""A league, or the matches of a table, as the page draws them: players, win rates, ratings and draws."""

import json
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from arena.common.colors import resolve
from arena.league.rating.intervals import win_rate_interval
from arena.page.series.buckets import TIME, Buckets
from arena.page.series.pairs import Pairs
from arena.records.readers.league import has_league
from arena.records.readers.run import read_concerns, read_players

CHUNK = 10_000
"""Rows of one reading."""

SHARE = 0.05
"""Largest share of this process's time that reading a league takes: a large one is read less often."""

RATING_POINTS = 256
"""Points of a player's rating curve."""

RECENT_JOBS = 500
"""Number of newest jobs that count as the current draws."""

PAIRS = """
    SELECT {table}.home, {table}.away, payoff.wins, payoff.draws, payoff.losses, payoff.games,
           coalesce(payoff_games, payoff.games), game_totals.wins, game_totals.draws, game_totals.losses,
           game_totals.games
    FROM {table} LEFT JOIN {other} USING (home, away)
    WHERE ({table}.home, {table}.away) > (?, ?) ORDER BY {table}.home, {table}.away LIMIT ?
"""
"""Games of each pair: as the league counts, with their effective number, and all. ``table`` has every pair."""


class LeagueReader:
    """Reads the league of one run, again when its records have changed.

    Attributes:
      version: number of the current result of ``read``.
    """

    def __init__(self) -> None:
        """Start before the first reading."""
        self.version = 0
        self._data_version = -1
        self._games = -1
        self._next = 0.0
        self._found: dict[str, Any] | None = None
        self._rating_rows = 0
        self._rated_since: float | None = None
        self._ratings: dict[str, tuple[float, float, int]] = {}  # newest mu, sigma and games of each player
        self._curves: dict[str, tuple[Buckets, Buckets]] = {}  # mu and sigma of each active player, by Unix time

    def read(self, connection: sqlite3.Connection, pairs: Pairs) -> dict[str, Any] | None:
        """Return the league as JSON values; None if no two players have met.

        Args:
          connection: the open records.
          pairs: games of each two players, as far as they have been read.

        Returns:
          ``kind`` (league or matches), ``players``, ``standing`` and ``totals`` (of a league: as it counts, and all
          games by the weights that played them), ``history``, ``ratings``, ``draws``, ``resets`` (player, steps, time),
          ``rollbacks`` (player, steps, time, snapshot) and ``concerns`` (player, text); pairs name players by their
          place in ``players``.
        """
        (data_version,) = connection.execute("PRAGMA data_version").fetchone()
        began = time.monotonic()
        if (data_version, pairs.games) == (self._data_version, self._games) or began < self._next:
            return self._found
        is_league = has_league(connection)
        if is_league:
            self._read_ratings(connection)
            players = _members(connection)
            for player in players:
                mu, sigma, games = self._ratings.get(player["name"], (None, None, 0))
                player |= {"mu": mu, "sigma": sigma, "games": games}
        else:
            players = _entrants(connection, pairs)
        places = {player["name"]: place for place, player in enumerate(players)}
        standing, totals = _pairs(connection, places) if is_league else (None, None)
        self._found = {
            "kind": "league" if is_league else "matches",
            "players": players,
            "standing": standing,
            "totals": totals,
            "history": _history(pairs, places),
            "ratings": list(self._rating_curves(places)),
            "concerns": list(map(list, read_concerns(connection))),
            "draws": _draws(connection, places) if is_league else [],
            "resets": list(map(list, connection.execute("SELECT player, steps, time FROM resets"))),
            "rollbacks": list(map(list, connection.execute("SELECT player, steps, time, snapshot FROM rollbacks"))),
        }
        if not players:
            self._found = None
        self.version += 1
        self._data_version, self._games = data_version, pairs.games
        self._next = began + (time.monotonic() - began) / SHARE
        return self._found

    def _read_ratings(self, connection: sqlite3.Connection) -> None:
        """Read the ratings that were recorded since the last time."""
        active = {name for (name,) in connection.execute("SELECT player FROM league_players WHERE active")}
        query = "SELECT rowid, time, player, games, mu, sigma FROM ratings WHERE rowid > ? ORDER BY rowid LIMIT ?"
        while rows := connection.execute(query, (self._rating_rows, CHUNK)).fetchall():
            self._rating_rows = rows[-1][0]
            began = self._rated_since = self._rated_since or rows[0][1]
            points: dict[str, list[tuple[float, float, float]]] = {}
            for _, at, player, games, mu, sigma in rows:
                self._ratings[player] = (mu, sigma, games)
                if player in active:
                    points.setdefault(player, []).append((at, mu, sigma))
            for player, own in points.items():
                at, mu, sigma = np.array(own).T
                if player not in self._curves:
                    self._curves[player] = (Buckets(RATING_POINTS), Buckets(RATING_POINTS))
                for buckets, values in zip(self._curves[player], (mu, sigma), strict=True):
                    buckets.add(np.maximum(at - began, 0.0), values, at)
            if len(rows) < CHUNK:
                break

    def _rating_curves(self, places: dict[str, int]) -> Iterator[dict[str, Any]]:
        for player, (mu, sigma) in self._curves.items():
            if player in places and len(mu):
                yield {
                    "player": player,
                    "time": mu.means(TIME),
                    "mu": mu.means().astype(np.float32),
                    "sigma": sigma.means().astype(np.float32),
                }


def _members(connection: sqlite3.Connection) -> list[dict[str, Any]]:
    """Return the players of a league in order of arrival."""
    colors = {name: info.color for name, info in read_players(connection).items()}
    names = ("name", "type", "category", "parent", "active", "steps", "created")
    query = "SELECT player, type, category, parent, active, steps, created FROM league_players ORDER BY created, player"
    members = [dict(zip(names, row, strict=True)) for row in connection.execute(query).fetchall()]
    chosen = resolve({member["name"]: colors.get(member["name"]) for member in members if member["active"]})
    for member in members:
        member["active"], member["color"] = bool(member["active"]), chosen.get(member["name"])
    return members


def _entrants(connection: sqlite3.Connection, pairs: Pairs) -> list[dict[str, Any]]:
    """Return the players of a table that have met another one, in the order of the configuration."""
    history = pairs.history()
    met = set(history.players) if history is not None else set()
    return [
        {"name": name, "type": info.use, "active": info.learns, "color": info.color, "parent": None}
        for name, info in read_players(connection).items()
        if name in met
    ]


def _pairs(
    connection: sqlite3.Connection, places: dict[str, int]
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return the games of each pair, as the league counts them and all of them."""
    (has_totals,) = connection.execute("SELECT EXISTS (SELECT 1 FROM game_totals)").fetchone()
    tables = ("game_totals", "payoff") if has_totals else ("payoff", "game_totals")  # the latter in an earlier version
    query = PAIRS.format(table=tables[0], other=tables[1])
    parts = []
    last = ("", "")
    while rows := connection.execute(query, (*last, CHUNK)).fetchall():
        last = rows[-1][:2]
        known = [(places.get(home, -1), places.get(away, -1), *counts) for home, away, *counts in rows]
        parts.append(np.array(known, np.float64))
        if len(rows) < CHUNK:
            break
    table = np.concatenate([*parts, np.empty((0, 11))])
    table = table[(table[:, :2] >= 0).all(axis=1)]
    counted = np.nan_to_num(table[:, 2:])  # a pair that one of the tables lacks has no games there
    return _columns(table[:, :2], counted[:, :5]), _columns(table[:, :2], counted[:, [5, 6, 7, 8, 8]])


def _columns(pairs: np.ndarray, counts: np.ndarray) -> dict[str, np.ndarray]:
    """Return the games of pairs: places, points of the first player, games, and the 95 % interval of its win rate.

    Args:
      pairs: places of two players ``[N, 2]``.
      counts: wins, draws, losses, games and their effective number ``[N, 5]``.
    """
    played = counts[:, 3] > 0
    (home, away), (wins, draws, losses, games, effective) = pairs[played].T, counts[played].T
    low, high = win_rate_interval(wins, draws, losses, effective)
    return {
        "home": home.astype(np.uint16),
        "away": away.astype(np.uint16),
        "won": (wins + draws / 2).astype(np.float32),
        "games": games.astype(np.float32),
        "low": low.astype(np.float32),
        "high": high.astype(np.float32),
    }


def _history(pairs: Pairs, places: dict[str, int]) -> dict[str, Any] | None:
    """Return the games of each pair in each slice of time; games of players that no longer exist are dropped."""
    found = pairs.history()
    if found is None:
        return None
    place = np.array([places.get(name, -1) for name in found.players])
    home, away = place[found.pairs[found.pair]].T
    known = (home >= 0) & (away >= 0)
    return {
        "start": found.start,
        "width": found.width,
        "home": home[known].astype(np.uint16),
        "away": away[known].astype(np.uint16),
        "slice": found.slice[known].astype(np.uint8),
        "won": (found.sums[known, 0] + found.sums[known, 1] / 2).astype(np.float32),
        "games": found.sums[known, 2].astype(np.float32),
    }


def _draws(connection: sqlite3.Connection, places: dict[str, int]) -> list[tuple[str, str, int]]:
    """Return (player, opponent, number of jobs) of the newest jobs."""
    counts: Counter[tuple[str, str]] = Counter()
    rows = connection.execute("SELECT job FROM jobs ORDER BY id DESC LIMIT ?", (RECENT_JOBS,)).fetchall()
    for (text,) in rows:
        try:
            job = json.loads(text)
            player, sides = job["launch_player"], job["sides"]
            opponents = {name for side in sides for name in side if player not in side} or {player}
        except (ValueError, LookupError, TypeError):
            continue  # of a manager with jobs of its own form
        counts.update((player, name) for name in opponents if player in places and name in places)
    return [(*pair, count) for pair, count in counts.most_common()]
