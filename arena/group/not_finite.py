"""Explanations of values that are not finite while a player learns: their likely cause, and the remedy."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from arena.common.errors import GivenUpError
from arena.common.trees import tree_leaves
from arena.group.member import PlayerProcess

LARGE = 1e6
"""Magnitude from which rewards or observations count as the cause: squared losses then exceed float32 soon."""


@contextlib.contextmanager
def explaining(process: PlayerProcess, policy: Callable[[], Any], rollout: Any) -> Iterator[None]:
    """Turn a FloatingPointError in the block into one sentence; the traceback goes to the rank's log.

    Args:
      process: the process of the player.
      policy: returns the policy that acts or learns.
      rollout: the latest experience.

    Raises:
      GivenUpError: a FloatingPointError was raised.
    """
    try:
        yield
    except FloatingPointError as error:
        process.context.log.exception("numbers are not finite")
        settings = getattr(policy(), "settings", None)
        raise GivenUpError(f"player {process.player!r}: {error}; {cause_of(rollout, settings)}") from error


def cause_of(rollout: Any, settings: Any) -> str:
    """Return the largest magnitudes of a rollout, and the remedy for the likely cause by a policy's settings."""
    learning_rate = getattr(settings, "learning_rate", None)
    reward = _largest([block.rewards for block in rollout.blocks])
    observation = _largest([leaf for block in rollout.blocks for leaf in tree_leaves(block.observations)])
    magnitudes = f"largest reward {reward:.3g}, largest observation {observation:.3g}"
    if learning_rate is not None:
        magnitudes += f", learning rate {learning_rate:.3g}"
    if not reward < LARGE:
        return f"{magnitudes}: scale the rewards down, {_remedy(settings, 'normalize_rewards', 'NormalizeReward')}"
    if not observation < LARGE:
        remedy = _remedy(settings, "normalize_observations", "NormalizeObservation")
        return f"{magnitudes}: scale the observations down, {remedy}"
    return f"{magnitudes}: lower the learning rate, or set max_grad_norm"


def _remedy(settings: Any, key: str, wrapper: str) -> str:
    """Return how to scale: by a setting that the policy has and that is off, or by a wrapper."""
    if getattr(settings, key, None) is False:
        return f"for example {key}: true"
    return f"for example env.wrappers: [{{use: {wrapper}}}]"


def _largest(arrays: list[np.ndarray]) -> float:
    """Return the largest magnitude; infinity or NaN if there is one."""
    sizes = [float(np.max(np.abs(array))) for array in arrays if array.size and array.dtype.kind == "f"]
    return max(sizes, key=lambda size: np.inf if np.isnan(size) else size, default=0.0)
