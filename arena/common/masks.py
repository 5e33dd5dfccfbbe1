"""Action masks: flat arrays of flags, one for each action of a discrete space, 1 where the action is allowed."""

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces


class NoActionError(ValueError):
    """An entity that acts has no allowed action."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no action is allowed: the environment returned an action mask of zeros for entity {name!r}")


def emptiness_check(space: spaces.Space) -> Callable[[Any], bool]:
    """Return a function that takes the flags of a mask and returns whether a choice of the space has no allowed action.

    Args:
      space: Discrete or MultiDiscrete.
    """
    if isinstance(space, spaces.MultiDiscrete):
        starts = np.cumsum([0, *space.nvec.ravel()[:-1]])
        return lambda flags: not np.logical_or.reduceat(np.asarray(flags) != 0, starts).all()
    return lambda flags: not np.any(flags)


def mask_runs(space: spaces.Space, mask: np.ndarray) -> list[np.ndarray]:
    """Split a mask into the flags of each of the space's choices: a MultiDiscrete has several, a Discrete one."""
    if isinstance(space, spaces.MultiDiscrete):
        return np.split(mask, np.cumsum(space.nvec.ravel())[:-1])
    return [mask]


def sample_action(space: spaces.Space, mask: np.ndarray | None) -> Any:
    """Return a random action that the mask allows, from the space's own generator.

    Args:
      space: Discrete or MultiDiscrete, of any shape, if there is a mask; else any.
      mask: flags; None allows everything. A choice without an allowed action yields 0.
    """
    if mask is None:
        return space.sample()
    if isinstance(space, spaces.MultiDiscrete):
        allowed = [np.flatnonzero(run) for run in mask_runs(space, mask)]
        chosen = [space.np_random.choice(actions) if actions.size else 0 for actions in allowed]
        return (np.reshape(chosen, space.shape) + space.start).astype(space.dtype)
    return space.sample(np.array(mask, np.int8))
