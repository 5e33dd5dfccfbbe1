"""Questions to an environment that are no steps: attributes and calls, by name."""

import traceback
from collections.abc import Mapping
from typing import Any

from arena.common.text import suggestion
from arena.env_manager.faults import CallError
from arena.envs.interface import Environment


def ask(environment: Environment, what: str, name: str, args: tuple, kwargs: Mapping[str, Any]) -> Any:
    """Return an attribute (``what`` is ``get_attr``), or what a method returns (``call``).

    Raises:
      AttributeError: there is none of that name, neither in the environment nor in what it adapts.
      CallError: the method raised.
    """
    found = _find(environment, name)
    if what == "get_attr":
        return found
    try:
        return found(*args, **kwargs)
    except Exception as error:
        text = "".join(traceback.format_exception(error)).rstrip()
        raise CallError(f"the call of {name!r} raised in the environment:\n{text}") from error


def _find(environment: Environment, name: str) -> Any:
    if hasattr(environment, name):
        return getattr(environment, name)
    native: Any = getattr(environment, "env", None)
    if hasattr(native, "has_wrapper_attr"):  # Gymnasium's way through a pile of wrappers
        if native.has_wrapper_attr(name):
            return native.get_wrapper_attr(name)
    elif hasattr(native, name):
        return getattr(native, name)
    public = [each for each in (*dir(environment), *dir(getattr(native, "unwrapped", native))) if each[0] != "_"]
    raise AttributeError(f"the environment has no attribute {name!r}{suggestion(name, public)}")
