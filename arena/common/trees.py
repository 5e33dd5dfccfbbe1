"""Trees (nested dicts and tuples) of observations, actions and spaces, and their leaves."""

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

Tree = Any
"""An array, or a nested dict or tuple of arrays, shaped like a space."""


def map_space(space: spaces.Space, leaf: Callable[[spaces.Space], Any]) -> Tree:
    """Return a tree of the space's nesting with ``leaf(subspace)`` at each leaf."""
    if isinstance(space, spaces.Dict):
        return {key: map_space(sub, leaf) for key, sub in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(map_space(sub, leaf) for sub in space.spaces)
    return leaf(space)


def map_tree(function: Callable[..., Any], tree: Tree, *others: Tree) -> Tree:
    """Return a tree with ``function`` applied to each leaf (and the corresponding leaves of ``others``)."""
    if isinstance(tree, (np.ndarray, np.generic)):  # the most frequent case
        return function(tree, *others)
    if isinstance(tree, Mapping):
        return {key: map_tree(function, sub, *(other[key] for other in others)) for key, sub in tree.items()}
    if isinstance(tree, tuple):
        return tuple(map_tree(function, sub, *(o[i] for o in others)) for i, sub in enumerate(tree))
    return function(tree, *others)


def put(tree: Tree, where: Any, values: Tree) -> None:
    """Write values into the leaves of a tree: ``leaf[where] = value``."""
    if isinstance(tree, np.ndarray):  # the most frequent case
        tree[where] = values
    else:
        map_tree(lambda leaf, value: leaf.__setitem__(where, value), tree, values)


def tree_leaves(tree: Tree) -> list[Any]:
    """Return the leaves of a tree in order."""
    if isinstance(tree, Mapping):
        return [leaf for sub in tree.values() for leaf in tree_leaves(sub)]
    if isinstance(tree, tuple):
        return [leaf for sub in tree for leaf in tree_leaves(sub)]
    return [tree]


def leaf_dtype(space: spaces.Space) -> np.dtype:
    """Return the dtype in which values of a leaf space are sent."""
    if isinstance(space, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
        return np.dtype(space.dtype)
    raise TypeError(f"no wire format for the space {space}; expected Box, Discrete, MultiDiscrete or MultiBinary")


def leaf_shape(space: spaces.Space) -> tuple[int, ...]:
    """Return the shape of one value of a leaf space."""
    return tuple(space.shape or ())


class NamedLeaf(NamedTuple):
    """A leaf of a space, as one named tensor of a request or of a file.

    Attributes:
      name: the space's own, followed by the keys and indices that lead to the leaf: ``observation.camera``.
      shape, dtype: of one value.
      space: the leaf.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    space: spaces.Space


def named_leaves(space: spaces.Space, name: str) -> list[NamedLeaf]:
    """Return the leaves of a space in order, with names that begin with ``name``."""
    if isinstance(space, spaces.Dict):
        return [leaf for key, sub in space.spaces.items() for leaf in named_leaves(sub, f"{name}.{key}")]
    if isinstance(space, spaces.Tuple):
        return [leaf for index, sub in enumerate(space.spaces) for leaf in named_leaves(sub, f"{name}.{index}")]
    return [NamedLeaf(name, leaf_shape(space), leaf_dtype(space), space)]


def leaf_names(tree: Tree, name: str) -> list[str]:
    """Return the names that ``named_leaves`` would give to the leaves of a tree of the same nesting."""
    if isinstance(tree, Mapping):
        return [leaf for key, sub in tree.items() for leaf in leaf_names(sub, f"{name}.{key}")]
    if isinstance(tree, tuple):
        return [leaf for index, sub in enumerate(tree) for leaf in leaf_names(sub, f"{name}.{index}")]
    return [name]


def nest(space: spaces.Space, leaves: Iterable[Any]) -> Tree:
    """Return leaves, in the order of ``tree_leaves``, as a tree of the space's nesting."""
    left = iter(leaves)
    return map_space(space, lambda leaf: next(left))


def even_slices(items: int, parts: int) -> tuple[slice, ...]:
    """Split a number of items into contiguous parts that differ by at most one item."""
    edges = [round(i * items / parts) for i in range(parts + 1)]
    return tuple(slice(start, stop) for start, stop in itertools.pairwise(edges))
