"""Explains numbers that are not finite while a player learns: what they may come from, and what to change."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from arena.common.errors import GivenUpError
from arena.common.trees import tree_leaves

LARGE = 1e6
"""Magnitude from which on rewards or observations are taken for the cause: squares of losses leave float32 soon."""


@contextlib.contextmanager
def explaining(process: Any, policy: Callable[[], Any], rollout: Any) -> Iterator[None]:
    """Turn numbers that are not finite, in the block, into one sentence; the traceback goes to the rank's log.

    Args:
      process: a ``PlayerProcess``.
      policy: returns the policy that acts or learns.
      rollout: of the last experience.

    Raises:
      GivenUpError: a FloatingPointError was raised.
    """
    try:
        yield
    except FloatingPointError as error:
        process.context.log.exception("numbers are not finite")
        settings = getattr(policy(), "settings", None)
        rate = getattr(settings, "learning_rate", None)
        raise GivenUpError(f"player {process.player!r}: {error}; {cause_of(rollout, rate)}") from error


def cause_of(rollout: Any, learning_rate: float | None) -> str:
    """Return the largest numbers of a rollout, and what to change about the likely cause."""
    reward = _largest([rollout.rewards])
    observation = _largest(tree_leaves(rollout.observations))
    found = f"largest reward {reward:.3g}, largest observation {observation:.3g}"
    if learning_rate is not None:
        found += f", learning rate {learning_rate:.3g}"
    if not reward < LARGE:
        return f"{found}: scale the rewards down, for example env.wrappers: [{{use: NormalizeReward}}]"
    if not observation < LARGE:
        return f"{found}: scale the observations down, for example env.wrappers: [{{use: NormalizeObservation}}]"
    return f"{found}: lower the learning rate, or set max_grad_norm"


def _largest(arrays: list[np.ndarray]) -> float:
    """Return the largest magnitude; infinity or NaN if there is one."""
    sizes = [float(np.max(np.abs(array))) for array in arrays if array.size and array.dtype.kind == "f"]
    return max(sizes, key=lambda size: np.inf if np.isnan(size) else size, default=0.0)
