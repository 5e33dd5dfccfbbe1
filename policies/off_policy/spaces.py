"""Action spaces of the off-policy algorithms; without torch, so that a file can be checked before a run."""

import numpy as np
from gymnasium import spaces as gym_spaces

from arena.common.errors import ConfigError
from arena.envs.interface import EntitySpaces


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


def _refusal(use: str, spaces: EntitySpaces, expected: str, instead: str) -> ConfigError:
    return ConfigError(
        f"entity {spaces.name!r}: {use} expects {expected}, found {spaces.action}; use {instead} for such actions"
    )
