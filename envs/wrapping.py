"""Wrappers named by a configuration: Gymnasium's own, or any callable."""

import sys
from typing import Any

import gymnasium
import gymnasium.wrappers

from arena.common.errors import ConfigError
from arena.common.registry import is_reference, load
from arena.common.text import suggestion
from arena.envs.sources import MISFITS, missing, refused

GYMNASIUM_PREFIX = "gymnasium.wrappers."


def wrap(native: Any, use: str, settings: dict[str, Any]) -> Any:
    """Return ``native`` in the wrapper that ``use`` names, constructed with these keyword arguments.

    Args:
      native: an environment before it is adapted.
      use: a wrapper of ``gymnasium.wrappers`` (``FrameStackObservation``, with or without that prefix), or
        ``package.module:name`` or ``path/to/file.py:name``, a class or function that takes the environment first.
      settings: the other arguments.

    Raises:
      ConfigError: there is no such wrapper, it is made for another kind of environment, or it rejects its settings.
    """
    wrapper = _find(use)
    if not is_reference(use):
        # Gymnasium's wrappers require tuples, which YAML cannot write.
        settings = {key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()}
    for kind, base in _kinds():
        if isinstance(wrapper, type) and issubclass(wrapper, base) and not isinstance(native, base):
            raise ConfigError(
                f"the wrapper {use!r} is made for {kind}, the environment is of type {type(native).__qualname__}; wrap "
                "it with package.module:name, which takes the environment and returns one of the same kind"
            )
    try:
        wrapped = wrapper(native, **settings)
    except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
        raise missing(error, use) from error
    except (TypeError, ValueError, AssertionError) as error:
        # Any exception of Gymnasium's wrappers concerns their arguments; elsewhere only a call that does not fit does.
        if is_reference(use) and not any(misfit in str(error) for misfit in MISFITS):
            raise
        raise refused(use, settings, error, wrapper) from error
    if wrapped is None:
        raise ConfigError(f"the wrapper {use!r} returned None; expected the wrapped environment")
    return wrapped


def _find(use: str) -> Any:
    if is_reference(use):
        wrapper = load(use)
        if not callable(wrapper):
            raise ConfigError(f"the wrapper {use!r} is {wrapper!r:.80}; expected a class or function")
        return wrapper
    name = use.removeprefix(GYMNASIUM_PREFIX)
    try:
        wrapper = getattr(gymnasium.wrappers, name)
    except ImportError as error:
        raise missing(error, use) from error
    except AttributeError as error:
        renamed = f": {error}" if "renamed" in str(error) else ""
        raise ConfigError(
            f"unknown wrapper {use!r}{suggestion(name, gymnasium.wrappers.__all__)}{renamed}; expected one of "
            "gymnasium.wrappers, package.module:name or path/to/file.py:name"
        ) from error
    if not (isinstance(wrapper, type) and issubclass(wrapper, gymnasium.Wrapper)):
        raise ConfigError(f"{use!r} is not a wrapper{suggestion(name, gymnasium.wrappers.__all__)}")
    return wrapper


def _kinds() -> list[tuple[str, type]]:
    kinds: list[tuple[str, type]] = [("Gymnasium environments", gymnasium.Env)]
    pettingzoo = sys.modules.get("pettingzoo")
    if pettingzoo is not None:
        kinds += [
            ("PettingZoo Parallel environments", pettingzoo.ParallelEnv),
            ("PettingZoo AEC environments", pettingzoo.AECEnv),
        ]
    return kinds
