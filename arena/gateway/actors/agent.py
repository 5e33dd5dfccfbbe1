"""Agents of a game: an agent acts with the weights of a player, and receives the rewards of its actions."""

import asyncio
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from arena.common.trees import Tree
from arena.gateway.actors.bridge import wait_for
from arena.gateway.batcher import ForwardResult
from arena.gateway.values import SpaceError, first_row

Ending = Literal["end", "stop", "idle", "age", "drain", "error"]
"""Why a game has ended: the client said so (end, stop), or the server did."""

NO_MASKS: Mapping[str, Any] = {}


class CheckedObservation(NamedTuple):
    """A checked observation of an agent.

    Attributes:
      observation: ``[1, ...]``, nested as the space.
      mask: ``[1, flags]``, or None.
    """

    observation: Tree
    mask: np.ndarray | None


class Agent:
    """One agent of a game.

    Attributes:
      name: of the agent.
      learning: whether the player learns from the actions of this agent.
      episode_return: sum of the rewards of its current episode, or of the last one.
    """

    learning = False

    def __init__(self, name: str, model: Any, lane: int = -1) -> None:
        """Seat the agent.

        Args:
          name: of the agent.
          model: its player.
          lane: where its memory lies, for a player with memory.
        """
        model.users += 1
        self.name = name
        self.episode_return = 0.0
        self._model, self._lane, self._fresh = model, lane, True
        self._acted_by = self._stamped_by = ""
        self._stamp = b""

    @property
    def player(self) -> str:
        """Name of the player that acts for the agent."""
        return self._model.name

    @property
    def version(self) -> str:
        """Version of the weights that it has acted with last, or will act with: transition steps of training."""
        return self._acted_by or self._model.version

    @property
    def stamp(self) -> bytes:
        """``player@version``, the header ``version`` of answers."""
        version = self.version
        if version is not self._stamped_by:
            self._stamp, self._stamped_by = f"{self.player}@{version}".encode(), version
        return self._stamp

    @property
    def acted(self) -> bool:
        """Whether the agent has acted in its current episode."""
        return not self._fresh

    def act(self, observation: Any, mask: Any = None) -> Any:
        """Return an action, in a plain method of an actor; see ``act_async``.

        Raises:
          SpaceError: see there.
          TimeoutError: the actor's call has taken too long.
        """
        seen = self.read(observation, mask)
        return self.take(wait_for(lambda: self.ask(seen)))

    async def act_async(self, observation: Any, mask: Any = None) -> Any:
        """Return an action for an observation, nested as the action space.

        Args:
          observation: of the observation space; NumPy arrays, numbers or lists.
          mask: flags of the actions, nonzero is allowed; None allows everything.

        Raises:
          SpaceError: (a ``ValueError``) the observation or the mask is not of the space.
        """
        return self.take(await self.ask(self.read(observation, mask)))

    def read(self, observation: Any, mask: Any = None) -> CheckedObservation:
        """Return an observation and a mask as the player reads them.

        Raises:
          SpaceError: see ``act_async``.
        """
        return CheckedObservation(
            self._model.read_observation(observation), None if mask is None else self._read_mask(mask)
        )

    def ask(self, seen: CheckedObservation) -> "asyncio.Future[ForwardResult]":
        """Ask for the action for what ``read`` has returned; ``take`` takes it."""
        if self._fresh:
            self.episode_return = 0.0
        start, self._fresh = self._fresh, False
        return self._model.ask(seen.observation, seen.mask, start=start, lane=self._lane)

    def take(self, answered: ForwardResult) -> Any:
        """Return the action that was answered, and note by which version."""
        self._acted_by = answered.by
        return first_row(answered.rows)

    def release(self) -> None:
        """Let go of its player's version, when the game is over."""
        self._model.users -= 1

    def _read_mask(self, mask: Any) -> np.ndarray:
        if self._model.read_mask is None:
            raise SpaceError(f"action_mask: expected none, since player {self.player!r} has learned without masks")
        return self._model.read_mask(mask)

    def reward(
        self,
        value: float,
        *,
        terminated: bool = False,
        truncated: bool = False,
        observation: Any = None,
        outcome: str | int | None = None,
    ) -> None:
        """Say what the last action has earned; after an end of the episode the next action begins another one.

        Args:
          value: is added to what the action has earned already.
          terminated: whether the episode has ended by the rules of the game.
          truncated: whether it was cut for another reason.
          observation: the last one of an episode that was cut.
          outcome: how the episode has ended: win, draw, loss or a rank, 0 for the best.

        Raises:
          ValueError: something was earned before the first action.
          SpaceError: (a ``ValueError``) the last observation is not of the space.
        """
        if not np.isfinite(value):
            raise ValueError(f"reward: expected a finite number, found {value}")
        if self._fresh and value:
            raise ValueError(f"reward: expected 0 before the first action of an episode, found {value:g}")
        if observation is not None:
            self._model.read_observation(observation)
        self.episode_return += float(value)
        self._fresh = self._fresh or terminated or truncated


class Agents(dict[str, Agent]):
    """The agents of a game by name.

    Attributes:
      game_id: what the client calls the game; empty where it has not said.
      ending: why the game ends, while ``Actor.end`` runs; None before.
    """

    def __init__(self, agents: Mapping[str, Agent], game_id: str = "") -> None:
        """Seat them."""
        super().__init__(agents)
        self.game_id = game_id
        self.ending: Ending | None = None

    def keep(self) -> None:
        """Keep what a call of the actor has done: it has gone well."""

    def roll_back(self) -> None:
        """Take back what a call of the actor has done: it has failed, and is made again."""

    def release(self) -> None:
        """Let go of the players' versions, when the game is over."""
        for agent in self.values():
            agent.release()

    def act(self, observations: Mapping[str, Any], masks: Mapping[str, Any] = NO_MASKS) -> dict[str, Any]:
        """Return the actions of several agents, in a plain method of an actor; see ``act_async``.

        Raises:
          SpaceError: see there.
          TimeoutError: the actor's call has taken too long.
        """
        seen = {name: self[name].read(value, masks.get(name)) for name, value in observations.items()}
        actions = wait_for(lambda: asyncio.gather(*(self[name].ask(each) for name, each in seen.items())))
        return {name: self[name].take(action) for name, action in zip(seen, actions, strict=True)}

    async def act_async(self, observations: Mapping[str, Any], masks: Mapping[str, Any] = NO_MASKS) -> dict[str, Any]:
        """Return the actions of several agents, which are asked in one batch.

        Args:
          observations: of each agent that acts.
          masks: the action masks of those that have one.

        Raises:
          SpaceError: (a ``ValueError``) an observation or a mask is not of its space; then nobody has acted.
        """
        seen = {name: self[name].read(value, masks.get(name)) for name, value in observations.items()}
        return await self.act_on(seen)

    async def act_on(self, seen: Mapping[str, CheckedObservation]) -> dict[str, Any]:
        """Return the actions of several agents for what they have read."""
        asked = [self[name].ask(each) for name, each in seen.items()]
        if len(asked) == 1:  # as most have it
            return {name: self[name].take(await asked[0]) for name in seen}
        actions = await asyncio.gather(*asked)
        return {name: self[name].take(action) for name, action in zip(seen, actions, strict=True)}
