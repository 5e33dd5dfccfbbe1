"""Values of spaces: a client's or an actor's value, checked and laid out as a row of a batch; and back to JSON."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from arena.common.trees import Tree, leaf_dtype, leaf_shape, map_space, map_tree

_KINDS = {"b": "true or false", "i": "whole numbers", "u": "whole numbers", "f": "numbers"}


class SpaceError(ValueError):
    """A value does not belong to its space."""


class RowReader:
    """Reads values of a space into rows, arrays ``[N, ...]`` in the dtypes of policies."""

    def __init__(self, space: spaces.Space, name: str, rows: int | None = None) -> None:
        """Prepare to read.

        Args:
          space: any nesting of Dict and Tuple over Box, Discrete, MultiDiscrete, MultiBinary.
          name: name of the value in messages: ``"observation"``.
          rows: None to read one value into arrays ``[1, ...]``; a number to read that many, stacked.
        """
        self._read = _reader(space, name, rows)

    def __call__(self, value: Any) -> Tree:
        """Return the rows of one value, or of a stack of them: arrays, numbers or lists, nested as the space.

        Raises:
          SpaceError: its nesting, its shape or a number in it is wrong; the message states where.
        """
        return self._read(value)


def _reader(space: spaces.Space, name: str, rows: int | None) -> Callable[[Any], Tree]:
    if isinstance(space, spaces.Dict):
        parts = {key: _reader(sub, f"{name}.{key}", rows) for key, sub in space.spaces.items()}
        return lambda value: _read_mapping(parts, value, name)
    if isinstance(space, spaces.Tuple):
        items = tuple(_reader(sub, f"{name}.{index}", rows) for index, sub in enumerate(space.spaces))
        return lambda value: _read_sequence(items, value, name)
    return leaf_reader(space, name, rows)


def _read_mapping(parts: Mapping[str, Callable[[Any], Tree]], value: Any, name: str) -> Tree:
    if not isinstance(value, Mapping):
        raise SpaceError(f"{name}: expected the keys {', '.join(parts)}, found {_kind(value)}")
    if value.keys() != parts.keys():
        raise SpaceError(f"{name}: expected the keys {', '.join(parts)}, found {', '.join(map(str, value)) or 'none'}")
    return {key: part(value[key]) for key, part in parts.items()}


def _read_sequence(items: tuple[Callable[[Any], Tree], ...], value: Any, name: str) -> Tree:
    if not isinstance(value, (list, tuple)) or len(value) != len(items):
        raise SpaceError(f"{name}: expected a list of {len(items)}, found {_kind(value)}")
    return tuple(item(part) for item, part in zip(items, value, strict=True))


def leaf_reader(space: spaces.Space, name: str, rows: int | None = None) -> Callable[[Any], np.ndarray]:
    """Return a function that reads values of a leaf space.

    Args:
      space: Box, Discrete, MultiDiscrete or MultiBinary.
      name: name of the value in messages.
      rows: None to read one value into an array ``[1, ...]``; a number to read an array ``[rows, ...]``.
    """
    shape, dtype, check = leaf_shape(space), leaf_dtype(space), _limits(space, name)
    expected = shape if rows is None else (rows, *shape)
    floating = dtype.kind == "f"

    def read(value: Any) -> np.ndarray:
        array = value if type(value) is np.ndarray else as_array(value, name)
        if array.shape != expected:
            raise SpaceError(f"{name}: expected shape {list(expected)}, found {list(array.shape)}")
        if array.dtype != dtype:
            array = _converted(array, dtype, name)
        if floating and not np.isfinite(array).all():
            raise SpaceError(f"{name}: expected finite numbers, found NaN or infinity")
        if check is not None:
            check(array)
        return array if rows is not None else array[np.newaxis]

    return read


def as_array(value: Any, name: str) -> np.ndarray:
    """Return an array for JSON or Python numbers.

    Raises:
      SpaceError: lists of different lengths, or something else than numbers.
    """
    try:
        array = np.asarray(value)
    except (ValueError, OverflowError) as error:
        raise SpaceError(f"{name}: expected lists of equal lengths, found some that differ") from error
    if array.dtype.kind not in "biuf" and array.size:
        raise SpaceError(f"{name}: expected numbers, found {_kind(value)}")
    return array


def _converted(array: np.ndarray, dtype: np.dtype, name: str) -> np.ndarray:
    """Return the array in the space's dtype, without loss except for digits of a smaller float."""
    kind, expected = array.dtype.kind, dtype.kind
    if not array.size:
        return array.astype(dtype)
    fits = expected == "f" and kind in "iuf"
    if expected in "iu" and kind in "iu":
        limits = np.iinfo(dtype)
        fits = bool(array.min() >= limits.min and array.max() <= limits.max)
        if not fits:
            raise SpaceError(f"{name}: expected numbers of {limits.min} to {limits.max}, found others")
    if not fits:
        raise SpaceError(f"{name}: expected {_KINDS.get(expected, 'numbers')}, found {_KINDS.get(kind, 'others')}")
    return array.astype(dtype)  # later checks find infinities


