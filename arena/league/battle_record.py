"""The record of one side against another, as decayed counts."""

from dataclasses import dataclass


@dataclass(frozen=True)
class BattleRecord:
    """Results of one side against another, as decayed counts.

    Attributes:
      wins: games won.
      draws: games drawn.
      losses: games lost.
      games: all games.
    """

    wins: float = 0.0
    draws: float = 0.0
    losses: float = 0.0
    games: float = 0.0

    def __mul__(self, decay: float) -> "BattleRecord":
        return BattleRecord(self.wins * decay, self.draws * decay, self.losses * decay, self.games * decay)

    __rmul__ = __mul__

    def add(self, rank: float, other_rank: float) -> "BattleRecord":
        """Return the record after one more game; the lower rank wins."""
        return BattleRecord(
            self.wins + (rank < other_rank),
            self.draws + (rank == other_rank),
            self.losses + (rank > other_rank),
            self.games + 1,
        )

    def counts(self) -> tuple[float, float, float, float]:
        """Return all four counts, in order."""
        return self.wins, self.draws, self.losses, self.games

    def reversed(self) -> "BattleRecord":
        """Return the same record from the other side's view."""
        return BattleRecord(self.losses, self.draws, self.wins, self.games)

    def win_rate(self, min_games: float) -> float:
        """Return ``(wins + draws / 2) / games``, 0.5 while there are fewer than ``min_games``."""
        return 0.5 if self.games < min_games or self.games == 0 else (self.wins + self.draws / 2) / self.games
