"""Layout of a joint row of a replay buffer; without Numba, so that a plan can compute a buffer's size."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces as gym_spaces

from arena.common.trees import leaf_dtype, leaf_shape, map_space, tree_leaves
from arena.envs.interface import EntitySpaces
from arena.experience.row_layout import FOLLOWING, OBSERVATION

STATE, NEXT_STATE = "state.", "next_state."
"""Prefixes of the columns of the global state before the actions, and after them."""


class Kind(NamedTuple):
    """The entities of a seat that have equal spaces.

    Attributes:
      spaces: their spaces.
      entities: number of them.
      extras: ``Policy.extras`` of their lanes.
    """

    spaces: EntitySpaces
    entities: int
    extras: Mapping[str, tuple[tuple[int, ...], Any]]


def prefix_of(kind: int) -> str:
    """Return the prefix of the columns of a kind of entities, by its number."""
    return f"{kind}."


def joint_row_dtype(kinds: Sequence[Kind], state: gym_spaces.Space | None) -> np.dtype:
    """Return the dtype of a joint row; see ``arena.experience.joint_rows.JointTransitions``."""
    columns: list[tuple[str, Any, tuple[int, ...]]] = []
    for number, (spaces, entities, extras) in enumerate(kinds):
        own, leaves = prefix_of(number), _leaves(spaces.observation)
        for part in (OBSERVATION, FOLLOWING):
            columns += [(f"{own}{part}{leaf}", dtype, (entities, *shape)) for leaf, (dtype, shape) in enumerate(leaves)]
        columns += [(f"{own}{name}", dtype, (entities, *shape)) for name, (shape, dtype) in extras.items()]
        if spaces.mask_size:
            columns.append((f"{own}next_mask", np.int8, (entities, spaces.mask_size)))
    everyone = (sum(kind.entities for kind in kinds),)
    columns += [("present", bool, everyone), ("next_present", bool, everyone)]
    columns += [("reward", np.float32, everyone), ("discount", np.float32, everyone)]
    if state is not None:
        for part in (STATE, NEXT_STATE):
            columns += [(f"{part}{leaf}", dtype, shape) for leaf, (dtype, shape) in enumerate(_leaves(state))]
    return np.dtype(columns, align=True)


def _leaves(space: gym_spaces.Space) -> list[Any]:
    return tree_leaves(map_space(space, lambda leaf: [leaf_dtype(leaf), leaf_shape(leaf)]))
