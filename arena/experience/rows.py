"""Rows for a replay buffer from consecutive rollouts: transitions open at the end of one are completed by the next."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from arena.common.trees import tree_leaves
from arena.envs.interface import EntitySpaces
from arena.experience.rollout import Rollout
from arena.experience.row_layout import FOLLOWING, OBSERVATION, row_dtype
from arena.tensors.numba_jit import compiled


class OpenTransitions(ABC):
    """The transitions that a rollout leaves open, and the steps in which they began.

    Attributes:
      dtype: of a row, structured.
    """

    def __init__(self, dtype: np.dtype, first_step: Sequence[str], sources: int, n_step: int) -> None:
        """Allocate the buffers.

        Args:
          dtype: of a row, structured.
          first_step: columns of a row that are known in its first step.
          sources: number of lanes, or of copies, each with transitions of its own.
          n_step: largest number of open transitions of each.
        """
        self.dtype = dtype
        self._first_step = tuple(first_step)
        # Oldest first. The location of a first step is a time step of the current rollout, or (-1 and below) a place
        # of ``_carried``.
        self._open = np.zeros(sources, np.int64)
        self._began = np.zeros((sources, n_step), np.int64)
        self._carried = np.zeros((sources, n_step), dtype)

    @abstractmethod
    def _read_first_steps(
        self, rows: np.ndarray, at: slice | np.ndarray, rollout: Rollout, began: np.ndarray, source: np.ndarray
    ) -> None:
        """Write the columns ``first_step`` of ``rows[at]`` from the steps ``began`` of a rollout."""

    def _fill_first_steps(self, rows: np.ndarray, rollout: Rollout, began: np.ndarray, source: np.ndarray) -> None:
        """Write the columns ``first_step`` of rows that began in this rollout or an earlier one."""
        if not began.size or began.min() >= 0:
            self._read_first_steps(rows, slice(None), rollout, began, source)
            return
        fresh, old = np.flatnonzero(began >= 0), np.flatnonzero(began < 0)
        self._read_first_steps(rows, fresh, rollout, began[fresh], source[fresh])
        carried = self._carried[source[old], -1 - began[old]]
        for name in self._first_step:
            rows[name][old] = carried[name]

    def _carry(self, rollout: Rollout) -> None:
        """Keep the first steps of open transitions: the rollout will be overwritten."""
        source, place = np.nonzero(np.arange(self._began.shape[1]) < self._open[:, None])
        if not len(source):
            return
        first_steps = np.zeros(len(source), self.dtype)
        self._fill_first_steps(first_steps, rollout, self._began[source, place], source)
        self._carried[source, place] = first_steps
        self._began[source, place] = -1 - place


class Transitions(OpenTransitions):
    """Converts rollouts to rows, each a transition over at most ``n_step`` actions of one lane.

    Step T of a rollout is step 0 of the next one and is read once. If an episode is left without an end (the copy
    crashed, the match restarted), its open transitions are dropped. So none of this is part of checkpoints: episodes
    start over after a resume.

    Columns of a row: ``observation.0``, ... (a column for each leaf of the observation space, in order), the policy's
    ``extras`` by name, ``reward``, ``discount``, ``next.0``, ... and, if the entity has a mask, ``next_mask``. With r_i
    the reward of action i and m the number of actions that the row spans::

        reward = r_0 + gamma * r_1 + ... + gamma^(m - 1) * r_(m - 1)
        discount = gamma^m, or 0 if the episode has terminated

    The row of a truncated episode may span fewer actions and keeps the discount, since its ``next`` is the final
    observation.
    """

    def __init__(
        self,
        spaces: EntitySpaces,
        extras: Mapping[str, tuple[tuple[int, ...], Any]],
        *,
        lanes: int,
        gamma: float,
        n_step: int = 1,
    ) -> None:
        """Allocate the buffers of open transitions.

        Args:
          spaces: spaces of the entity in each lane.
          extras: ``Policy.extras``.
          lanes: number of lanes of the rollouts.
          gamma: discount of each action.
          n_step: number of actions that a row spans unless the episode ends before.
        """
        dtype = row_dtype(spaces, extras)
        self._extras = tuple(extras)
        self._leaves = range(sum(name.startswith(OBSERVATION) for name in dtype.names or ()))
        observations = [f"{OBSERVATION}{leaf}" for leaf in self._leaves]
        super().__init__(dtype, [*observations, *self._extras], lanes, n_step)
        self._powers = float(gamma) ** np.arange(n_step + 1)
        self._collected = np.zeros((lanes, n_step), np.float64)  # rewards so far
        self._room = np.empty((3, 0), np.int64), np.empty((2, 0), np.float32)

    def rows(self, rollout: Rollout) -> np.ndarray:
        """Return the rows ``[N]`` that end in a rollout, lane by lane; keep open transitions for the next one."""
        most = self._began.size + rollout.horizon * rollout.lanes
        if self._room[0].shape[1] < most:
            self._room = np.empty((3, most), np.int64), np.empty((2, most), np.float32)
        (began, lane, ended), (reward, discount) = self._room
        count = _ends(
            self._powers,
            rollout.earned,
            rollout.over,
            rollout.cut,
            rollout.void,
            rollout.acting,
            rollout.starts,
            self._open,
            self._began,
            self._collected,
            began,
            lane,
            ended,
            reward,
            discount,
        )
        began, lane, ended = began[:count], lane[:count], ended[:count]
        rows = np.zeros(count, self.dtype)
        self._fill_first_steps(rows, rollout, began, lane)
        rows["reward"], rows["discount"] = reward[:count], discount[:count]
        leaves = tree_leaves(rollout.observations)
        for number in self._leaves:
            rows[f"{FOLLOWING}{number}"] = leaves[number][ended, lane]
        if rollout.action_mask is not None:
            rows["next_mask"] = rollout.action_mask[ended, lane]
        self._carry(rollout)
        return rows

    def count_begun(self, rollout: Rollout) -> int:
        """Return the number of transitions that begin in a rollout."""
        return int(np.count_nonzero(rollout.acting[: rollout.horizon]))

    def _read_first_steps(
        self, rows: np.ndarray, at: slice | np.ndarray, rollout: Rollout, began: np.ndarray, source: np.ndarray
    ) -> None:
        leaves = tree_leaves(rollout.observations)
        for number in self._leaves:
            rows[f"{OBSERVATION}{number}"][at] = leaves[number][began, source]
        for name in self._extras:
            rows[name][at] = rollout.extras[name][began, source]


@compiled(
    "int64(float64[::1], float64[:, ::1], boolean[:, ::1], boolean[:, ::1], boolean[:, ::1], boolean[:, ::1],"
    " boolean[:, ::1], int64[::1], int64[:, ::1], float64[:, ::1], int64[::1], int64[::1], int64[::1], float32[::1],"
    " float32[::1])"
)
def _ends(
    powers: np.ndarray,
    earned: np.ndarray,
    over: np.ndarray,
    cut: np.ndarray,
    void: np.ndarray,
    acting: np.ndarray,
    starts: np.ndarray,
    opened: np.ndarray,
    began: np.ndarray,
    collected: np.ndarray,
    row_began: np.ndarray,
    row_lane: np.ndarray,
    row_ended: np.ndarray,
    row_reward: np.ndarray,
    row_discount: np.ndarray,
) -> int:
    """Write the transitions that end in the steps 1 to T, and return their number.

    ``powers`` are those of gamma, from 0 to n; the next six are arrays of ``Rollout``; ``opened`` to ``collected`` hold
    the open transitions, see ``Transitions``; the rest is written: the steps in which each transition began and ended.
    """
    n, count = len(powers) - 1, 0
    for lane in range(acting.shape[1]):
        here = 0 if starts[0, lane] else opened[lane]
        if acting[0, lane]:
            began[lane, here], collected[lane, here] = 0, 0.0
            here += 1
        for slot in range(1, len(acting)):
            if starts[slot, lane] or void[slot, lane]:
                here = 0
            ends = over[slot, lane] or cut[slot, lane]
            for i in range(here):  # the newest has spanned no whole action yet, the one before it one, ...
                collected[lane, i] += powers[here - 1 - i] * earned[slot, lane]
            if here and (ends or acting[slot, lane]):
                done = here if ends else (1 if here == n else 0)
                for i in range(done):
                    row_began[count], row_lane[count], row_ended[count] = began[lane, i], lane, slot
                    row_reward[count] = collected[lane, i]
                    row_discount[count] = 0.0 if over[slot, lane] else powers[here - i]
                    count += 1
                here -= done
                for i in range(here):
                    began[lane, i], collected[lane, i] = began[lane, done + i], collected[lane, done + i]
            if acting[slot, lane] and slot < len(acting) - 1:
                began[lane, here], collected[lane, here] = slot, 0.0
                here += 1
        opened[lane] = here
    return count
