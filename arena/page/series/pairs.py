"""Games of each two players over time: win rates now and at any moment of the run."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

MAX_SLICES = 64
"""Largest number of slices of time."""

MAX_ENTRIES = 1 << 17
"""Largest number of entries, a pair in a slice, as long as there are at least two slices."""

MAX_PENDING = 500_000
"""Games that wait in memory until they are counted together."""

SUMS = 3
"""Columns of an entry: games won by the first player, games drawn, all games."""


class History(NamedTuple):
    """Games of each pair in each slice of time.

    Attributes:
      players: names.
      pairs: ``[P, 2]``, places of the two players of each pair among them.
      pair: ``[K]``, the pair of each entry.
      slice: ``[K]``, its slice of time, from 0.
      sums: ``[K, SUMS]``.
      start: Unix time at which slice 0 begins.
      width: seconds of a slice.
    """

    players: list[str]
    pairs: np.ndarray
    pair: np.ndarray
    slice: np.ndarray
    sums: np.ndarray
    start: float
    width: int


class Pairs:
    """Counts games in slices of time; their width doubles when there would be too many of them.

    Attributes:
      games: number of games that were added.
    """

    def __init__(self) -> None:
        """Start without games."""
        self.games = 0
        self._width = 1
        self._players: dict[str, int] = {}
        self._pairs: dict[tuple[int, int], int] = {}
        self._keys = np.empty(0, np.int64)  # pair << 32 | time // width, sorted
        self._sums = np.empty((0, SUMS))
        self._pending: list[tuple[np.ndarray, np.ndarray]] = []
        self._waiting = 0

    def add(
        self,
        names: list[str],
        player: np.ndarray,
        episode: np.ndarray,
        time: np.ndarray,
        score: np.ndarray,
        total: np.ndarray,
    ) -> None:
        """Add the results of some episodes, with all of their rows; all arrays are ``[M]``.

        Args:
          names: names of players.
          player: for each row its player, a place among the names.
          episode: number of the episode; a player has one row in each.
          time: Unix time.
          score: outcome, the higher one wins; NaN if unknown.
          total: return, which decides where an outcome is unknown.
        """
        numbers = np.array([self._players.setdefault(name, len(self._players)) for name in names])
        order = np.lexsort((player, episode))
        player, episode, time = numbers[player[order]], episode[order], time[order]
        score, total = score[order], total[order]
        most = int(np.unique(episode, return_counts=True)[1].max(initial=0))
        for away in range(1, most):
            at = np.flatnonzero((episode[away:] == episode[:-away]) & np.isfinite(time[away:]))
            self._add_games(player[at], player[at + away], time[at], _sign(score, total, at, at + away))

    def _add_games(self, first: np.ndarray, second: np.ndarray, time: np.ndarray, sign: np.ndarray) -> None:
        if not len(first):
            return
        swapped = first > second
        low, high = np.where(swapped, second, first), np.where(swapped, first, second)
        both, place = np.unique(low << 32 | high, return_inverse=True)
        numbers = np.array(
            [self._pairs.setdefault((int(pair >> 32), int(pair & 0xFFFFFFFF)), len(self._pairs)) for pair in both]
        )
        result = np.where(swapped, -sign, sign)
        sums = np.stack([result > 0, result == 0, np.ones(len(result))], axis=1).astype(np.float64)
        self._pending.append((numbers[place] << 32 | time.astype(np.int64) // self._width, sums))
        self._waiting += len(sums)
        self.games += len(sums)
        if self._waiting > MAX_PENDING:
            self._count()

    def _count(self) -> None:
        """Count the games that wait."""
        if not self._pending:
            return
        self._set(
            np.concatenate([self._keys, *(keys for keys, _ in self._pending)]),
            np.concatenate([self._sums, *(sums for _, sums in self._pending)]),
        )
        self._pending, self._waiting = [], 0
        while self._is_too_fine():
            self._width *= 2
            self._set(self._keys >> 32 << 32 | (self._keys & 0xFFFFFFFF) >> 1, self._sums)

    def _set(self, keys: np.ndarray, sums: np.ndarray) -> None:
        """Sort entries, and add those of the same key."""
        order = np.argsort(keys, kind="stable")
        keys, sums = keys[order], sums[order]
        starts = np.flatnonzero(np.diff(keys, prepend=-1))
        self._keys, self._sums = keys[starts], np.add.reduceat(sums, starts, axis=0)

    def _is_too_fine(self) -> bool:
        slices = self._keys & 0xFFFFFFFF
        count = int(slices.max() - slices.min()) + 1
        return count > MAX_SLICES or (count > 1 and len(self._keys) > MAX_ENTRIES)

    def history(self) -> History | None:
        """Return all games; None if there are none."""
        self._count()
        if not len(self._keys):
            return None
        slices = self._keys & 0xFFFFFFFF
        start = int(slices.min())
        pairs = np.array(list(self._pairs))
        return History(
            list(self._players),
            pairs,
            self._keys >> 32,
            slices - start,
            self._sums,
            float(start * self._width),
            self._width,
        )

    def state(self) -> tuple[dict[str, list], dict[str, np.ndarray]]:
        """Return the state: names and numbers for JSON, and arrays."""
        self._count()
        text: dict[str, list] = {
            "players": list(self._players),
            "pairs": [list(pair) for pair in self._pairs],
            "width": [self._width],
        }
        return text, {"keys": self._keys, "sums": self._sums}

    @classmethod
    def restored(cls, text: Mapping[str, list], arrays: Mapping[str, np.ndarray]) -> "Pairs":
        """Return the pairs of a result of ``state``."""
        pairs = cls()
        pairs._players = {name: place for place, name in enumerate(text["players"])}
        pairs._pairs = {(low, high): number for number, (low, high) in enumerate(text["pairs"])}
        (pairs._width,) = text["width"]
        pairs._keys, pairs._sums = arrays["keys"], arrays["sums"]
        pairs.games = int(pairs._sums[:, -1].sum())
        return pairs


def _sign(score: np.ndarray, total: np.ndarray, here: np.ndarray, there: np.ndarray) -> np.ndarray:
    """Return 1 where the first row wins, -1 where the second one does, and 0 for a draw."""
    by_score, by_return = score[here] - score[there], total[here] - total[there]
    return np.sign(np.nan_to_num(np.where(np.isfinite(by_score), by_score, by_return)))
