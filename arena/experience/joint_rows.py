"""Joint rows for a replay buffer: a row is one copy at one time step, with all entities of a seat."""

from collections.abc import Sequence

import numpy as np
from gymnasium import spaces as gym_spaces

from arena.common.trees import map_space, tree_leaves
from arena.experience.joint_layout import NEXT_STATE, STATE, Kind, joint_row_dtype, prefix_of
from arena.experience.rollout import Rollout
from arena.experience.row_layout import FOLLOWING, OBSERVATION
from arena.experience.rows import OpenTransitions
from arena.tensors.numba_jit import compiled


class JointTransitions(OpenTransitions):
    """Converts rollouts to joint rows, each a transition over at most ``n_step`` time steps of one copy.

    All entities act at the same time, those of one copy in neighbouring lanes. As in ``Transitions``, step T of a
    rollout is step 0 of the next one, and open transitions of an episode that is left without an end are dropped.

    Entities are in the order of their kinds. Columns of a row: for kind b of k entities ``b.observation.0``, ...
    ``[k, ...]``, the policy's ``extras`` as ``b.name``, ``b.next.0``, ... and, with masks, ``b.next_mask``; for all K
    entities ``present``, ``next_present``, ``reward`` and ``discount``, each ``[K]``; ``state.0``, ... and
    ``next_state.0``, ... if there is a global state.

    An entity is present if it acts: in the next step too, or if its episode was truncated there. A row begins in a step
    in which any entity is present. It spans m steps: ``n_step``, or fewer if any entity is truncated or no entity acts
    any more. Rewards are summed up to the entity's own end; its discount is gamma^m, or 0 if it has terminated. The
    reward, the discount and the action of an entity that is not present mean nothing.
    """

    def __init__(
        self, kinds: Sequence[Kind], state: gym_spaces.Space | None, *, copies: int, gamma: float, n_step: int = 1
    ) -> None:
        """Allocate the buffers of open transitions.

        Args:
          kinds: the entities of the seat, grouped by equal spaces.
          state: space of the global state; None if rollouts hold none.
          copies: number of copies in the rollouts.
          gamma: discount of each step.
          n_step: number of steps that a row spans unless the episode ends before.
        """
        dtype = joint_row_dtype(kinds, state)
        first_step = ["present", *(name for name in dtype.names or () if name.startswith(STATE))]
        for number, kind in enumerate(kinds):
            own = prefix_of(number)
            leaves = range(len(tree_leaves(map_space(kind.spaces.observation, lambda leaf: [leaf]))))
            first_step += [f"{own}{OBSERVATION}{leaf}" for leaf in leaves]
            first_step += [f"{own}{name}" for name in kind.extras]
        super().__init__(dtype, first_step, copies, n_step)
        self._kinds = tuple(kinds)
        entities = sum(kind.entities for kind in kinds)
        self._shape = copies, entities
        self._powers = float(gamma) ** np.arange(n_step + 1)
        # of open transitions: the rewards so far, and which entities have terminated since
        self._collected = np.zeros((copies, n_step, entities), np.float64)
        self._ended = np.zeros((copies, n_step, entities), bool)

    def count_begun(self, rollout: Rollout) -> int:
        """Return the number of rows that begin in a rollout: steps of copies in which an entity acts."""
        return int(np.count_nonzero(self._joint(rollout, "acting")[:-1].any(2)))

    def _joint(self, rollout: Rollout, name: str) -> np.ndarray:
        """Return an array of a rollout for all entities, ``[T + 1, copies, K]``."""
        copies = self._shape[0]
        parts = [getattr(block, name) for block in rollout.blocks]
        parts = [part.reshape(len(part), copies, -1) for part in parts]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, 2)

    def rows(self, rollout: Rollout) -> np.ndarray:
        """Return the rows ``[N]`` that end in a rollout, copy by copy; keep open transitions for the next one."""
        copies, entities = self._shape
        most = self._began.size + rollout.horizon * copies
        began, copy, ended = np.empty((3, most), np.int64)
        reward, discount = np.empty((2, most, entities), np.float32)
        over, cut, acting = (self._joint(rollout, name) for name in ("over", "cut", "acting"))
        starts, void = (np.ascontiguousarray(self._joint(rollout, name)[:, :, 0]) for name in ("starts", "void"))
        count = _ends(
            self._powers,
            self._joint(rollout, "earned"),
            over,
            cut,
            acting,
            void,
            starts,
            self._open,
            self._began,
            self._collected,
            self._ended,
            began,
            copy,
            ended,
            reward,
            discount,
        )
        began, copy, ended = began[:count], copy[:count], ended[:count]
        rows = np.zeros(count, self.dtype)
        rows["reward"], rows["discount"] = reward[:count], discount[:count]
        rows["next_present"] = (acting[ended, copy] | cut[ended, copy]) & ~over[ended, copy]
        self._fill_first_steps(rows, rollout, began, copy)
        for number, (block, kind) in enumerate(zip(rollout.blocks, self._kinds, strict=True)):
            own = prefix_of(number)
            for leaf, array in enumerate(tree_leaves(block.observations)):
                rows[f"{own}{FOLLOWING}{leaf}"] = self._by_copy(array, kind)[ended, copy]
            if block.action_mask is not None:
                rows[f"{own}next_mask"] = self._by_copy(block.action_mask, kind)[ended, copy]
        for leaf, array in self._states(rollout):
            rows[f"{NEXT_STATE}{leaf}"] = array[ended, copy]
        self._carry(rollout)
        return rows

    def _by_copy(self, array: np.ndarray, kind: Kind) -> np.ndarray:
        """Return an array ``[T + 1, lanes, ...]`` of a kind as ``[T + 1, copies, k, ...]``."""
        return array.reshape(len(array), self._shape[0], kind.entities, *array.shape[2:])

    def _states(self, rollout: Rollout) -> list[tuple[int, np.ndarray]]:
        """Return the number of each leaf of the global state, and its array ``[T + 1, copies, ...]``."""
        state = rollout.blocks[0].global_state
        if state is None:
            return []
        return [(leaf, self._by_copy(array, self._kinds[0])[:, :, 0]) for leaf, array in enumerate(tree_leaves(state))]

    def _read_first_steps(
        self, rows: np.ndarray, at: slice | np.ndarray, rollout: Rollout, began: np.ndarray, source: np.ndarray
    ) -> None:
        for number, (block, kind) in enumerate(zip(rollout.blocks, self._kinds, strict=True)):
            own = prefix_of(number)
            for leaf, array in enumerate(tree_leaves(block.observations)):
                rows[f"{own}{OBSERVATION}{leaf}"][at] = self._by_copy(array, kind)[began, source]
            for name in kind.extras:
                rows[f"{own}{name}"][at] = self._by_copy(block.extras[name], kind)[began, source]
        rows["present"][at] = self._joint(rollout, "acting")[began, source]
        for leaf, array in self._states(rollout):
            rows[f"{STATE}{leaf}"][at] = array[began, source]


