"""Many environment copies in one place."""

from collections.abc import Callable

from arena.env_manager.base import BaseEnvManager
from arena.envs.interface import Environment
from arena.errors import ConfigError
from arena.registry import nearest

MANAGERS: dict[str, type[BaseEnvManager]] = {"serial": BaseEnvManager}

__all__ = ["MANAGERS", "BaseEnvManager", "create_env_manager"]


def create_env_manager(kind: str, make: Callable[[int], Environment], env_num: int) -> BaseEnvManager:
    """Return a manager of ``env_num`` environment copies.

    Args:
      kind: ``serial`` steps the copies one after the other, in this process.
      make: makes the copy with the given index.
      env_num: how many copies.

    Raises:
      ConfigError: there is no such kind, or the copies differ in their entities.
    """
    if kind not in MANAGERS:
        raise ConfigError(
            f"unknown environment manager {kind!r}{nearest(kind, MANAGERS)}; expected one of {', '.join(MANAGERS)}"
        )
    return MANAGERS[kind](make, env_num)
