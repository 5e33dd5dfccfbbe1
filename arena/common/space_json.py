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


def space_from_json(data: Any) -> spaces.Space:
    """Return the space that ``space_to_json`` has written.

    Raises:
      ConfigError: it is no such object.
    """
    try:
        return _space(data)
    except (KeyError, TypeError, ValueError, AttributeError, AssertionError) as error:
        raise ConfigError(f"expected a space as JSON, found {str(data)[:80]} ({error})") from error


def _space(data: dict[str, Any]) -> spaces.Space:
    kind = data["type"]
    if kind == "Box":
        shape, dtype = tuple(data["shape"]), np.dtype(data["dtype"])
        low, high = (_bound(data[name], shape, dtype) for name in ("low", "high"))
        return spaces.Box(low, high, shape, dtype.type)
    if kind == "Discrete":
        return spaces.Discrete(data["n"], start=data["start"], dtype=np.dtype(data["dtype"]).type)
    if kind == "MultiDiscrete":
        return spaces.MultiDiscrete(data["nvec"], dtype=np.dtype(data["dtype"]).type, start=data["start"])
    if kind == "MultiBinary":
        return spaces.MultiBinary(data["n"] if isinstance(data["n"], int) else tuple(data["n"]))
    if kind == "Dict":
        return spaces.Dict([(key, _space(sub)) for key, sub in data["spaces"].items()])
    if kind == "Tuple":
        return spaces.Tuple([_space(sub) for sub in data["spaces"]])
    raise ValueError(f"unknown type {kind!r}")


def _numbers(bound: np.ndarray) -> Any:
    """Return bounds as JSON, which has no infinite numbers."""
    if bound.size and (bound == bound.flat[0]).all():
        return _number(bound.flat[0].item())
    return [_number(value) for value in bound.ravel().tolist()]


def _number(value: Any) -> Any:
    return value if np.isfinite(value) else str(value)


def _bound(data: Any, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    values = [float(v) if isinstance(v, str) else v for v in (data if isinstance(data, list) else [data])]
    array = np.asarray(values, dtype)
    return array.reshape(shape) if isinstance(data, list) else np.full(shape, array[0], dtype)
