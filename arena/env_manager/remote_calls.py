"""Attribute reads and method calls on an environment, by name."""

import traceback
from collections.abc import Mapping
from typing import Any, NamedTuple

from arena.common.text import suggestion
from arena.env_manager.faults import CallError
from arena.envs.interface import Environment


class CallResult(NamedTuple):
    """Result of an attribute read or method call on a copy in another process."""

    value: Any


def call_by_name(environment: Environment, kind: str, name: str, args: tuple, kwargs: Mapping[str, Any]) -> Any:
    """Return an attribute (``kind`` is ``get_attr``), or the result of a method (``call``).

    Raises:
      AttributeError: neither the environment nor the one that it adapts has this name.
      CallError: the method raised.
    """
    attribute = _find(environment, name)
    if kind == "get_attr":
        return attribute
    try:
        return attribute(*args, **kwargs)
    except Exception as error:
        text = "".join(traceback.format_exception(error)).rstrip()
        raise CallError(f"the call of {name!r} raised in the environment:\n{text}") from error


def _find(environment: Environment, name: str) -> Any:
    if hasattr(environment, name):
        return getattr(environment, name)
    native: Any = getattr(environment, "env", None)
    if hasattr(native, "has_wrapper_attr"):  # Gymnasium's lookup through a stack of wrappers
        if native.has_wrapper_attr(name):
            return native.get_wrapper_attr(name)
    elif hasattr(native, name):
        return getattr(native, name)
    public = [each for each in (*dir(environment), *dir(getattr(native, "unwrapped", native))) if each[0] != "_"]
    raise AttributeError(f"the environment has no attribute {name!r}{suggestion(name, public)}")
