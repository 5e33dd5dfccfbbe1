"""Checks of action spaces against the built-in policies, without torch, to be made before a run starts."""

import numpy as np
from gymnasium import spaces as gym_spaces

from arena.common.errors import ConfigError
from arena.envs.interface import EntitySpaces


def check_stochastic(spaces: EntitySpaces) -> None:
    """Check that a distribution over the actions of an entity exists, and supports its mask.

    Raises:
      ConfigError: it does not exist, or does not support the mask.
    """
    check_actions(spaces.action, spaces.name)
    check_mask(spaces)


def check_mask(spaces: EntitySpaces) -> None:
    """Check that the action mask of an entity fits its actions.

    Raises:
      ConfigError: the sizes differ.
    """
    flags = count_flags(spaces.action)
    if spaces.mask_size not in (0, flags):
        raise ConfigError(
            f"entity {spaces.name!r}: expected an action mask of {flags} flags for {spaces.action}, found "
            f"{spaces.mask_size}; a mask has one flag for each discrete action"
        )


def check_actions(space: gym_spaces.Space, entity: str) -> None:
    """Check that there is a distribution over an action space.

    Raises:
      ConfigError: there is none.
    """
    if isinstance(space, (gym_spaces.Discrete, gym_spaces.MultiDiscrete, gym_spaces.MultiBinary)):
        return
    if isinstance(space, gym_spaces.Box) and np.issubdtype(space.dtype, np.floating):
        return
    if isinstance(space, gym_spaces.Tuple) and space.spaces:
        parts = list(space.spaces)
    elif isinstance(space, gym_spaces.Dict) and space.spaces:
        parts = list(space.spaces.values())
    else:
        raise ConfigError(
            f"entity {entity!r}: this policy cannot choose from {space}; expected Discrete, MultiDiscrete, "
            "MultiBinary, a Box of floats, or Dict and Tuple of them; random plays any action space"
        )
    for part in parts:
        check_actions(part, entity)


def count_flags(space: gym_spaces.Space) -> int:
    """Return the number of flags in a mask of an action space: one for each discrete action."""
    if isinstance(space, gym_spaces.Discrete):
        return int(space.n)
    if isinstance(space, gym_spaces.MultiDiscrete):
        return int(space.nvec.sum())
    if isinstance(space, gym_spaces.Tuple):
        return sum(map(count_flags, space.spaces))
    if isinstance(space, gym_spaces.Dict):
        return sum(map(count_flags, space.spaces.values()))
    return 0