def _limits(space: spaces.Space, name: str) -> Callable[[np.ndarray], None] | None:
    """Return a check of choices for their range; the bounds of a Box are not checked."""
    if isinstance(space, spaces.Discrete):
        low, high = np.asarray(int(space.start)), np.asarray(int(space.start + space.n - 1))
    elif isinstance(space, spaces.MultiDiscrete):
        low, high = np.asarray(space.start), np.asarray(space.start + space.nvec - 1)
    elif isinstance(space, spaces.MultiBinary):
        low, high = np.asarray(0), np.asarray(1)
    else:
        return None
    expected = f"{low.min()} to {high.max()}" if low.ndim == 0 else f"{low.tolist()} to {high.tolist()}"

    def check(array: np.ndarray) -> None:
        if (array < low).any() or (array > high).any():
            raise SpaceError(f"{name}: expected {expected}, found {array.tolist()}")

    return check


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, str):
        return "a text"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return f"the keys {', '.join(map(str, list(value)[:8])) or 'of an empty object'}"
    return f"a list of {len(value)}" if isinstance(value, (list, tuple)) else "something else"


def choices_of(action: spaces.Space) -> list[int]:
    """Return the number of choices of each part of an action, which is the number of its flags in an action mask.

    Raises:
      ValueError: the space has no choices.
    """
    if isinstance(action, spaces.Discrete):
        return [int(action.n)]
    if isinstance(action, spaces.MultiDiscrete):
        return [int(size) for size in action.nvec.flat]
    raise ValueError(f"expected an action mask with Discrete or MultiDiscrete only, found one with {action}")


def mask_reader(action: spaces.Space, name: str, rows: int | None = None) -> Callable[[Any], np.ndarray]:
    """Return a function that reads action masks, int8 and nonzero where allowed; see ``leaf_reader``.

    Raises:
      SpaceError: raised by the function: the shape is wrong, or a part of the action has no allowed choice.
    """
    sizes = choices_of(action)
    read_flags = leaf_reader(spaces.Box(-128, 127, (sum(sizes),), np.int8), name, rows)
    parts = np.cumsum([0, *sizes[:-1]])

    def read(value: Any) -> np.ndarray:
        flags = read_flags(np.asarray(value, np.int8) if isinstance(value, np.ndarray) else value)
        if not np.logical_or.reduceat(flags != 0, parts, axis=-1).all():
            raise SpaceError(f"{name}: expected at least one allowed action, found none")
        return flags

    return read


def first_row(batch: Tree) -> Tree:
    """Return the first value of arrays ``[N, ...]``."""
    return map_tree(lambda array: array[0], batch)


def to_json(value: Tree) -> Any:
    """Return a value, arrays or NumPy scalars nested as its space, as JSON values."""
    return map_tree(lambda array: array.tolist(), value)


def empty_rows(space: spaces.Space, rows: int) -> Tree:
    """Return arrays ``[rows, ...]`` for values of a space."""
    return map_space(space, lambda leaf: np.zeros((rows, *leaf_shape(leaf)), leaf_dtype(leaf)))
