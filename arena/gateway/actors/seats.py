"""Which player each agent of a game acts by."""

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
    found = registry.load(reference)
    if not (isinstance(found, type) and issubclass(found, Actor)):
        raise ConfigError(f"actor: expected a class that derives from arena.gateway.Actor, found {reference}")
    return found


def spaces_of(actor: type[Actor], settings: Mapping[str, Any]) -> dict[str, AgentSpaces] | None:
    """Return the agents of an actor with what they see and do; None where it leaves that to the players.

    Raises:
      ConfigError: its ``spaces`` fails, or says something else.
    """
    if actor.spaces.__func__ is Actor.spaces.__func__:  # type: ignore[attr-defined]
        return None
    try:
        found = {name: AgentSpaces(*spaces) for name, spaces in actor.spaces(settings).items()}
    except Exception as error:
        logger.exception("%s.spaces has failed", actor.__name__)
        raise ConfigError(f"actor: {actor.__name__}.spaces(config) has failed: {error!r}") from error
    if not found:
        raise ConfigError(f"actor: expected at least one agent from {actor.__name__}.spaces(config), found none")
    return found


def assign(agents: Sequence[str] | None, players: Sequence[str], said: Mapping[str, str], actor: str) -> dict[str, str]:
    """Return agent -> player.

    Args:
      agents: of the actor; None where the actor takes any agents: then each player is one, or what ``said`` names.
      players: those that are served.
      said: agent -> player, as the user wants it; an agent that is left out acts by the player of its name, or by the
        only one.
      actor: its name, for messages.

    Raises:
      ConfigError: an agent or a player is unknown, or an agent has no player.
    """
    for agent, player in said.items():
        if player not in players:
            raise ConfigError(f"agents.{agent}: there is no player {player!r}; players: {', '.join(players)}")
        if agents is not None and agent not in agents:
            raise ConfigError(f"agents.{agent}: {actor} has no agent {agent!r}; agents: {', '.join(agents)}")
    if agents is None:
        return dict(said) or {player: player for player in players}
    found = {}
    for agent in agents:
        player = said.get(agent, agent if agent in players else players[0] if len(players) == 1 else "")
        if not player:
            raise ConfigError(f"agents: agent {agent!r} of {actor} has no player; players: {', '.join(players)}")
        found[agent] = player
    return found


class SeatAssigner(Protocol):
    """Gives games their agents."""

    @property
    def memory(self) -> Player | None:
        """A player whose actions depend on what it has seen before, if there is one."""

    def seat(self, game_id: str, place: int) -> Agents:
        """Return the agents of a game; see ``Seats``."""


class _Seat(NamedTuple):
    """Where an agent sits.

    Attributes:
      agent: its name.
      player: name of the player that acts for the agent.
      version: of the player; None for the newest.
      beside: how many agents act by the same player and version.
      number: of this one among them.
    """

    agent: str
    player: Player
    version: str | None
    beside: int
    number: int


class Seats:
    """Seats the agents of games: gives each one its player, and a lane of the player's memory."""

    def __init__(
        self, players: Mapping[str, Player], agents: Mapping[str, str], spaces: Mapping[str, AgentSpaces] | None = None
    ) -> None:
        """Prepare to seat.

        Args:
          players: by name.
          agents: agent -> ``player`` or ``player@version``.
          spaces: what the agents see and do, if the actor says that.

        Raises:
          ConfigError: an agent sees or does something else than its player has learned.
        """
        self._seats: list[_Seat] = []
        counts, seen = Counter(agents.values()), Counter[str]()
        for agent, chosen in agents.items():
            name, _, version = chosen.partition("@")
            if spaces is not None:
                _check(agent, spaces[agent], players[name])
            self._seats.append(_Seat(agent, players[name], version or None, counts[chosen], seen[chosen]))
            seen[chosen] += 1

    @property
    def memory(self) -> Player | None:
        """A seated player whose actions depend on what it has seen before, if there is one."""
        return next((seat.player for seat in self._seats if seat.player.memory), None)

    def seat(self, game_id: str, place: int) -> Agents:
        """Return the agents of a game; ``Agents.release`` must follow.

        Args:
          game_id: what the client calls it.
          place: its number among the games that can be open at once; -1 for one that keeps no memory.
        """
        found = {}
        for agent, player, version, beside, number in self._seats:
            found[agent] = Agent(agent, player.at(version), place * beside + number if place >= 0 else -1)
        return Agents(found, game_id)


def _check(agent: str, spaces: AgentSpaces, player: Player) -> None:
    flags = sum(choices_of(spaces.action)) if spaces.masked else 0
    for what, found, expected in (
        ("observations", spaces.observation, player.observation),
        ("actions", spaces.action, player.action),
        ("flags in its action mask", flags, player.flags),
    ):
        if found != expected:
            raise ConfigError(
                f"agent {agent!r}: expected the {what} that player {player.name!r} has learned with, {expected}, "
                f"found {found}"
            )
