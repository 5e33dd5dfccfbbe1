"""The entities of a PettingZoo environment of either kind."""

from typing import Any

from arena.common.errors import ConfigError
from arena.envs.options import AdapterOptions
from arena.envs.spaces import EntityAdapter, check_spaces, declares_mask


def entity_adapters(env: Any, options: AdapterOptions) -> tuple[list[Any], list[EntityAdapter]]:
    """Return the agents that a PettingZoo environment may have, in its order, and the adapter of each.

    Raises:
      ConfigError: it does not define ``possible_agents``, or its spaces are not supported.
    """
    agents = list(getattr(env, "possible_agents", None) or ())
    if not agents:
        raise ConfigError(
            f"the PettingZoo environment {env} has no possible_agents; expected the list of all agents that may "
            "appear, which fixes the entities of a match"
        )
    declares = declares_mask(env)
    adapters = [
        EntityAdapter(
            str(agent), env.observation_space(agent), env.action_space(agent), options, declares_mask=declares
        )
        for agent in agents
    ]
    check_spaces([adapter.spaces for adapter in adapters])
    return agents, adapters
