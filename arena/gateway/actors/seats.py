"""Assignment of players to the agents of games."""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from arena.common import registry
from arena.common.errors import ConfigError
from arena.gateway.actors.actor import Actor, AgentSpaces
from arena.gateway.actors.agent import Agent, Agents
from arena.gateway.actors.json_actor import JsonActor
from arena.gateway.players import Player
from arena.gateway.values import choices_of

logger = logging.getLogger(__name__)

JSON_ACTOR = "json"


def load_actor(reference: str) -> type[Actor]:
    """Return the actor that ``json`` or ``path/to/file.py:Class`` names.

    Raises:
      ConfigError: there is none, or it is not an ``Actor``.
    """
    if reference == JSON_ACTOR:
        return JsonActor
    actor = registry.load(reference)
    if not (isinstance(actor, type) and issubclass(actor, Actor)):
        raise ConfigError(f"actor: expected a class that derives from arena.gateway.Actor, found {reference}")
    return actor


def spaces_of(actor: type[Actor], settings: Mapping[str, Any]) -> dict[str, AgentSpaces] | None:
    """Return the agents of an actor with their spaces; None if it leaves them to the players.

    Raises:
      ConfigError: its ``spaces`` fails, or returns something else.
    """
    if actor.spaces.__func__ is Actor.spaces.__func__:  # type: ignore[attr-defined]
        return None
    try:
        spaces_by_agent = {name: AgentSpaces(*spaces) for name, spaces in actor.spaces(settings).items()}
    except Exception as error:
        logger.exception("%s.spaces has failed", actor.__name__)
        raise ConfigError(f"actor: {actor.__name__}.spaces(config) has failed: {error!r}") from error
    if not spaces_by_agent:
        raise ConfigError(f"actor: expected at least one agent from {actor.__name__}.spaces(config), found none")
    return spaces_by_agent


def assign(
    agents: Sequence[str] | None, players: Sequence[str], configured: Mapping[str, str], actor: str
) -> dict[str, str]:
    """Return agent -> player.

    Args:
      agents: agents of the actor; None if it accepts any: then each player is one, or those that ``configured`` names.
      players: the served players.
      configured: agent -> player, as configured; an agent without an entry acts by the player of its name or the only
        player.
      actor: name of the actor in messages.

    Raises:
      ConfigError: an agent or a player is unknown, or an agent has no player.
    """
    for agent, player in configured.items():
        if player not in players:
            raise ConfigError(f"agents.{agent}: there is no player {player!r}; players: {', '.join(players)}")
        if agents is not None and agent not in agents:
            raise ConfigError(f"agents.{agent}: {actor} has no agent {agent!r}; agents: {', '.join(agents)}")
    if agents is None:
        return dict(configured) or {player: player for player in players}
    assigned = {}
    for agent in agents:
        player = configured.get(agent, agent if agent in players else players[0] if len(players) == 1 else "")
        if not player:
            raise ConfigError(f"agents: agent {agent!r} of {actor} has no player; players: {', '.join(players)}")
        assigned[agent] = player
    return assigned


class SeatAssigner(Protocol):
    """Assigns agents to games."""

    @property
    def memory(self) -> Player | None:
        """A recurrent player, if there is one."""

    def seat(self, game_id: str, place: int) -> Agents:
        """Return the agents of a game; see ``Seats``."""


class _Seat(NamedTuple):
    """Seat of an agent.

    Attributes:
      agent: name of the agent.
      player: name of the player that acts for the agent.
      version: version of the player; None for the newest.
      beside: number of agents that act by the same player and version.
      number: index of this one among them.
    """

    agent: str
    player: Player
    version: str | None
    beside: int
    number: int


class Seats:
    """Assigns to each agent of a game its player, and a lane of the player's recurrent states."""

    def __init__(
        self, players: Mapping[str, Player], agents: Mapping[str, str], spaces: Mapping[str, AgentSpaces] | None = None
    ) -> None:
        """Prepare to assign.

        Args:
          players: players by name.
          agents: agent -> ``player`` or ``player@version``.
          spaces: spaces of the agents, if the actor defines them.

        Raises:
          ConfigError: the spaces of an agent differ from those of its player.
        """
        self._seats: list[_Seat] = []
        counts, numbered = Counter(agents.values()), Counter[str]()
        for agent, chosen in agents.items():
            name, _, version = chosen.partition("@")
            if spaces is not None:
                _check(agent, spaces[agent], players[name])
            self._seats.append(_Seat(agent, players[name], version or None, counts[chosen], numbered[chosen]))
            numbered[chosen] += 1

    @property
    def memory(self) -> Player | None:
        """A seated recurrent player, if there is one."""
        return next((seat.player for seat in self._seats if seat.player.memory), None)

    def seat(self, game_id: str, place: int) -> Agents:
        """Return the agents of a game; ``Agents.release`` must follow.

        Args:
          game_id: the client's id of the game.
          place: its index among the games that can be open; -1 for one without recurrent states.
        """
        seated = {}
        for agent, player, version, beside, number in self._seats:
            seated[agent] = Agent(agent, player.at(version), place * beside + number if place >= 0 else -1)
        return Agents(seated, game_id)


def _check(agent: str, spaces: AgentSpaces, player: Player) -> None:
    flags = sum(choices_of(spaces.action)) if spaces.masked else 0
    for subject, actual, expected in (
        ("observations", spaces.observation, player.observation),
        ("actions", spaces.action, player.action),
        ("flags in its action mask", flags, player.flags),
    ):
        if actual != expected:
            raise ConfigError(
                f"agent {agent!r}: expected the {subject} that player {player.name!r} has learned with, {expected}, "
                f"found {actual}"
            )
