"""Layout of a row of a replay buffer; without Numba, so that a plan can compute a buffer's size."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from arena.common.trees import leaf_dtype, leaf_shape, map_space, tree_leaves
from arena.envs.interface import EntitySpaces

OBSERVATION, FOLLOWING = "observation.", "next."
"""Prefixes of the columns of observations before the action, and after it."""


def row_dtype(spaces: EntitySpaces, extras: Mapping[str, tuple[tuple[int, ...], Any]]) -> np.dtype:
    """Return the dtype of a row; see ``arena.experience.rows.Transitions``."""
    leaves = tree_leaves(map_space(spaces.observation, lambda leaf: [leaf_dtype(leaf), leaf_shape(leaf)]))
    columns: list[tuple[str, Any, tuple[int, ...]]] = []
    columns += [(f"{OBSERVATION}{number}", *leaf) for number, leaf in enumerate(leaves)]
    columns += [(name, dtype, shape) for name, (shape, dtype) in extras.items()]
    columns += [("reward", np.float32, ()), ("discount", np.float32, ())]
    columns += [(f"{FOLLOWING}{number}", *leaf) for number, leaf in enumerate(leaves)]
    if spaces.mask_size:
        columns.append(("next_mask", np.int8, (spaces.mask_size,)))
    return np.dtype(columns, align=True)
