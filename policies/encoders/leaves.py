"""Encoders of vectors and of discrete parts of an observation."""

import math

import numpy as np
import torch
from gymnasium import spaces as gym_spaces
from torch import nn

from arena.policies.normalization import Normalization


class Vector(nn.Module):
    """Encoder of any Box, flattened to floats; uint8 is scaled to [0, 1], unless there is a normalisation.

    Attributes:
      width: numbers of the vector.
      scale: factor of bytes; None for other dtypes.
      normalization: the running normalisation that this encoder holds; None if it has none, or shares another's.
    """

    normalization: Normalization | None

    def __init__(
        self, space: gym_spaces.Box | gym_spaces.MultiBinary, normalization: Normalization | None = None
    ) -> None:
        """Read the shape from the space."""
        super().__init__()
        self.width = math.prod(space.shape)
        self.scale = None if normalization is not None else byte_scale(space)
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

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[N, ...] -> [N, width]``."""
        x = (x.flatten(1) if x.dim() > 1 else x[:, None]).float()  # a Box of shape () has no dimension of its own
        normalization = self.applied
        if normalization is not None:
            return normalization(x)
        return x if self.scale is None else x * self.scale


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
