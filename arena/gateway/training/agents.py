"""Agents whose actions are learned from: what they see and earn goes to the workers on the seats of the match."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from arena.envs.interface import EntitySpaces
from arena.gateway.actors.agent import Agent, Agents, CheckedObservation
from arena.gateway.answers import Refusal
from arena.gateway.batcher import ForwardResult
from arena.gateway.training.exchange import Exchange, Row
from arena.gateway.training.games import Games
from arena.gateway.training.remote_agents import RemoteBuffer, RemoteLink
from arena.gateway.values import RowReader, mask_reader


class LearningSpaces:
    """What an entity sees and does, as agents need it: in the place of a loaded model.

    Attributes:
      name: of the entity.
      users: how many agents of open games there are.
      read_observation, read_mask: see ``Model``.
    """

    def __init__(self, entity: EntitySpaces, exchange: Exchange, number: int) -> None:
        """Prepare to read; ``number`` is the entity's in the match."""
        self.name, self.users = entity.name, 0
        self.read_observation = RowReader(entity.observation, "observation")
        self.read_mask = mask_reader(entity.action, "action_mask") if entity.mask_size else None
        self._exchange, self._number = exchange, number

    @property
    def version(self) -> str:
        """How far the policy had learned that has acted last, in transition steps."""
        return self._exchange.versions[self._number]


class LearningAgent(Agent):
    """An agent of a game outside, for as long as its session lasts.

    What a call of the actor has done is kept until the call has gone well: where it fails, the client sends the same
    request again, and nothing may count twice.
    """

    learning = True

    def __init__(self, spaces: LearningSpaces, entity: int, copy: int, exchange: Exchange, games: Games) -> None:
        """Seat the agent.

        Args:
          spaces: what it sees and does.
          entity: its number in the match.
          copy: number of the session's place.
          exchange: the way to the workers.
          games: of the match.
        """
        super().__init__(spaces.name, spaces)
        self._entity, self._copy, self._exchange, self._games = entity, copy, exchange, games
        self._game = 0  # number of the game in which it has acted last
        self._earned = 0.0  # since the last row
        self._withdrawn = False  # whether the next row takes the last action back
        self._rows: list[Row] = []  # of the call that is under way: those in which it acts
        self._earned_in_call = 0.0  # since the last end of an episode in it
        self._ended_in_call = self._ends_again = False

    @property
    def player(self) -> str:
        """Name of the player that acts for the agent."""
        return self._games.player(self._copy, self._entity)

    @property
    def version(self) -> str:
        """See ``Agent``; an opponent that a league has chosen was frozen after the steps in its name."""
        player = self.player
        if player == self._games.player_of_seat(self._entity):
            return super().version
        steps = player.rpartition("_")[2]
        return steps if steps.isdecimal() else "0"

    def ask(self, seen: CheckedObservation) -> "asyncio.Future[ForwardResult]":
        """See ``Agent``."""
        try:
            game = self._games.of(self._copy)
        except LookupError as error:
            raise Refusal(503, "full", f"{error}; try again", (b"retry-after", b"1")) from None
        if game.ended[self._entity]:  # while others play on: what comes now is of another game
            game = self._games.next(self._copy, self.name)
        if self._fresh:
            self.episode_return = 0.0
        row = Row(game.number, seen.observation, seen.mask)
        row.acting, row.begins, self._fresh = True, self._fresh, False
        row.answer = asyncio.get_running_loop().create_future()
        self._game, self._ends_again = game.number, False
        self._games.act(self._copy, self._entity)
        self._rows.append(row)
        self._tell(row)
        return row.answer

    def _tell(self, row: Row) -> None:
        row.earned, self._earned = self._earned, 0.0
        row.withdrawn, self._withdrawn = self._withdrawn, False
        self._exchange.add((self._copy, self._entity), row)

    def reward(
        self,
        value: float,
        *,
        terminated: bool = False,
        truncated: bool = False,
        observation: Any = None,
        outcome: str | int | None = None,
    ) -> None:
        """See ``Agent``."""
        if self._ends_again and self._fresh:  # the end was told before the call failed that told it
            return
        was_fresh = self._fresh
        super().reward(value, terminated=terminated, truncated=truncated, observation=observation, outcome=outcome)
        if was_fresh:
            return
        self._earned += float(value)
        self._earned_in_call += float(value)
        self._games.add_reward(self._copy, self._entity, float(value))
        if terminated or truncated:
            self._end(terminated, observation, outcome)

    def _end(self, terminated: bool, observation: Any, outcome: Any) -> None:
        """Tell the end of the episode, and where it was cut the last observation."""
        row = Row(self._game)
        row.over, row.cut = terminated, not terminated
        if row.cut and observation is not None:
            row.observation = self.read(observation).observation
        elif row.cut:  # nobody knows what the last action has led to
            self._withdrawn = True
        self._ended_in_call, self._earned_in_call = True, 0.0
        self._tell(row)
        self._games.end(self._copy, self._entity, cut=row.cut, outcome=outcome)

    # What becomes of a call of the actor

    def keep(self) -> None:
        """Keep what the call has done: it has gone well."""
        self._rows.clear()
        self._earned_in_call, self._ended_in_call, self._ends_again = 0.0, False, False

    def roll_back(self) -> None:
        """Take back what the call has done: it has failed, and is made again. What has ended in it has ended."""
        for row in reversed(self._rows):
            if self._exchange.roll_back((self._copy, self._entity), row):
                self._earned += row.earned
                self._withdrawn = self._withdrawn or row.withdrawn
                self._fresh = self._fresh or row.begins
            else:
                self._withdrawn = True
            self._games.roll_back(self._copy, self._entity)
        self._earned -= self._earned_in_call
        self._games.add_reward(self._copy, self._entity, -self._earned_in_call)
        self.episode_return -= self._earned_in_call
        self._ends_again = self._ended_in_call
        self._rows.clear()
        self._earned_in_call, self._ended_in_call = 0.0, False

    def abandon(self, *, faulted: bool) -> None:
        """End the episode where it is: its game has vanished, or its actor has failed too often."""
        if self._fresh:
            return
        row = Row(self._game)
        row.void, row.cut = faulted, not faulted
        self._earned, self._withdrawn, self._fresh = 0.0, not faulted, True
        self._tell(row)
        self._rows.clear()


