"""What the agents of games outside see and do."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from arena.common import registry
from arena.common.errors import ConfigError
from arena.common.space_json import space_from_json
from arena.config.gateway import GatewaySettings
from arena.envs.interface import EntitySpaces, Timestep
from arena.gateway.actors.actor import AgentSpaces
from arena.gateway.actors.seats import JSON_ACTOR, load_actor, spaces_of
from arena.gateway.values import choices_of


class ExternalGames:
    """The environment ``gateway`` where somebody asks what its entities are: it cannot be stepped.

    Attributes:
      entities: one for each agent of the actor, in its order.
    """

    turn_based = True

    def __init__(self, **settings: Any) -> None:
        """Find out what the agents see and do.

        Raises:
          ConfigError: the actor, or the environment that the games are copies of, does not say.
        """
        self.entities = entities_of(GatewaySettings(**settings))

    def reset(self, seed: int | None = None, options: dict | None = None) -> Timestep:
        """Refuse.

        Raises:
          ConfigError: always.
        """
        raise ConfigError(
            "environment 'gateway': its games come from outside while a run learns, and cannot be stepped here; "
            "to play against trained players, use arena serve RUN"
        )

    def step(self, actions: Sequence[Any]) -> Timestep:
        """Refuse; see ``reset``."""
        return self.reset()

    def render(self) -> None:
        """Return nothing: there is no picture."""

    def close(self) -> None:
        """Release nothing."""


def entities_of(settings: GatewaySettings) -> tuple[EntitySpaces, ...]:
    """Return the entities of games outside.

    Raises:
      ConfigError: see ``ExternalGames``.
    """
    if settings.game is not None:
        game = registry.make_environment(settings.game, settings.game_settings)
        game.close()
        return tuple(game.entities)
    if settings.actor == JSON_ACTOR:
        agents: Mapping[str, AgentSpaces] = {
            agent: _read(agent, given) for agent, given in (settings.spaces or {}).items()
        }
    else:
        actor = load_actor(settings.actor)
        said = spaces_of(actor, settings.settings)
        if said is None and settings.agents:
            nothing = AgentSpaces(spaces.Box(0, 0, (1,), np.float32), spaces.Discrete(1))
            said = dict.fromkeys(settings.agents, nothing)
        if said is None:
            raise ConfigError(
                f"actor: expected {actor.__name__}.spaces(config), or names of agents in settings.agents, found none"
            )
        agents = said
    return tuple(
        EntitySpaces(name, each.observation, each.action, sum(choices_of(each.action)) if each.masked else 0)
        for name, each in agents.items()
    )


def _read(agent: str, given: Mapping[str, Any]) -> AgentSpaces:
    unknown = given.keys() - set(AgentSpaces._fields)
    if unknown or not {"observation", "action"} <= given.keys():
        raise ConfigError(f"spaces.{agent}: expected observation, action and perhaps masked, found {', '.join(given)}")
    return AgentSpaces(
        space_from_json(given["observation"]), space_from_json(given["action"]), bool(given.get("masked", False))
    )
