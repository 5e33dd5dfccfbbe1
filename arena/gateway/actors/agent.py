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
"""Reasons for the end of a game: requested by the client (end, stop), or decided by the server."""

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
      name: name of the agent.
      learning: whether the player learns from the actions of this agent.
      episode_return: sum of the rewards of its current episode, or of the last one.
    """

    learning = False

    def __init__(self, name: str, model: Any, lane: int = -1) -> None:
        """Create the agent.

        Args:
          name: name of the agent.
          model: model of its player.
          lane: index of its recurrent state, for a recurrent player.
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
        """``player@version``, the header ``version`` of responses."""
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
        checked = self.read(observation, mask)
        return self.take(wait_for(lambda: self.request(checked)))

    async def act_async(self, observation: Any, mask: Any = None) -> Any:
        """Return an action for an observation, nested as the action space.

        Args:
          observation: of the observation space; NumPy arrays, numbers or lists.
          mask: flags of the actions, nonzero is allowed; None allows everything.

        Raises:
          SpaceError: (a ``ValueError``) the observation or the mask does not belong to its space.
        """
        return self.take(await self.request(self.read(observation, mask)))

    def read(self, observation: Any, mask: Any = None) -> CheckedObservation:
        """Return an observation and a mask as rows for the player.

        Raises:
          SpaceError: see ``act_async``.
        """
        return CheckedObservation(
            self._model.read_observation(observation), None if mask is None else self._read_mask(mask)
        )

    def request(self, observation: CheckedObservation) -> "asyncio.Future[ForwardResult]":
        """Request the action for the result of ``read``; ``take`` converts it."""
        if self._fresh:
            self.episode_return = 0.0
        start, self._fresh = self._fresh, False
        return self._model.request(observation.observation, observation.mask, start=start, lane=self._lane)

    def take(self, result: ForwardResult) -> Any:
        """Return the action of a result, and record its version."""
        self._acted_by = result.by
        return first_row(result.rows)

    def release(self) -> None:
        """Release the reference to the player's version when the game ends."""
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
        """Add to the reward of the last action; after an end of the episode the next action begins another one.

        Args:
          value: added to the reward so far.
          terminated: whether the episode has ended by the rules of the game.
          truncated: whether it was truncated for another reason.
          observation: final observation of a truncated episode.
          outcome: outcome of the episode: win, draw, loss or a rank, 0 for the best.

        Raises:
          ValueError: there was no action before.
          SpaceError: (a ``ValueError``) the final observation does not belong to its space.
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
      game_id: the client's id of the game; empty if it has none.
      ending: the reason of the end, while ``Actor.end`` runs; None before.
    """

    def __init__(self, agents: Mapping[str, Agent], game_id: str = "") -> None:
        """Combine the agents."""
        super().__init__(agents)
        self.game_id = game_id
        self.ending: Ending | None = None

    def commit(self) -> None:
        """Commit the effects of a call of the actor that has succeeded."""

    def roll_back(self) -> None:
        """Roll back the effects of a call of the actor that has failed, and is repeated."""

    def release(self) -> None:
        """Release the players' versions, when the game is over."""
        for agent in self.values():
            agent.release()

    def act(self, observations: Mapping[str, Any], masks: Mapping[str, Any] = NO_MASKS) -> dict[str, Any]:
        """Return the actions of several agents, in a plain method of an actor; see ``act_async``.

        Raises:
          SpaceError: see there.
          TimeoutError: the actor's call has taken too long.
        """
        checked = {name: self[name].read(value, masks.get(name)) for name, value in observations.items()}
        actions = wait_for(lambda: asyncio.gather(*(self[name].request(each) for name, each in checked.items())))
        return {name: self[name].take(action) for name, action in zip(checked, actions, strict=True)}

    async def act_async(self, observations: Mapping[str, Any], masks: Mapping[str, Any] = NO_MASKS) -> dict[str, Any]:
        """Return the actions of several agents, computed in one batch.

        Args:
          observations: observation of each agent that acts.
          masks: action masks of those that have one.

        Raises:
          SpaceError: (a ``ValueError``) an observation or a mask does not belong to its space; then no agent has acted.
        """
        checked = {name: self[name].read(value, masks.get(name)) for name, value in observations.items()}
        return await self.act_on(checked)

    async def act_on(self, observations: Mapping[str, CheckedObservation]) -> dict[str, Any]:
        """Return the actions of several agents for checked observations."""
        pending = [self[name].request(each) for name, each in observations.items()]
        if len(pending) == 1:  # the most frequent case
            return {name: self[name].take(await pending[0]) for name in observations}
        actions = await asyncio.gather(*pending)
        return {name: self[name].take(action) for name, action in zip(observations, actions, strict=True)}
