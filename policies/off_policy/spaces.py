"""Action spaces of the off-policy algorithms; without torch, so that a file can be checked before a run."""

import numpy as np
from gymnasium import spaces as gym_spaces

from arena.common.errors import ConfigError
from arena.envs.interface import EntitySpaces
from arena.policies.action_spaces import check_mask


def check_discrete(use: str, spaces: EntitySpaces) -> None:
    """Check that an entity's actions are Discrete, with a mask of their size if any; raise a ConfigError if not."""
    if not isinstance(spaces.action, gym_spaces.Discrete):
        raise _refusal(use, spaces, "a Discrete action space", "sac, td3 or ppo")
    if spaces.mask_size not in (0, spaces.action.n):
        raise ConfigError(
            f"entity {spaces.name!r}: expected an action mask of {spaces.action.n} flags for {spaces.action}, found "
            f"{spaces.mask_size}; a mask has one flag for each action"
        )


def check_box(use: str, spaces: EntitySpaces) -> None:
    """Check that an entity's actions are a Box of floats with finite bounds, without a mask."""
    space = spaces.action
    if not (
        isinstance(space, gym_spaces.Box)
        and np.issubdtype(space.dtype, np.floating)
        and space.is_bounded("both")
        and not spaces.mask_size
    ):
        raise _refusal(use, spaces, "a Box of floats with finite bounds", "dqn (Discrete) or ppo (all)")


def is_categorical(use: str, spaces: EntitySpaces) -> bool:
    """Return whether an entity's actions are Discrete or MultiDiscrete, and not a Box.

    Raises:
      ConfigError: they are none of these, or a mask has another size.
    """
    if isinstance(spaces.action, (gym_spaces.Discrete, gym_spaces.MultiDiscrete)):
        check_mask(spaces)
        return True
    if not isinstance(spaces.action, gym_spaces.Box):
        raise _refusal(use, spaces, "Discrete, MultiDiscrete, or a Box of floats with finite bounds", "ppo")
    check_box(use, spaces)
    return False


def _refusal(use: str, spaces: EntitySpaces, expected: str, instead: str) -> ConfigError:
    return ConfigError(
        f"entity {spaces.name!r}: {use} expects {expected}, found {spaces.action}; use {instead} for such actions"
    )
