"""Features extractors of Stable-Baselines3 as encoders, with the preprocessing that they expect."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces as gym_spaces
from torch import nn

from arena.common.trees import map_space, map_tree


def is_extractor(cls: type) -> bool:
    """Return whether a class is a features extractor of Stable-Baselines3."""
    return any(
        base.__name__ == "BaseFeaturesExtractor" and base.__module__.startswith("stable_baselines3.")
        for base in cls.__mro__
    )


class Extractor(nn.Module):
    """A features extractor of Stable-Baselines3: it reads floats, one-hot vectors, and images with channels first.

    Attributes:
      features_dim: width of the result.
      extractor: the unmodified module.
    """

    def __init__(self, cls: type[nn.Module], space: gym_spaces.Space, arguments: Mapping[str, Any]) -> None:
        """Call the class with the space that it would get there."""
        super().__init__()
        from stable_baselines3.common.preprocessing import preprocess_obs  # an optional package

        self._preprocess = preprocess_obs
        self._last = map_space(space, _has_channels_last)
        self._space = _channels_first(space)
        self.extractor = cls(self._space, **arguments)
        self.features_dim = self.extractor.features_dim

    def forward(self, observations: Any) -> torch.Tensor:
        """``[N, ...] -> [N, features_dim]``."""
        observations = map_tree(lambda x, last: x.permute(0, 3, 1, 2) if last else x, observations, self._last)
        return self.extractor(self._preprocess(observations, self._space))


def _has_channels_last(leaf: gym_spaces.Space) -> bool:
    from stable_baselines3.common.preprocessing import is_image_space, is_image_space_channels_first

    return isinstance(leaf, gym_spaces.Box) and is_image_space(leaf) and not is_image_space_channels_first(leaf)


def _channels_first(space: gym_spaces.Space) -> gym_spaces.Space:
    """Return a space with the channels of all images first."""
    if isinstance(space, gym_spaces.Dict):
        return gym_spaces.Dict({key: _channels_first(leaf) for key, leaf in space.spaces.items()})
    if not isinstance(space, gym_spaces.Box) or not _has_channels_last(space):
        return space
    low, high = (np.moveaxis(bound, -1, 0) for bound in (space.low, space.high))
    return gym_spaces.Box(low, high, dtype=space.dtype.type)
