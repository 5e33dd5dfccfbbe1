"""The class that users extend for a game: it converts bytes of the game to observations, and actions to bytes."""

from collections.abc import Awaitable, Mapping
from typing import Any, NamedTuple

from gymnasium import spaces

from arena.gateway.actors.agent import Agents


class AgentSpaces(NamedTuple):
    """The spaces of one agent of a game.

    Attributes:
      observation: observation space of the agent; any nesting of Dict and Tuple over Box, Discrete, MultiDiscrete and
        MultiBinary.
      action: action space of the agent; any nesting of the same.
      masked: whether it has an action mask; its action space is then Discrete or MultiDiscrete.
    """

    observation: spaces.Space
    action: spaces.Space
    masked: bool = False


class Actor:
    """One game. Its methods may be plain or ``async``; in each game one call runs at a time.

    Class attributes:
      content_type: content type of the bytes that ``tick`` and ``end`` return.
    """

    content_type = "application/octet-stream"

    @classmethod
    def spaces(cls, config: Mapping[str, Any]) -> dict[str, AgentSpaces]:
        """Return the agents of a game with their spaces.

        Args:
          config: ``gateway.settings`` of the configuration.
        """
        raise NotImplementedError(f"{cls.__name__} needs a class method spaces(config)")

    def __init__(self, agents: Agents, config: Mapping[str, Any], game_id: str, data: bytes) -> None:
        """Start a game.

        Args:
          agents: the agents, by name.
          config: ``gateway.settings`` of the configuration.
          game_id: id of the game, as the client sent it.
          data: the body of the request that starts it.

        Raises:
          BadRequest: the bytes cannot be read; the client gets the message, and no game starts.
        """

    def tick(self, data: bytes) -> "bytes | Awaitable[bytes]":
        """Answer one request of the game.

        Raises:
          BadRequest: the bytes cannot be read; the client gets the message, and the game stays open.
        """
        raise NotImplementedError(f"{type(self).__name__} needs a method tick(data)")

    def end(self, data: bytes) -> "bytes | Awaitable[bytes] | None":
        """Handle the last bytes of the game, empty for a game that was abandoned; ``agents.ending`` has the reason."""
