"""The games of an external match: their players, and reports of the finished ones to the root."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from arena.environment.episodes.job_queue import JobQueue, Lineup
from arena.protocol.messages import Episode, Episodes


class Game:
    """One game: from the first action of an agent until all that have acted have ended.

    Attributes:
      number: index of the game in the match.
      lineup: line-up, in a league.
      players: the player of each entity.
      returns, lengths, outcomes, acted, ended, cut: by entity.
      moves: exchanges in which an entity has acted.
    """

    def __init__(self, number: int, players: Sequence[str], lineup: Lineup | None) -> None:
        """Begin the game."""
        count = len(players)
        self.number, self.lineup, self.players = number, lineup, tuple(players)
        self.began, self.moves = time.time(), 0
        self.returns, self.lengths = [0.0] * count, [0] * count
        self.outcomes: list[Any] = [None] * count
        self.acted, self.ended, self.cut = [False] * count, [False] * count, [False] * count

    @property
    def over(self) -> bool:
        """Return whether all entities that have acted have ended."""
        return any(self.acted) and all(ended or not acted for ended, acted in zip(self.ended, self.acted, strict=True))


class Games:
    """The running game of each copy.

    Attributes:
      number: number of games that have begun.
    """

    def __init__(
        self,
        match: int,
        players: Sequence[str],
        job_queue: JobQueue | None,
        post: Callable[[Episodes], None],
    ) -> None:
        """Begin no game yet.

        Args:
          match: index of the match.
          players: player of each entity, without a league.
          job_queue: jobs of a league.
          post: sends a message to the root.
        """
        self._match, self._players, self._job_queue, self._post = match, tuple(players), job_queue, post
        self._running: dict[int, Game] = {}
        self._lineups: dict[int, Lineup] = {}  # of games with a line-up that has not been sent yet
        self._taken: dict[str, int] = dict.fromkeys(players, 0)
        self._over: list[Episode] = []
        self._moves = self._told = 0
        self.number = 0

    @property
    def jobs(self) -> JobQueue | None:
        """Jobs of a league; None in a table."""
        return self._job_queue

    def of(self, copy: int) -> Game:
        """Return the running game of a copy, or begin its next one.

        Raises:
          LookupError: the league leaves this copy idle.
        """
        game = self._running.get(copy)
        if game is None:
            lineup = None
            if self._job_queue is not None:
                lineup = self._job_queue.next(copy)
                if lineup is None:
                    raise LookupError(f"the league leaves copy {copy} idle")
            self.number += 1
            game = Game(self.number, self._players if lineup is None else lineup.players, lineup)
            self._running[copy] = game
            if lineup is not None:
                self._lineups[self.number] = lineup
        return game

    def next(self, copy: int, agent: str) -> Game:
        """Begin the next game of a copy, as an agent acts after the end of its episode while others play on.

        Raises:
          ValueError: a league assigns the players of a whole game.
        """
        if self._job_queue is not None:
            raise ValueError(f"in a league a game ends for all: agent {agent!r} has ended, and others play on")
        self.finish(copy, None)
        return self.of(copy)

    def player(self, copy: int, entity: int) -> str:
        """Return the player of an entity in the running game of a copy, or in its next one."""
        game = self._running.get(copy)
        return self._players[entity] if game is None else game.players[entity]

    def player_of_seat(self, entity: int) -> str:
        """Return the player of the seat of an entity: in a league its worker may act for others."""
        return self._players[entity]

    def add_reward(self, copy: int, entity: int, value: float) -> None:
        """Add to the return of an entity."""
        game = self._running.get(copy)
        if game is not None:
            game.returns[entity] += value

    def lineup(self, number: int) -> Lineup | None:
        """Return the line-up of a game, once: for its first row."""
        return self._lineups.pop(number, None)

    def act(self, copy: int, entity: int, actions: int = 1) -> None:
        """Count actions."""
        game = self.of(copy)
        game.acted[entity] = True
        game.lengths[entity] += actions
        self._taken[game.players[entity]] = self._taken.get(game.players[entity], 0) + actions

    def roll_back(self, copy: int, entity: int) -> None:
        """Remove an action from the count: it was not carried out."""
        game = self._running.get(copy)
        if game is not None and game.lengths[entity]:
            game.lengths[entity] -= 1
            self._taken[game.players[entity]] -= 1

    def count_moves(self, copies: Iterable[int]) -> None:
        """Count an exchange in which entities have acted in some copies."""
        for copy in copies:
            game = self._running.get(copy)
            if game is not None:
                game.moves += 1
                self._moves += 1

    def end(self, copy: int, entity: int, *, cut: bool, outcome: Any) -> None:
        """Record that the episode of an entity is over; with the last one the game is."""
        game = self._running.get(copy)
        if game is None or not game.acted[entity]:
            return
        game.ended[entity], game.cut[entity], game.outcomes[entity] = True, cut, outcome
        if game.over:
            self.finish(copy, None)

    def finish(self, copy: int, cause: str | None) -> None:
        """Record that the game of a copy is over; ``cause`` is the reason of a truncation from outside the game."""
        game = self._running.pop(copy, None)
        if game is None or not any(game.acted):
            return
        now = time.time()
        lineup = game.lineup
        cut = [c or not ended for c, ended, acted in zip(game.cut, game.ended, game.acted, strict=True) if acted]
        self._over.append(
            Episode(
                match=self._match,
                copy=copy,
                length=max(game.moves, *game.lengths),
                seconds=now - game.began,
                players=game.players,
                returns=tuple(game.returns),
                lengths=tuple(game.lengths),
                outcomes=tuple(game.outcomes),
                truncated=cause is not None or all(cut),
                cause=cause,
                ended_at=now,
                job=lineup.job.id if lineup is not None and lineup.job is not None and lineup.counts else None,
                sides=() if lineup is None else lineup.sides,
                steps=self._steps(),
            )
        )
        if self._job_queue is not None and lineup is not None and self._job_queue.finish(lineup):
            self.report()  # without delay: the root holds the next job of this match

    def _steps(self) -> Mapping[str, int]:
        """Return the transition steps of each player in the match so far."""
        return {player: steps for player, steps in self._taken.items() if player in self._players}

    def report(self) -> None:
        """Report finished games and steps to the root."""
        if self._over or self._moves > self._told:
            self._post(Episodes(self._match, tuple(self._over), self._moves - self._told))
            self._over, self._told = [], self._moves
