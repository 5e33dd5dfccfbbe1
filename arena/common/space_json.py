"""Spaces as JSON, for files that describe their inputs and outputs without the environment."""

from typing import Any

import numpy as np
from gymnasium import spaces

from arena.common.errors import ConfigError


def space_to_json(space: spaces.Space) -> dict[str, Any]:
    """Return a space as a JSON object; a bound that is equal everywhere is one number, an infinite one a string.

    Raises:
      TypeError: it is not a Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of them.
    """
    if isinstance(space, spaces.Box):
        bounds = {"low": _numbers(space.low), "high": _numbers(space.high)}
        return {"type": "Box", **bounds, "shape": list(space.shape), "dtype": str(space.dtype)}
    if isinstance(space, spaces.Discrete):
        return {"type": "Discrete", "n": int(space.n), "start": int(space.start), "dtype": str(space.dtype)}
    if isinstance(space, spaces.MultiDiscrete):
        numbers = {"nvec": space.nvec.tolist(), "start": space.start.tolist()}
        return {"type": "MultiDiscrete", **numbers, "dtype": str(space.dtype)}
    if isinstance(space, spaces.MultiBinary):
        n = space.n  # a number or a shape, either of which spaces compare
        return {"type": "MultiBinary", "n": int(n) if isinstance(n, (int, np.integer)) else list(map(int, n))}
    if isinstance(space, spaces.Dict):
        return {"type": "Dict", "spaces": {key: space_to_json(sub) for key, sub in space.spaces.items()}}
    if isinstance(space, spaces.Tuple):
        return {"type": "Tuple", "spaces": [space_to_json(sub) for sub in space.spaces]}
    raise TypeError(
        f"the space {space} cannot be written; expected Box, Discrete, MultiDiscrete, MultiBinary or a nest"
    )


def space_from_json(found: Any) -> spaces.Space:
    """Return the space that ``space_to_json`` has written.

    Raises:
      ConfigError: it is no such object.
    """
    try:
        return _space(found)
    except (KeyError, TypeError, ValueError, AttributeError, AssertionError) as error:
        raise ConfigError(f"expected a space as JSON, found {str(found)[:80]} ({error})") from error


def _space(found: dict[str, Any]) -> spaces.Space:
    kind = found["type"]
    if kind == "Box":
        shape, dtype = tuple(found["shape"]), np.dtype(found["dtype"])
        low, high = (_bound(found[name], shape, dtype) for name in ("low", "high"))
        return spaces.Box(low, high, shape, dtype.type)
    if kind == "Discrete":
        return spaces.Discrete(found["n"], start=found["start"], dtype=np.dtype(found["dtype"]).type)
    if kind == "MultiDiscrete":
        return spaces.MultiDiscrete(found["nvec"], dtype=np.dtype(found["dtype"]).type, start=found["start"])
    if kind == "MultiBinary":
        return spaces.MultiBinary(found["n"] if isinstance(found["n"], int) else tuple(found["n"]))
    if kind == "Dict":
        return spaces.Dict([(key, _space(sub)) for key, sub in found["spaces"].items()])
    if kind == "Tuple":
        return spaces.Tuple([_space(sub) for sub in found["spaces"]])
    raise ValueError(f"unknown type {kind!r}")


def _numbers(bound: np.ndarray) -> Any:
    """Return bounds as JSON, which has no infinite numbers."""
    if bound.size and (bound == bound.flat[0]).all():
        return _number(bound.flat[0].item())
    return [_number(value) for value in bound.ravel().tolist()]


def _number(value: Any) -> Any:
    return value if np.isfinite(value) else str(value)


def _bound(found: Any, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    values = [float(v) if isinstance(v, str) else v for v in (found if isinstance(found, list) else [found])]
    array = np.asarray(values, dtype)
    return array.reshape(shape) if isinstance(found, list) else np.full(shape, array[0], dtype)