@compiled(
    "int64(float64[::1], float64[:, :, ::1], boolean[:, :, ::1], boolean[:, :, ::1], boolean[:, :, ::1],"
    " boolean[:, ::1], boolean[:, ::1], int64[::1], int64[:, ::1], float64[:, :, ::1], boolean[:, :, ::1], int64[::1],"
    " int64[::1], int64[::1], float32[:, ::1], float32[:, ::1])"
)
def _ends(
    powers: np.ndarray,
    earned: np.ndarray,
    over: np.ndarray,
    cut: np.ndarray,
    acting: np.ndarray,
    void: np.ndarray,
    starts: np.ndarray,
    opened: np.ndarray,
    began: np.ndarray,
    collected: np.ndarray,
    ended: np.ndarray,
    row_began: np.ndarray,
    row_copy: np.ndarray,
    row_ended: np.ndarray,
    row_reward: np.ndarray,
    row_discount: np.ndarray,
) -> int:
    """Write the rows that end in the steps 1 to T, and return their number.

    ``powers`` are those of gamma, from 0 to n; the next four are arrays of ``Rollout`` for all entities, the next two
    for each copy; ``opened`` to ``ended`` hold the open transitions, see ``JointTransitions``; the rest is written.
    """
    n, count, entities = len(powers) - 1, 0, earned.shape[2]
    last = len(acting) - 1
    for copy in range(acting.shape[1]):
        here = 0 if starts[0, copy] else opened[copy]
        for slot in range(last + 1):
            if slot:
                if starts[slot, copy] or void[slot, copy]:
                    here = 0
                is_cut, is_acting = False, False
                for e in range(entities):
                    is_cut |= cut[slot, copy, e]
                    is_acting |= acting[slot, copy, e]
                    for i in range(here):  # the newest has spanned no whole step yet, the one before it one, ...
                        if not ended[copy, i, e]:
                            collected[copy, i, e] += powers[here - 1 - i] * earned[slot, copy, e]
                            ended[copy, i, e] = over[slot, copy, e]
                done = here if is_cut or not is_acting else (1 if here == n else 0)
                for i in range(done):
                    row_began[count], row_copy[count], row_ended[count] = began[copy, i], copy, slot
                    for e in range(entities):
                        row_reward[count, e] = collected[copy, i, e]
                        row_discount[count, e] = 0.0 if ended[copy, i, e] else powers[here - i]
                    count += 1
                here -= done
                for i in range(here):
                    began[copy, i] = began[copy, done + i]
                    for e in range(entities):
                        collected[copy, i, e] = collected[copy, done + i, e]
                        ended[copy, i, e] = ended[copy, done + i, e]
            if slot == last:
                continue
            is_acting = False
            for e in range(entities):
                is_acting |= acting[slot, copy, e]
            if is_acting:
                began[copy, here] = slot
                for e in range(entities):
                    collected[copy, here, e], ended[copy, here, e] = 0.0, False
                here += 1
        opened[copy] = here
    return count
