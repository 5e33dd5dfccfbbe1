"""Encoders of vectors and of discrete parts of an observation."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces as gym_spaces
from torch import nn

from arena.common.errors import ConfigError
from arena.policies.normalization import Normalization
from arena.policies.settings.networks import EncoderSettings
from arena.tensors.reducer import Reducer


class NormalizedLeaf(nn.Module):
    """A Box that may have a running normalisation, of its own or of another encoder.

    Attributes:
      normalization: the running normalisation that this encoder holds; None if it has none, or shares another's.
      is_fixed: whether its statistics stay as they are: those of a frozen encoder that was learned elsewhere.
    """

    normalization: Normalization | None

    def __init__(self, normalization: Normalization | None) -> None:
        """Begin with one, or with None."""
        super().__init__()
        self.is_fixed = False
        self.normalization = normalization
        self._shared: tuple[Normalization, ...] = ()

    @property
    def applied(self) -> Normalization | None:
        """The running normalisation that is applied, of this encoder or of another; None for none."""
        return self._shared[0] if self._shared else self.normalization

    def share(self, normalization: Normalization | None) -> None:
        """Apply the running normalisation of another encoder, which alone has it among its tensors."""
        self.normalization = None
        self._shared = () if normalization is None else (normalization,)

    def samples(self, rows: np.ndarray) -> np.ndarray:
        """Return what observations ``[N, ...]`` add to the statistics, ``[samples, size]``."""
        return rows.reshape(len(rows), math.prod(rows.shape[1:]))


class Measured(nn.Module):
    """A module with running normalisations of what it reads."""

    @property
    def normalized(self) -> list[NormalizedLeaf | None]:
        """Module with the running normalisation of each leaf of the space; None for leaves without."""
        raise NotImplementedError

    @property
    def normalizations(self) -> list[Normalization | None]:
        """Running normalisation of each leaf of the space; None for leaves without."""
        return [None if leaf is None else leaf.applied for leaf in self.normalized]

    def measure(self, columns: Sequence[np.ndarray], where: Any, group: Reducer) -> None:
        """Include observations in the statistics of the normalisations; all workers of a group make this call.

        Args:
          columns: array for each leaf.
          where: index of this worker's observations in them: ``column[where]`` is ``[N, ...]``, with any N.
          group: all workers.

        Raises:
          FloatingPointError: a number is not finite; raised by all workers together.
        """
        for leaf, column in zip(self.normalized, columns, strict=True):
            if leaf is not None and leaf.applied is not None and not leaf.is_fixed:
                leaf.applied.add(leaf.samples(column[where]), group)


class Vector(NormalizedLeaf):
    """Encoder of any Box, flattened to floats; uint8 is scaled to [0, 1], unless there is a normalisation.

    Attributes:
      width: numbers of the vector.
      scale: factor of bytes; None for other dtypes.
    """

    def __init__(
        self, space: gym_spaces.Box | gym_spaces.MultiBinary, normalization: Normalization | None = None
    ) -> None:
        """Read the shape from the space."""
        super().__init__(normalization)
        self.width = math.prod(space.shape)
        self.scale = None if normalization is not None else byte_scale(space)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[N, ...] -> [N, width]``."""
        x = (x.flatten(1) if x.dim() > 1 else x[:, None]).float()  # a Box of shape () has no dimension of its own
        normalization = self.applied
        if normalization is not None:
            return normalization(x)
        return x if self.scale is None else x * self.scale


class Rows(NormalizedLeaf):
    """A Box as floats in its own shape: a vector, or rows ``[rows, features]`` that are normalised alike.

    Bytes are scaled to [0, 1], unless there is a normalisation. Rows of zeros, which stand for what is absent, stay
    zeros and are not counted.
    """

    def __init__(
        self, space: gym_spaces.Box, normalization: Normalization | None, *, zeros_are_absent: bool = True
    ) -> None:
        """Read the shape from the space, which has at most two axes.

        Without ``zeros_are_absent``, rows of zeros are normalised like any other.
        """
        super().__init__(normalization)
        self._keeps_zeros = zeros_are_absent and len(space.shape) == 2
        self._axes = len(space.shape)
        self._scale = None if normalization is not None else byte_scale(space)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[N, ...] -> [N, ...]``, of floats."""
        x = x.float()
        normalization = self.applied
        if normalization is None:
            return x if self._scale is None else x * self._scale
        if self._axes == 0:
            return normalization(x[:, None]).squeeze(1)
        scaled = normalization(x)
        return scaled * torch.ne(x, 0).any(-1, keepdim=True) if self._keeps_zeros else scaled

    def samples(self, rows: np.ndarray) -> np.ndarray:
        """See ``NormalizedLeaf``."""
        if self._axes < 2:
            return super().samples(rows)
        features = rows.reshape(-1, rows.shape[-1])
        return features[features.any(1)]


class OneHot(nn.Module):
    """Encoder of Discrete and MultiDiscrete: concatenated one-hot vectors."""

    column: torch.Tensor
    value: torch.Tensor

    def __init__(self, space: gym_spaces.Discrete | gym_spaces.MultiDiscrete) -> None:
        """Read the sizes from the space."""
        super().__init__()
        sizes = np.atleast_1d(space.n if isinstance(space, gym_spaces.Discrete) else space.nvec.ravel()).astype(int)
        self.width = int(sizes.sum())
        # Element j of the vector is 1 where number column[j] of the observation equals value[j].
        column = np.repeat(np.arange(len(sizes)), sizes)
        value = np.concatenate([np.arange(size) for size in sizes]) + np.repeat(np.ravel(space.start), sizes)
        self.register_buffer("column", torch.from_numpy(column), persistent=False)
        self.register_buffer("value", torch.from_numpy(value), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[N, ...] -> [N, width]``."""
        return torch.eq(x.reshape(x.shape[0], -1)[:, self.column], self.value).float()


def byte_scale(space: gym_spaces.Space) -> float | None:
    """Return the factor that scales the bytes of a space to [0, 1]; None for a space of other numbers."""
    return (
        1 / 255 if space.dtype == np.uint8 and isinstance(space, gym_spaces.Box) and space.high.max() == 255 else None
    )


def running_normalization(space: gym_spaces.Space, size: int, settings: EncoderSettings) -> Normalization | None:
    """Return a running normalisation of ``size`` numbers, if the settings have one for this Box, no image."""
    if not isinstance(space, gym_spaces.Box):
        return None
    low, high = space.low.min(initial=0), space.high.max(initial=0)
    if not settings.normalizes(low, high, is_bytes=byte_scale(space) is not None):
        return None
    return Normalization(size, settings.observation_clip)


def flat_encoder(space: gym_spaces.Space, settings: EncoderSettings) -> Vector | OneHot:
    """Return the encoder of a leaf as a vector.

    Raises:
      ConfigError: there is none for this space.
    """
    if isinstance(space, (gym_spaces.Box, gym_spaces.MultiBinary)):
        return Vector(space, running_normalization(space, math.prod(space.shape), settings))
    if isinstance(space, (gym_spaces.Discrete, gym_spaces.MultiDiscrete)):
        return OneHot(space)
    raise ConfigError(
        f"this policy cannot read observations of {space}; expected Box, Discrete, MultiDiscrete, MultiBinary, or "
        f"Dict and Tuple of them"
    )