class RemoteAgent(LearningAgent):
    """An agent whose actor asks a model and pushes replays, instead of acting.

    Attributes:
      remote_model: of its player.
      remote_buffer: what is pushed there is learned from.
    """

    def __init__(
        self, spaces: LearningSpaces, entity: int, copy: int, exchange: Exchange, games: Games, link: RemoteLink
    ) -> None:
        """Seat the agent; see ``LearningAgent``, and ``link`` is the way to its trainer."""
        super().__init__(spaces, entity, copy, exchange, games)
        self._link, self.remote_model, self.remote_buffer = link, link.model, _Counted(link.buffer, self._take_part)

    @property
    def version(self) -> str:
        """How many replays the model had learned from."""
        return self._link.version

    def ask(self, seen: CheckedObservation) -> "asyncio.Future[ForwardResult]":
        """Refuse.

        Raises:
          ValueError: always.
        """
        raise ValueError(f"agent {self.name!r}: its player is a trainer of your own: ask agent.remote_model")

    def reward(
        self,
        value: float,
        *,
        terminated: bool = False,
        truncated: bool = False,
        observation: Any = None,
        outcome: str | int | None = None,
    ) -> None:
        """Say what was earned, for the records: what is learned from is in the replays. See ``Agent``."""
        self._take_part(0)
        super().reward(value, terminated=terminated, truncated=truncated, outcome=outcome)

    def _take_part(self, actions: int) -> None:
        """Count actions, in the next episode where the last one has ended."""
        if self._games.of(self._copy).ended[self._entity]:
            self._games.next(self._copy, self.name)
        self.episode_return = 0.0 if self._fresh else self.episode_return
        self._fresh = False
        self._games.act(self._copy, self._entity, actions)
        self._games.count_moves([self._copy] * actions)

    def _tell(self, row: Row) -> None:
        """Tell nothing: the trainer knows what was pushed."""


