"""Agents that learn: their observations and rewards go to the workers on the seats of the match."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from arena.envs.interface import EntitySpaces
from arena.gateway.actors.agent import Agent, Agents, CheckedObservation
from arena.gateway.batcher import ForwardResult
from arena.gateway.http.responses import Refusal
from arena.gateway.training.exchange import Exchange, Row
from arena.gateway.training.games import Games
from arena.gateway.training.remote_agents import RemoteBuffer, RemoteLink
from arena.gateway.values import RowReader, mask_reader


class LearningSpaces:
    """Spaces of an entity in the form that agents use, instead of a loaded model.

    Attributes:
      name: name of the entity.
      users: number of agents of open games.
      read_observation, read_mask: see ``Model``.
    """

    def __init__(self, entity: EntitySpaces, exchange: Exchange, number: int) -> None:
        """Prepare to read; ``number`` is the index of the entity in the match."""
        self.name, self.users = entity.name, 0
        self.read_observation = RowReader(entity.observation, "observation")
        self.read_mask = mask_reader(entity.action, "action_mask") if entity.mask_size else None
        self._exchange, self._number = exchange, number

    @property
    def version(self) -> str:
        """Transition steps that the latest acting policy had learned from."""
        return self._exchange.versions[self._number]


class LearningAgent(Agent):
    """An agent of an external game, for the duration of its session.

    The effects of an actor's call are buffered until the call has succeeded: if it fails, the client sends the same
    request again, and nothing may count twice.
    """

    learning = True

    def __init__(self, spaces: LearningSpaces, entity: int, copy: int, exchange: Exchange, games: Games) -> None:
        """Create the agent.

        Args:
          spaces: its spaces.
          entity: its index in the match.
          copy: index of the session's place.
          exchange: exchange with the workers.
          games: games of the match.
        """
        super().__init__(spaces.name, spaces)
        self._entity, self._copy, self._exchange, self._games = entity, copy, exchange, games
        self._game = 0  # number of the game in which it acted last
        self._earned = 0.0  # since the last row
        self._withdrawn = False  # whether the next row withdraws the last action
        self._rows: list[Row] = []  # rows of the current call in which it acts
        self._earned_in_call = 0.0  # since the last end of an episode within the call
        self._ended_in_call = self._ends_again = False

    @property
    def player(self) -> str:
        """Name of the player that acts for the agent."""
        return self._games.player(self._copy, self._entity)

    @property
    def version(self) -> str:
        """See ``Agent``; an opponent chosen by a league was frozen after the steps in its name."""
        player = self.player
        if player == self._games.player_of_seat(self._entity):
            return super().version
        steps = player.rpartition("_")[2]
        return steps if steps.isdecimal() else "0"

    def request(self, observation: CheckedObservation) -> "asyncio.Future[ForwardResult]":
        """See ``Agent``."""
        try:
            game = self._games.of(self._copy)
        except LookupError as error:
            raise Refusal(503, "full", f"{error}; try again", (b"retry-after", b"1")) from None
        if game.ended[self._entity]:  # other agents play on, so that this action belongs to another game
            game = self._games.next(self._copy, self.name)
        if self._fresh:
            self.episode_return = 0.0
        row = Row(game.number, observation.observation, observation.mask)
        row.acting, row.begins, self._fresh = True, self._fresh, False
        row.answer = asyncio.get_running_loop().create_future()
        self._game, self._ends_again = game.number, False
        self._games.act(self._copy, self._entity)
        self._rows.append(row)
        self._send_row(row)
        return row.answer

    def _send_row(self, row: Row) -> None:
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
        if self._ends_again and self._fresh:  # the end was committed before the call failed that reported it
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
        """Send the end of the episode, and if truncated the final observation."""
        row = Row(self._game)
        row.over, row.cut = terminated, not terminated
        if row.cut and observation is not None:
            row.observation = self.read(observation).observation
        elif row.cut:  # the outcome of the last action is unknown
            self._withdrawn = True
        self._ended_in_call, self._earned_in_call = True, 0.0
        self._send_row(row)
        self._games.end(self._copy, self._entity, cut=row.cut, outcome=outcome)

    # Effects of a call of the actor

    def commit(self) -> None:
        """Commit the effects of the call, which has succeeded."""
        self._rows.clear()
        self._earned_in_call, self._ended_in_call, self._ends_again = 0.0, False, False

    def roll_back(self) -> None:
        """Roll back the effects of the call, which has failed and is repeated. Ends of episodes stay."""
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
        """End the episode where it is: its game was abandoned, or its actor has failed too often."""
        if self._fresh:
            return
        row = Row(self._game)
        row.void, row.cut = faulted, not faulted
        self._earned, self._withdrawn, self._fresh = 0.0, not faulted, True
        self._send_row(row)
        self._rows.clear()


class RemoteAgent(LearningAgent):
    """An agent with an actor that queries a model and pushes replays, instead of acting.

    Attributes:
      remote_model: model of its player.
      remote_buffer: buffer of the replays to learn from.
    """

    def __init__(
        self, spaces: LearningSpaces, entity: int, copy: int, exchange: Exchange, games: Games, link: RemoteLink
    ) -> None:
        """Create the agent; see ``LearningAgent``; ``link`` leads to its trainer."""
        super().__init__(spaces, entity, copy, exchange, games)
        self._link, self.remote_model, self.remote_buffer = link, link.model, _Counted(link.buffer, self._take_part)

    @property
    def version(self) -> str:
        """Number of replays that the model has learned from."""
        return self._link.version

    def request(self, observation: CheckedObservation) -> "asyncio.Future[ForwardResult]":
        """Raise: the actor must query the model.

        Raises:
          ValueError: always.
        """
        raise ValueError(f"agent {self.name!r}: its player is a trainer of your own: query agent.remote_model")

    def reward(
        self,
        value: float,
        *,
        terminated: bool = False,
        truncated: bool = False,
        observation: Any = None,
        outcome: str | int | None = None,
    ) -> None:
        """Record a reward; learning uses the replays only. See ``Agent``."""
        self._take_part(0)
        super().reward(value, terminated=terminated, truncated=truncated, outcome=outcome)

    def _take_part(self, actions: int) -> None:
        """Count actions, in the next episode if the last one has ended."""
        if self._games.of(self._copy).ended[self._entity]:
            self._games.next(self._copy, self.name)
        self.episode_return = 0.0 if self._fresh else self.episode_return
        self._fresh = False
        self._games.act(self._copy, self._entity, actions)
        self._games.count_moves([self._copy] * actions)

    def _send_row(self, row: Row) -> None:
        """Send nothing: the trainer gets the replays."""


class _Counted:
    """A buffer that counts pushed replays as actions of an agent."""

    def __init__(self, buffer: RemoteBuffer, count: Callable[[int], None]) -> None:
        self._buffer, self._count = buffer, count

    def push(self, *replays: Any) -> int:
        steps = self._buffer.push(*replays)
        self._count(len(replays))
        return steps


class ExternalAgent:
    """An external entity: its actions are counted, and not learned from."""

    def __init__(self, entity: int, copy: int, games: Games) -> None:
        """Store the identity of the entity."""
        self._entity, self._copy, self._games = entity, copy, games

    def act(self) -> None:
        """Count an action that was carried out."""
        self._games.act(self._copy, self._entity)

    def reward(self, value: float, *, over: bool, cut: bool, outcome: Any) -> None:
        """Count its reward, and whether its episode is over, or was truncated."""
        self._games.add_reward(self._copy, self._entity, value)
        if over or cut:
            self._games.end(self._copy, self._entity, cut=cut, outcome=outcome)


class LearningAgents(Agents):
    """The agents of an external game.

    Attributes:
      outsiders: external entities by index.
    """

    def __init__(
        self, agents: Sequence[LearningAgent], game_id: str, copy: int, games: Games, external: Sequence[int]
    ) -> None:
        """Combine the agents."""
        super().__init__({agent.name: agent for agent in agents}, game_id)
        self._all, self._copy, self._games = agents, copy, games
        self.outsiders = {number: ExternalAgent(number, copy, games) for number in external}

    def commit(self) -> None:
        """See ``Agents``."""
        for agent in self._all:
            agent.commit()

    def roll_back(self) -> None:
        """See ``Agents``."""
        for agent in self._all:
            agent.roll_back()

    def release(self) -> None:
        """End the episodes that the actor has left open, as the game has ended."""
        if self.ending == "end":
            for agent in self._all:
                if agent.acted:
                    agent.reward(0.0, terminated=True)
        faulted = self.ending in (None, "error")  # None: the actor could not be built
        for agent in self._all:
            agent.abandon(faulted=faulted)
        cause = "fault:actor" if faulted else None if self.ending in ("end", "stop") else f"gateway:{self.ending}"
        self._games.finish(self._copy, cause)
        super().release()


class ExternalSeats:
    """Assigns agents to external games.

    Attributes:
      memory: None: ``seat`` refuses requests without a session, whether players are recurrent or not.
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
        """Prepare to assign.

        Args:
          entities: entities of the match.
          played: indices of those that workers play: the others have no agent.
          external: indices of the external ones.
          exchange: exchange with the workers.
          games: games of the match.
          links: by index of the entity, the link to its trainer, if it has one.
        """
        self._links = links
        self._spaces = {number: LearningSpaces(entities[number], exchange, number) for number in played}
        self._exchange, self._games, self._external = exchange, games, tuple(external)

    def seat(self, game_id: str, place: int) -> LearningAgents:
        """Return the agents of a game.

        Raises:
          Refusal: the game would have no session.
        """
        if place < 0:
            text = "this server learns from whole games: query it in a session (start, tick, end)"
            raise Refusal(400, "needs_session", text)
        agents = [self._agent(entity, place) for entity in self._spaces]
        return LearningAgents(agents, game_id, place, self._games, self._external)

    def _agent(self, entity: int, place: int) -> LearningAgent:
        spaces, exchange, games = self._spaces[entity], self._exchange, self._games
        if entity in self._links:
            return RemoteAgent(spaces, entity, place, exchange, games, self._links[entity])
        return LearningAgent(spaces, entity, place, exchange, games)
