"""An exported file as a policy: takes the most likely actions, and keeps the recurrent states of its lanes."""

from typing import Any

import numpy as np

from arena.common.trees import nest, tree_leaves
from arena.experience.rollout import Decision
from arena.export.metadata import ExportMetadata
from arena.export.runtimes import Run


class ExportedPolicy:
    """Acts by an exported file.

    Attributes:
      recurrent: whether its actions depend on earlier observations of a lane.
      greedy: True: it provides the most likely actions only.
    """

    greedy = True

    def __init__(self, run: Run, about: ExportMetadata, lanes: int) -> None:
        """Create it; ``lanes`` is the number of recurrent states."""
        self._run, self._action, self._masks = run, about.spaces.action, about.spaces.mask_size
        self.recurrent = bool(about.memory)
        self._memory = np.zeros((lanes, *about.memory), np.float32) if about.memory else None

    def act(
        self,
        observations: Any,
        *,
        action_mask: np.ndarray | None = None,
        starts: np.ndarray | None = None,
        lanes: Any = None,
        deterministic: bool = True,
    ) -> Decision:
        """See ``arena.policies.interface.Policy``; the most likely actions are taken, whatever ``deterministic``.

        Raises:
          FloatingPointError: an output of the file is not finite.
        """
        inputs = list(tree_leaves(observations))
        rows = len(inputs[0])
        if self._masks:
            inputs.append(np.ones((rows, self._masks), np.int8) if action_mask is None else action_mask)
        if self._memory is not None:
            before = np.zeros((rows, *self._memory.shape[1:]), np.float32) if lanes is None else self._memory[lanes]
            inputs += [before, np.zeros(rows, bool) if starts is None else starts]
        outputs, *leaves = self._run(inputs)
        if not np.isfinite(outputs).all():
            odd = np.flatnonzero(~np.isfinite(outputs).all(1)).tolist()
            raise FloatingPointError(f"an action is not finite (rows {odd} of this batch)")
        if self._memory is not None:
            after = leaves.pop()
            if lanes is not None:
                self._memory[lanes] = after
        return Decision(nest(self._action, leaves), {})

    def worker_state(self) -> dict[str, np.ndarray]:
        """Return the recurrent states of the lanes."""
        return {} if self._memory is None else {"memory": self._memory}

    def load_worker_state(self, state: dict[str, Any]) -> None:
        """Load a state returned by ``worker_state``."""
        if self._memory is not None:
            self._memory[...] = state["memory"]