class _Counted:
    """A buffer that counts what is pushed as actions of an agent."""

    def __init__(self, buffer: RemoteBuffer, count: Callable[[int], None]) -> None:
        self._buffer, self._count = buffer, count

    def push(self, *replays: Any) -> int:
        taken = self._buffer.push(*replays)
        self._count(len(replays))
        return taken


class ExternalAgent:
    """An entity that is played from outside: what it does is counted, and nothing of it is learned from."""

    def __init__(self, entity: int, copy: int, games: Games) -> None:
        """Note which it is."""
        self._entity, self._copy, self._games = entity, copy, games

    def act(self) -> None:
        """Count an action that was carried out."""
        self._games.act(self._copy, self._entity)

    def reward(self, value: float, *, over: bool, cut: bool, outcome: Any) -> None:
        """Count what it has earned, and whether its episode is over, or was cut."""
        self._games.add_reward(self._copy, self._entity, value)
        if over or cut:
            self._games.end(self._copy, self._entity, cut=cut, outcome=outcome)


class LearningAgents(Agents):
    """The agents of a game outside.

    Attributes:
      outsiders: by the number of the entity, those that are played from outside.
    """

    def __init__(
        self, agents: Sequence[LearningAgent], game_id: str, copy: int, games: Games, external: Sequence[int]
    ) -> None:
        """Seat them."""
        super().__init__({agent.name: agent for agent in agents}, game_id)
        self._all, self._copy, self._games = agents, copy, games
        self.outsiders = {number: ExternalAgent(number, copy, games) for number in external}

    def keep(self) -> None:
        """See ``Agents``."""
        for agent in self._all:
            agent.keep()

    def roll_back(self) -> None:
        """See ``Agents``."""
        for agent in self._all:
            agent.roll_back()

    def release(self) -> None:
        """End what the actor has left open, as the game has ended."""
        if self.ending == "end":
            for agent in self._all:
                if agent.acted:
                    agent.reward(0.0, terminated=True)
        faulted = self.ending in (None, "error")  # none: the actor could not be built
        for agent in self._all:
            agent.abandon(faulted=faulted)
        cause = "fault:actor" if faulted else None if self.ending in ("end", "stop") else f"gateway:{self.ending}"
        self._games.finish(self._copy, cause)
        super().release()


class ExternalSeats:
    """Seats the agents of games outside.

    Attributes:
      memory: None: a lone tick is refused by ``seat``, whatever the players remember.
    """

    memory = None

    def __init__(
        self,
        entities: Sequence[EntitySpaces],
        played: Sequence[int],
        external: Sequence[int],
        exchange: Exchange,
        games: Games,
        links: Mapping[int, RemoteLink],
    ) -> None:
        """Prepare to seat.

        Args:
          entities: of the match.
          played: numbers of those that workers play: the others have no agent.
          external: numbers of those that are played from outside.
          exchange: the way to the workers.
          games: of the match.
          links: by the number of the entity, the way to its trainer, where it has one.
        """
        self._links = links
        self._spaces = {number: LearningSpaces(entities[number], exchange, number) for number in played}
        self._exchange, self._games, self._external = exchange, games, tuple(external)

    def seat(self, game_id: str, place: int) -> LearningAgents:
        """Return the agents of a game.

        Raises:
          Refusal: it is to have no session.
        """
        if place < 0:
            text = "this server learns from whole games: ask it in a session (start, tick, end)"
            raise Refusal(400, "needs_session", text)
        agents = [self._agent(entity, place) for entity in self._spaces]
        return LearningAgents(agents, game_id, place, self._games, self._external)

    def _agent(self, entity: int, place: int) -> LearningAgent:
        spaces, exchange, games = self._spaces[entity], self._exchange, self._games
        if entity in self._links:
            return RemoteAgent(spaces, entity, place, exchange, games, self._links[entity])
        return LearningAgent(spaces, entity, place, exchange, games)
