"""Messages about numbers that are not finite."""

from typing import Any

import numpy as np

from arena.common.trees import tree_leaves


def not_finite_while_acting(updates: int, observations: Any, outputs: np.ndarray) -> str:
    """Return the message about outputs ``[N, ...]`` of networks that are not finite: their cause, and their lanes.

    Args:
      updates: number of updates of the networks.
      observations: what they have read, ``[N, ...]`` or a nest.
      outputs: the outputs.
    """
    leaves = [leaf for leaf in tree_leaves(observations) if np.issubdtype(leaf.dtype, np.floating)]
    first = "the networks' outputs" if all(np.isfinite(leaf).all() for leaf in leaves) else "the observations"
    odd = np.flatnonzero(~np.isfinite(outputs.reshape(len(outputs), -1)).all(1)).tolist()
    return f"after update {updates}: an action is not finite, first {first} (lanes {odd} of this batch)"
