"""Spaces of the agents of external games."""

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
    """The environment ``gateway`` for code that needs its entities only: it cannot be stepped.

    Attributes:
      entities: one for each agent of the actor, in its order.
    """

    turn_based = True

    def __init__(self, **settings: Any) -> None:
        """Collect the agents' spaces.

        Raises:
          ConfigError: neither the actor nor the environment of the games defines them.
        """
        self.entities = entities_of(GatewaySettings(**settings))

    def reset(self, seed: int | None = None, options: dict | None = None) -> Timestep:
        """Raise: external games cannot be reset.

        Raises:
          ConfigError: always.
        """
        raise ConfigError(
            "environment 'gateway': its games come from outside while a run learns, and cannot be stepped here; "
            "to play against trained players, use arena serve RUN"
        )

    def step(self, actions: Sequence[Any]) -> Timestep:
        """Raise; see ``reset``."""
        return self.reset()

    def render(self) -> None:
        """Return None: there is no picture."""

    def close(self) -> None:
        """Do nothing: it holds no resources."""


def entities_of(settings: GatewaySettings) -> tuple[EntitySpaces, ...]:
    """Return the entities of external games.

    Raises:
      ConfigError: see ``ExternalGames``.
    """
    if settings.game is not None:
        game = registry.make_environment(settings.game, settings.game_settings)
        game.close()
        return tuple(game.entities)
    if settings.actor == JSON_ACTOR:
        agents: Mapping[str, AgentSpaces] = {
            agent: _read(agent, description) for agent, description in (settings.spaces or {}).items()
        }
    else:
        actor = load_actor(settings.actor)
        declared = spaces_of(actor, settings.settings)
        if declared is None and settings.agents:
            nothing = AgentSpaces(spaces.Box(0, 0, (1,), np.float32), spaces.Discrete(1))
            declared = dict.fromkeys(settings.agents, nothing)
        if declared is None:
            raise ConfigError(
                f"actor: expected {actor.__name__}.spaces(config), or names of agents in settings.agents, found none"
            )
        agents = declared
    return tuple(
        EntitySpaces(name, each.observation, each.action, sum(choices_of(each.action)) if each.masked else 0)
        for name, each in agents.items()
    )


def _read(agent: str, description: Mapping[str, Any]) -> AgentSpaces:
    unknown = description.keys() - set(AgentSpaces._fields)
    if unknown or not {"observation", "action"} <= description.keys():
        raise ConfigError(
            f"spaces.{agent}: expected observation, action and perhaps masked, found {', '.join(description)}"
        )
    return AgentSpaces(
        space_from_json(description["observation"]),
        space_from_json(description["action"]),
        bool(description.get("masked", False)),
    )
