"""Which player each agent of a game acts by."""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from arena.common import registry
from arena.common.errors import ConfigError
from arena.gateway.actors.actor import Actor, AgentSpaces
from arena.gateway.actors.agent import Agent, Agents
from arena.gateway.actors.json_actor import JsonActor
from arena.gateway.models import Model
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
      agents: of the actor; None where it takes whom it is given: then each player is one, or what ``said`` names.
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


class Seats:
    """Seats the agents of games: gives each one its player, and a lane of the player's memory."""

    def __init__(
        self, models: Mapping[str, Model], players: Mapping[str, str], spaces: Mapping[str, AgentSpaces] | None = None
    ) -> None:
        """Prepare to seat.

        Args:
          models: the players by name.
          players: agent -> player.
          spaces: what the agents see and do, if the actor says that.

        Raises:
          ConfigError: an agent sees or does something else than its player has learned.
        """
        self._seats: list[tuple[str, Model, int, int]] = []  # agent, player, agents of the player, number among them
        counts, seen = Counter(players.values()), Counter[str]()
        for agent, player in players.items():
            model = models[player]
            if spaces is not None:
                _check(agent, spaces[agent], model)
            self._seats.append((agent, model, counts[player], seen[player]))
            seen[player] += 1

    @property
    def memory(self) -> Model | None:
        """A seated player whose actions depend on what it has seen before, if there is one."""
        return next((model for _, model, _, _ in self._seats if model.memory), None)

    def seat(self, game_id: str, place: int) -> Agents:
        """Return the agents of a game.

        Args:
          game_id: what the client calls it.
          place: its number among the games that can be open at once; -1 for one that keeps no memory.
        """
        return Agents(
            {
                agent: Agent(agent, model, place * of_it + number if place >= 0 else -1)
                for agent, model, of_it, number in self._seats
            },
            game_id,
        )


def _check(agent: str, spaces: AgentSpaces, model: Model) -> None:
    flags = sum(choices_of(spaces.action)) if spaces.masked else 0
    for what, found, expected in (
        ("observations", spaces.observation, model.observation),
        ("actions", spaces.action, model.action),
        ("flags in its action mask", flags, model.flags),
    ):
        if found != expected:
            raise ConfigError(
                f"agent {agent!r}: expected the {what} that player {model.name!r} has learned with, {expected}, "
                f"found {found}"
            )
