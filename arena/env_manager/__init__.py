"""Managers of many copies of an environment."""

from collections.abc import Callable

from arena.common.errors import ConfigError
from arena.common.text import suggestion
from arena.env_manager.fault_counts import OnFault
from arena.env_manager.serial import BaseEnvManager
from arena.env_manager.settings import ManagerSettings
from arena.env_manager.subprocesses import SubprocessEnvManager
from arena.envs.interface import Environment

MANAGERS: dict[str, type[BaseEnvManager]] = {"serial": BaseEnvManager, "subprocess": SubprocessEnvManager}

__all__ = ["MANAGERS", "BaseEnvManager", "ManagerSettings", "SubprocessEnvManager", "create_env_manager"]


def create_env_manager(
    kind: str,
    make: Callable[[int], Environment],
    env_num: int,
    settings: ManagerSettings | None = None,
    on_fault: OnFault | None = None,
) -> BaseEnvManager:
    """Return a manager of ``env_num`` environment copies.

    Args:
      kind: ``serial`` steps the copies in this process, one after another; ``subprocess`` gives each copy a process.
      make: returns the copy with the given index.
      env_num: number of copies.
      settings: timeouts and limits; None for the defaults.
      on_fault: called with the index of a copy and its fault.

    Raises:
      ConfigError: there is no such kind, or the copies differ in their entities.
    """
    if kind not in MANAGERS:
        raise ConfigError(
            f"unknown environment manager {kind!r}{suggestion(kind, MANAGERS)}; expected one of {', '.join(MANAGERS)}"
        )
    return MANAGERS[kind](make, env_num, settings, on_fault)
