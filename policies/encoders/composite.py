"""Encoders of whole observations: one encoder for each leaf of a nested space."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces as gym_spaces
from torch import nn

from arena.common.errors import ConfigError
from arena.common.trees import map_tree
from arena.policies.encoders.images import Convolution, is_image
from arena.policies.encoders.leaves import OneHot, Vector, byte_scale
from arena.policies.normalization import Normalization
from arena.policies.settings.networks import EncoderSettings
from arena.tensors.reducer import Reducer


class Encoder(nn.Module):
    """Encoder of an observation: one encoder for each leaf of a nested space, with concatenated features."""

    def __init__(self, space: gym_spaces.Space, settings: EncoderSettings) -> None:
        """Build an encoder for each leaf, in the order of the space."""
        super().__init__()
        self.paths = leaf_paths(space)
        encoders = [_leaf_encoder(leaf, settings) for leaf in leaf_spaces(space)]
        self.leaves = nn.ModuleList(encoders)
        self.width = sum(encoder.width for encoder in encoders)

    def forward(self, observations: Any) -> torch.Tensor:
        """Encode a tensor ``[N, ...]``, or a nested dict or tuple of them ``-> [N, width]``."""
        features = [leaf(_at(observations, path)) for leaf, path in zip(self.leaves, self.paths, strict=True)]
        return features[0] if len(features) == 1 else torch.cat(features, -1)

    def arranged(self, observations: Any) -> Any:
        """Return observations ``[N, ...]`` with images in the order in memory in which they are read fastest.

        To be called once for rows that are read several times.
        """
        encoders = iter(self.leaves)  # the leaves of observations have the order of the space's
        return map_tree(lambda x: _arranged(next(encoders), x), observations)

    @property
    def normalizations(self) -> list[Normalization | None]:
        """Running normalisation of each leaf; None for leaves without."""
        return [leaf.applied if isinstance(leaf, Vector) else None for leaf in self.leaves]

    def measure(self, columns: Sequence[np.ndarray], where: Any, group: Reducer) -> None:
        """Include observations in the statistics of the normalisations; all workers of a group make this call.

        Args:
          columns: array for each leaf.
          where: index of this worker's observations in them: ``column[where]`` is ``[N, ...]``, with any N.
          group: all workers.

        Raises:
          FloatingPointError: a number is not finite; raised by all workers together.
        """
        for normalization, column in zip(self.normalizations, columns, strict=True):
            if normalization is not None:
                rows = column[where]
                normalization.add(rows.reshape(len(rows), len(normalization.shift)), group)


def _arranged(encoder: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return encoder.arranged(x) if isinstance(encoder, Convolution) else x


def share_normalization(source: Encoder, *encoders: Encoder) -> None:
    """Let encoders of the same space, or of a tuple that begins with it, use the statistics of ``source``."""
    for encoder in encoders:
        for leaf, shared in zip(encoder.leaves, source.leaves, strict=False):
            if isinstance(leaf, Vector) and isinstance(shared, Vector):
                leaf.share(shared.applied)


def check_normalization(encoder: Encoder, space: gym_spaces.Space, settings: EncoderSettings) -> None:
    """Check that an encoder normalises a part of its space if the settings require it; raise a ConfigError if not."""
    if settings.normalize_observations and not any(encoder.normalizations):
        raise ConfigError(
            f"normalize_observations: expected an observation with a vector of numbers (Box), found {space}; leave it "
            "out"
        )


def _leaf_encoder(space: gym_spaces.Space, settings: EncoderSettings) -> Vector | OneHot | Convolution:
    if is_image(space, settings.encoder):
        assert isinstance(space, gym_spaces.Box)
        return Convolution(space, settings.image_features)
    if isinstance(space, gym_spaces.Box) and settings.normalizes(
        space.low.min(initial=0), space.high.max(initial=0), is_bytes=byte_scale(space) is not None
    ):
        return Vector(space, Normalization(math.prod(space.shape), settings.observation_clip))
    if isinstance(space, (gym_spaces.Box, gym_spaces.MultiBinary)):
        return Vector(space)
    if isinstance(space, (gym_spaces.Discrete, gym_spaces.MultiDiscrete)):
        return OneHot(space)
    raise ConfigError(
        f"this policy cannot read observations of {space}; expected Box, Discrete, MultiDiscrete, MultiBinary, or "
        f"Dict and Tuple of them"
    )


def leaf_paths(space: gym_spaces.Space, path: tuple = ()) -> list[tuple]:
    """Return the keys and indices that lead to each leaf of a nested space."""
    if isinstance(space, gym_spaces.Dict):
        return [leaf for key, sub in space.spaces.items() for leaf in leaf_paths(sub, (*path, key))]
    if isinstance(space, gym_spaces.Tuple):
        return [leaf for index, sub in enumerate(space.spaces) for leaf in leaf_paths(sub, (*path, index))]
    return [path]


def leaf_spaces(space: gym_spaces.Space) -> list[gym_spaces.Space]:
    """Return the leaves of a nested space, in the order of ``leaf_paths``."""
    return [_at(space, path) for path in leaf_paths(space)]


def _at(tree: Any, path: tuple) -> Any:
    for key in path:
        tree = tree[key]
    return tree
