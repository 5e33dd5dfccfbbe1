"""All games of each two players, by the weights that played them."""

from collections.abc import Iterable, Iterator
from typing import Any

from arena.league.battle_record import BattleRecord

Entry = list[float]
"""Wins, draws, losses and games, then sum and number of margins, as the player with the lower index sees them."""


class GameTotals:
    """Games of each two players, named by index, without decay.

    A historical player has all games of its weights: those that it has played itself, and those that its parent played
    since the snapshot before. An active player has those since its last snapshot. So each game of two players is
    counted once.
    """

    def __init__(self) -> None:
        self._rows: list[dict[int, Entry]] = []  # of each player, by the other one; both rows share an entry

    def add_player(self) -> None:
        """Add the next player, without games."""
        self._rows.append({})

    def opponents(self, player: int) -> Iterable[int]:
        """Return the players with which a player has games."""
        return self._rows[player].keys()

    def add(self, low: int, high: int, rank: float, other_rank: float) -> None:
        """Add a game of two players, the lower index first; the lower rank wins."""
        entry = self._entry(low, high)
        entry[0] += rank < other_rank
        entry[1] += rank == other_rank
        entry[2] += rank > other_rank
        entry[3] += 1

    def add_margin(self, low: int, high: int, margin: float) -> None:
        """Add half the difference of the returns of a game, as the first player sees it."""
        entry = self._entry(low, high)
        entry[4] += margin
        entry[5] += 1

    def hand_over(self, player: int, snapshot: int) -> None:
        """Move all games of an active player to its new snapshot."""
        for other, entry in self._remove(player):
            sees_alike = (player < other) == (snapshot < other)
            self._set(snapshot, other, entry if sees_alike else _reversed(entry))

    def drop(self, player: int) -> None:
        """Remove all games of an active player: its weights are given up without a snapshot."""
        for _ in self._remove(player):
            pass

    def of(self, home: int, away: int) -> tuple[BattleRecord, float | None]:
        """Return the games of two players as the first one sees them, and their mean margin, None if unknown."""
        entry = self._rows[home].get(away)
        if entry is None:
            return BattleRecord(), None
        wins, draws, losses, games, margin, margins = entry if home < away else _reversed(entry)
        return BattleRecord(wins, draws, losses, games), margin / margins if margins else None

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Yield each two players with games, the lower index first."""
        for low, row in enumerate(self._rows):
            yield from ((low, high) for high in row if low < high)

    def state_dict(self) -> list[list[float]]:
        """Return all games as JSON values."""
        return [[low, high, *self._rows[low][high]] for low, high in sorted(self.pairs())]

    def load_state_dict(self, state: Iterable[list[Any]], players: int) -> None:
        """Continue from :meth:`state_dict`, with a number of players."""
        self._rows = [{} for _ in range(players)]
        for low, high, *entry in state:
            self._set(low, high, entry)

    def _entry(self, low: int, high: int) -> Entry:
        entry = self._rows[low].get(high)
        if entry is None:
            entry = [0, 0, 0, 0, 0.0, 0]
            self._set(low, high, entry)
        return entry

    def _set(self, first: int, second: int, entry: Entry) -> None:
        self._rows[first][second] = self._rows[second][first] = entry

    def _remove(self, player: int) -> Iterator[tuple[int, Entry]]:
        row, self._rows[player] = self._rows[player], {}
        for other, entry in row.items():
            del self._rows[other][player]
            yield other, entry


def _reversed(entry: Entry) -> Entry:
    """Return an entry as the other player sees it."""
    wins, draws, losses, games, margin, margins = entry
    return [losses, draws, wins, games, -margin, margins]
