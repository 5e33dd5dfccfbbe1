"""Served models of users' own trainers: the actor that has pushed replays in training queries the same model."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from arena.common.errors import ConfigError
from arena.gateway.actors.agent import Agent, Agents, CheckedObservation
from arena.gateway.batcher import ForwardResult
from arena.gateway.remote import RemoteModel
from arena.gateway.training.remote_agents import RemoteBuffer

logger = logging.getLogger(__name__)


class ServedModel:
    """The model of one player.

    Attributes:
      name: of the player.
      model: the model that actors query.
      version: number of replays that its weights have learned from.
      users: number of agents of open games.
    """

    def __init__(self, name: str, model: RemoteModel, version: str, weights: Mapping[str, Any]) -> None:
        """Serve a model with these weights."""
        self.name, self.model, self.version, self.users = name, model, version, 0
        model.load(weights)

    def load(self, version: str, weights: Mapping[str, Any]) -> None:
        """Load newer weights, between two forward passes."""
        self.model.load(weights)
        self.version = version


class ServedRemoteAgent(Agent):
    """An agent with an actor that queries the model.

    Attributes:
      remote_model: model of its player.
      remote_buffer: a buffer that drops what is pushed: nothing learns.
    """

    def __init__(self, name: str, served: ServedModel) -> None:
        """Create the agent."""
        super().__init__(name, served)
        self.remote_model, self.remote_buffer = served.model, RemoteBuffer(served.name)

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
        """Add to the return of the episode; see ``Agent``."""
        self.episode_return = (0.0 if self._fresh else self.episode_return) + float(value)
        self._fresh = terminated or truncated


class RemoteSeats:
    """Assigns agents with trainers of users' own as players."""

    memory = None

    def __init__(self, agents: Mapping[str, str], served: Mapping[str, ServedModel]) -> None:
        """Prepare to assign: agent -> player, and the players by name."""
        self._agents, self._served = agents, served

    def seat(self, game_id: str, place: int) -> Agents:
        """Return the agents of a game."""
        agents = {agent: ServedRemoteAgent(agent, self._served[player]) for agent, player in self._agents.items()}
        return Agents(agents, game_id)


def reloading(
    served: Mapping[str, ServedModel],
    look: Callable[[str, str], tuple[str, Mapping[str, Any]] | None],
    seconds: float,
) -> Callable[[], Awaitable[None]]:
    """Return a task that polls for newer weights.

    Args:
      served: models by player.
      look: (player, version) -> a newer version with its weights, or None; called in a thread.
      seconds: interval of polls.
    """

    async def run() -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(seconds)
            for each in served.values():
                try:
                    newer = await loop.run_in_executor(None, look, each.name, each.version)
                    if newer is not None:
                        each.load(*newer)
                        logger.info("%s@%s is served from now on", each.name, each.version)
                except ConfigError as error:
                    logger.warning("a newer version of %s could not be loaded: %s", each.name, error)

    return run
