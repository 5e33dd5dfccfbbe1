"""What users write for a game: an actor turns the game's bytes into observations, and actions into bytes."""

from collections.abc import Awaitable, Mapping
from typing import Any, NamedTuple

from gymnasium import spaces

from arena.gateway.actors.agent import Agents


class AgentSpaces(NamedTuple):
    """What one agent of a game sees and does.

    Attributes:
      observation: its observation space; any nesting of Dict and Tuple over Box, Discrete, MultiDiscrete, MultiBinary.
      action: its action space, likewise.
      masked: whether it has an action mask, which its action space must then allow: Discrete or MultiDiscrete.
    """

    observation: spaces.Space
    action: spaces.Space
    masked: bool = False


class Actor:
    """One game. Its methods may be plain or ``async``; in each game one call runs at a time.

    Class attributes:
      content_type: of what ``tick`` and ``end`` return.
    """

    content_type = "application/octet-stream"

    @classmethod
    def spaces(cls, config: Mapping[str, Any]) -> dict[str, AgentSpaces]:
        """Return the agents of a game and what they see and do.

        Args:
          config: ``gateway.settings`` of the configuration.
        """
        raise NotImplementedError(f"{cls.__name__} needs a class method spaces(config)")

    def __init__(self, agents: Agents, config: Mapping[str, Any], game_id: str, data: bytes) -> None:
        """Begin a game.

        Args:
          agents: by name; they act.
          config: ``gateway.settings`` of the configuration.
          game_id: what the client calls the game.
          data: the body of the request that starts it.

        Raises:
          BadRequest: the bytes cannot be read; the client is told why, and no game begins.
        """

    def tick(self, data: bytes) -> "bytes | Awaitable[bytes]":
        """Answer one request of the game.

        Raises:
          BadRequest: the bytes cannot be read; the client is told why, and the game stays open.
        """
        raise NotImplementedError(f"{type(self).__name__} needs a method tick(data)")

    def end(self, data: bytes) -> "bytes | Awaitable[bytes] | None":
        """Take the last bytes of the game; ``agents.ending`` says why it ends. They are empty where it has vanished."""
