"""Observations that show which entity observes, so that entities with one policy can take different roles."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from arena.common.errors import ConfigError
from arena.envs.interface import EntitySpaces, Environment, Timestep, state_space_of


class AgentIdEnvironment:
    """An environment with the number of the entity in each observation.

    A vector of floats is extended by a one-hot vector over all entities, as by SuperSuit's ``agent_indicator_v0``. Any
    other observation becomes a Dict of ``observation`` and ``agent_id``, which is Discrete.
    """

    def __init__(self, environment: Environment) -> None:
        """Wrap ``environment``.

        Raises:
          ConfigError: it has a single entity.
        """
        count = len(environment.entities)
        if count == 1:
            raise ConfigError("env.agent_id: expected an environment with several entities, found one")
        self._environment = environment
        self.turn_based = environment.turn_based
        pairs = [_numbered(entity, i, count) for i, entity in enumerate(environment.entities)]
        self.entities: tuple[EntitySpaces, ...] = tuple(spaces for spaces, _ in pairs)
        self._extend = [extend for _, extend in pairs]
        self.state_space = state_space_of(environment)

    def __getattr__(self, name: str) -> Any:
        # Methods and attributes of the environment itself, for calls by name.
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._environment, name)

    def reset(self, seed: int | None = None, options: dict | None = None) -> Timestep:
        """See ``Environment``."""
        return self._numbered(self._environment.reset(seed, options))

    def step(self, actions: Sequence[Any]) -> Timestep:
        """See ``Environment``."""
        return self._numbered(self._environment.step(actions))

    def _numbered(self, timestep: Timestep) -> Timestep:
        extended = [extend(seen) for extend, seen in zip(self._extend, timestep.observations, strict=True)]
        return timestep._replace(observations=tuple(extended))

    def render(self) -> np.ndarray | None:
        """See ``Environment``."""
        return self._environment.render()

    def close(self) -> None:
        """See ``Environment``."""
        self._environment.close()


def _numbered(entity: EntitySpaces, number: int, count: int) -> tuple[EntitySpaces, Callable[[Any], Any]]:
    """Return an entity's spaces with its number, and a function that extends its observations."""
    space = entity.observation
    if not (type(space) is spaces.Box and len(space.shape) == 1 and np.issubdtype(space.dtype, np.floating)):
        extended: spaces.Space = spaces.Dict({"observation": space, "agent_id": spaces.Discrete(count)})
        own = np.int64(number)
        return entity._replace(observation=extended), lambda seen: {"observation": seen, "agent_id": own}
    one_hot = np.zeros(count, space.dtype)
    one_hot[number] = 1
    low, high = np.zeros(count, space.dtype), np.ones(count, space.dtype)
    box = spaces.Box(np.concatenate([space.low, low]), np.concatenate([space.high, high]), dtype=space.dtype.type)
    return entity._replace(observation=box), lambda seen: np.concatenate([seen, one_hot])
