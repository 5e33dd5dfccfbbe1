"""Samples of real observations, against which exported or served policies are checked."""

from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from arena.common.errors import ConfigError
from arena.common.trees import Tree, leaf_names, map_tree, named_leaves, nest, tree_leaves
from arena.envs.interface import EntitySpaces
from arena.tensors.weights import read_tensors, write_tensors

if TYPE_CHECKING:  # imports Numba
    from arena.experience.rollout import Rollout

LARGEST = 8 * 2**20  # bytes of a sample
ENOUGH = 256  # number of observations kept if rollouts are shorter
MASK, START = "action_mask", "start"


class ObservationSample(NamedTuple):
    """T consecutive time steps of L lanes, so that recurrent policies can be compared, too.

    Attributes:
      observations: arrays ``[T, L, ...]``, nested as the space.
      action_mask: ``[T, L, flags]`` int8, nonzero is allowed; None without masks.
      starts: ``[T, L]`` bool, episode starts; the first step counts as one, since its predecessors are unknown.
    """

    observations: Tree
    action_mask: np.ndarray | None
    starts: np.ndarray

    @property
    def rows(self) -> int:
        """Number of observations."""
        return int(self.starts.size)

    def flat(self) -> "ObservationSample":
        """Return the same as one time step of all lanes: for feed-forward policies."""

        def one_slot(array: np.ndarray) -> np.ndarray:
            return array.reshape(1, -1, *array.shape[2:])

        mask = None if self.action_mask is None else one_slot(self.action_mask)
        return ObservationSample(map_tree(one_slot, self.observations), mask, one_slot(self.starts))

    def first_lanes(self, lanes: int) -> "ObservationSample":
        """Return a sample of the first lanes only."""
        mask = None if self.action_mask is None else self.action_mask[:, :lanes]
        return ObservationSample(
            map_tree(lambda leaf: leaf[:, :lanes], self.observations), mask, self.starts[:, :lanes]
        )

    def tensors(self) -> dict[str, np.ndarray]:
        """Return named arrays: ``observation`` or ``observation.key``, ``action_mask``, ``start``."""
        names = leaf_names(self.observations, "observation")
        arrays = dict(zip(names, tree_leaves(self.observations), strict=True))
        if self.action_mask is not None:
            arrays[MASK] = self.action_mask
        return {**arrays, START: self.starts}

    def write(self, path: Path) -> None:
        """Write the sample to a safetensors file, whole or not at all.

        Raises:
          OSError: the disk is full or the write fails.
        """
        write_tensors(path, self.tensors())


def sample_of(tensors: dict[str, np.ndarray], spaces: EntitySpaces, place: object) -> ObservationSample:
    """Return the sample contained in named tensors.

    Args:
      tensors: named arrays, possibly with others.
      spaces: spaces of the entity.
      place: source of the tensors, for messages.

    Raises:
      ConfigError: they do not fit the spaces.
    """
    expected = {leaf.name: (leaf.shape, leaf.dtype) for leaf in named_leaves(spaces.observation, "observation")}
    if spaces.mask_size:
        expected[MASK] = (spaces.mask_size,), np.dtype(np.int8)
    expected[START] = (), np.dtype(bool)
    grid = tensors[START].shape if START in tensors else (0, 0)
    for name, (shape, dtype) in expected.items():
        array = tensors.get(name)
        if array is None or len(grid) != 2 or array.shape != (*grid, *shape) or array.dtype != dtype:
            described = "none" if array is None else f"{array.dtype} {list(array.shape)}"
            raise ConfigError(
                f"{place}: expected {name} as {dtype} {[*grid, *shape]}, found {described}; "
                "record observations again, by more training or with --record"
            )
    starts = tensors[START].copy()
    starts[:1] = True
    leaves = [tensors[leaf.name] for leaf in named_leaves(spaces.observation, "observation")]
    return ObservationSample(nest(spaces.observation, leaves), tensors.get(MASK) if spaces.mask_size else None, starts)


def read_sample(path: Path, spaces: EntitySpaces) -> ObservationSample:
    """Return the sample in a file.

    Raises:
      ConfigError: the file does not exist, is damaged, or does not fit the spaces.
    """
    return sample_of(read_tensors(path), spaces, path)


class SampleKeeper:
    """Keeps the latest observations of a worker: sequences of some of its lanes.

    A rollout of ``ENOUGH`` observations is its own sample, copied only on request; of shorter ones the last few are
    kept.

    Attributes:
      empty: whether no rollout has been collected yet.
    """

    def __init__(self, rollout: "Rollout", rows: int, lanes: int | None = None) -> None:
        """Prepare to keep samples.

        Args:
          rollout: the rollout that the worker fills repeatedly.
          rows: largest number of observations of a sample.
          lanes: number of lanes to sample, the first ones; None for all.
        """
        self._rollout, self.empty = rollout, True
        row = sum(leaf[0, 0].nbytes for leaf in tree_leaves(rollout.observations))
        rows = min(rows, max(1, LARGEST // max(1, row)))
        lanes = rollout.lanes if lanes is None else lanes
        count = min(max(1, rows // rollout.horizon), lanes)
        self._lanes = np.linspace(0, lanes - 1, count).astype(int)
        self._rows = rows // count  # of each lane
        rollouts = -(-min(ENOUGH, rows) // (count * rollout.horizon))
        self._kept: deque[ObservationSample] | None = deque(maxlen=rollouts) if rollouts > 1 else None

    def keep_latest(self) -> None:
        """Copy the latest rollout, if one alone is too short for a sample."""
        self.empty = False
        if self._kept is not None:
            self._kept.append(self._take(slice(0, self._rollout.horizon)))

    def sample(self) -> ObservationSample:
        """Return the latest observations; to be called between two rollouts, after ``Rollout.begin``."""
        if self._kept is None:
            horizon = self._rollout.horizon
            return self._take(slice(max(0, horizon - self._rows) + 1, horizon + 1))
        parts = list(self._kept)

        def joined(*leaves: np.ndarray) -> np.ndarray:
            return np.concatenate(leaves)[-self._rows :]

        masks = [part.action_mask for part in parts if part.action_mask is not None]
        return ObservationSample(
            map_tree(joined, *(part.observations for part in parts)),
            joined(*masks) if masks else None,
            joined(*(part.starts for part in parts)),
        )

    def _take(self, slots: slice) -> ObservationSample:
        """Return a copy of some time steps of the sampled lanes."""
        rollout = self._rollout

        def chosen(array: np.ndarray) -> np.ndarray:
            return array[slots, self._lanes]

        mask = None if rollout.action_mask is None else chosen(rollout.action_mask)
        return ObservationSample(map_tree(chosen, rollout.observations), mask, chosen(rollout.starts))
