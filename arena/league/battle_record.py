"""The record of one side against another, as decayed counts."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class BattleRecord:
    """Results of one side against another, as decayed counts.

    Attributes:
      wins: games won.
      draws: games drawn.
      losses: games lost.
      games: all games.
      squares: sum of the squared weights of the games, which decay with the counts.
    """

    wins: float = 0.0
    draws: float = 0.0
    losses: float = 0.0
    games: float = 0.0
    squares: float = field(default=0.0, compare=False)

    @property
    def effective_games(self) -> float:
        """Number of games of one weight with the same uncertainty (Kish, "Survey sampling", 1965)."""
        return self.games**2 / self.squares if self.squares else self.games

    def __mul__(self, decay: float) -> "BattleRecord":
        return BattleRecord(
            self.wins * decay, self.draws * decay, self.losses * decay, self.games * decay, self.squares * decay**2
        )

    __rmul__ = __mul__

    def add(self, rank: float, other_rank: float) -> "BattleRecord":
        """Return the record after one more game; the lower rank wins."""
        return BattleRecord(
            self.wins + (rank < other_rank),
            self.draws + (rank == other_rank),
            self.losses + (rank > other_rank),
            self.games + 1,
            self.squares + 1,
        )

    def counts(self) -> tuple[float, float, float, float]:
        """Return all four counts, in order."""
        return self.wins, self.draws, self.losses, self.games

    def state(self) -> tuple[float, ...]:
        """Return all fields, in order."""
        return *self.counts(), self.squares

    @classmethod
    def from_state(
        cls, wins: float, draws: float, losses: float, games: float, squares: float | None = None
    ) -> "BattleRecord":
        """Return the record of :meth:`state`; an earlier version has no squares: each game counts as one."""
        return cls(wins, draws, losses, games, games if squares is None else squares)

    def reversed(self) -> "BattleRecord":
        """Return the same record from the other side's view."""
        return BattleRecord(self.losses, self.draws, self.wins, self.games, self.squares)

    def win_rate(self, min_games: float) -> float:
        """Return ``(wins + draws / 2) / games``, 0.5 while there are fewer than ``min_games``."""
        return 0.5 if self.games < min_games or self.games == 0 else (self.wins + self.draws / 2) / self.games
