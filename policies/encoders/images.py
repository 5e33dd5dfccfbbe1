"""Encoders of images, and what counts as one."""

import numpy as np
import torch
from gymnasium import spaces as gym_spaces
from torch import nn

from arena.policies.encoders.leaves import byte_scale
from arena.policies.layers import SQRT_2, linear, orthogonal

NATURE_SIDE = 64  # below it, the convolutions of the Nature DQN paper leave less than 4 x 4 cells of an image
SMALL_SIDE = 20  # smallest image that the same network with half its first kernel and stride can read
IMAGE_SIDE = 8  # below it, an image is a short vector


class Convolution(nn.Module):
    """Base of the encoders of images.

    Axes may be (height, width), channels first or channels last (whichever end is shorter), and any of them with
    stacked frames before them, which become channels.

    Attributes:
      layers: maps floats ``[N, channels, height, width]`` to ``[N, width]``.
      width: width of the result.
    """

    layers: nn.Sequential

    def __init__(self, space: gym_spaces.Box, width: int) -> None:
        """Read the axes from the space."""
        super().__init__()
        self.scale = byte_scale(space)
        self.order, *self.shape = _image_axes(space.shape)
        self.width = width

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[N, ...] -> [N, width]``."""
        if x.dim() == 3:
            x = x.unsqueeze(1)
        x = x.permute(0, *self.order)
        if x.dim() == 5:
            x = x.flatten(1, 2)
        # The order in which convolutions are fastest; bytes take it before they become floats of four times the size.
        x = x.contiguous(memory_format=torch.channels_last)
        if self.scale is not None:
            return self.layers(x.to(torch.float32, copy=True).mul_(self.scale))
        return self.layers(x.float())

    def arranged(self, x: torch.Tensor) -> torch.Tensor:
        """Return images ``[N, ...]`` with their channels innermost in memory, as ``forward`` reads them."""
        if x.dim() == 3:
            return x
        *channels, height, width = self.order
        memory_order = (0, height, width, *channels)
        inverse = sorted(range(x.dim()), key=memory_order.__getitem__)
        return x.permute(memory_order).contiguous().permute(inverse)


class Nature(Convolution):
    """The network of Mnih et al. (Nature, 2015), or a smaller one for smaller images."""

    def __init__(self, space: gym_spaces.Box, features: int) -> None:
        """Choose layers by the size of the image."""
        super().__init__(space, features)
        channels, height, width = self.shape
        # Filters, kernel, stride, padding.
        layers = [(32, 8, 4, 0), (64, 4, 2, 0), (64, 3, 1, 0)]
        if min(height, width) < SMALL_SIDE:
            layers = [(32, 3, 1, 1), (64, 3, 2, 1)]
        elif min(height, width) < NATURE_SIDE:
            layers = [(16, 4, 2, 0), (32, 4, 2, 0), (32, 3, 1, 0)]
        modules: list[nn.Module] = []
        for filters, kernel, stride, padding in layers:
            modules += [
                orthogonal(nn.Conv2d(channels, filters, kernel, stride, padding), SQRT_2),
                nn.ReLU(inplace=True),
            ]
            height, width = ((side + 2 * padding - kernel) // stride + 1 for side in (height, width))
            channels = filters
        modules += [nn.Flatten(), linear(channels * height * width, features, SQRT_2), nn.ReLU(inplace=True)]
        self.layers = nn.Sequential(*modules)


class Impala(Convolution):
    """The residual network of Espeholt et al. (IMPALA, 2018, figure 3 right): 15 convolutions in three sections.

    Weights begin orthogonal and biases as zeros, so that features are proportional to the image, however dark it is;
    with torch's own a MiniGrid of one-hot bytes (0 or 1 of 255) was not learned in 300,000 steps. The second layer of a
    residual block begins small, since its result is added.
    """

    def __init__(self, space: gym_spaces.Box, features: int, scale: int) -> None:
        """Build sections of 16, 32 and 32 channels, times ``scale``."""
        super().__init__(space, features)
        channels, height, width = self.shape
        modules: list[nn.Module] = []
        for filters in (16 * scale, 32 * scale, 32 * scale):
            entry = orthogonal(nn.Conv2d(channels, filters, 3, padding=1), 1.0)
            modules += [entry, nn.MaxPool2d(3, stride=2, padding=1)]
            modules += [Residual(filters), Residual(filters)]
            height, width, channels = (height + 1) // 2, (width + 1) // 2, filters
        modules += [nn.ReLU(inplace=True), nn.Flatten()]
        modules += [linear(channels * height * width, features, SQRT_2), nn.ReLU(inplace=True)]
        self.layers = nn.Sequential(*modules)


class Residual(nn.Module):
    """Two convolutions that add their result to what they read."""

    def __init__(self, channels: int) -> None:
        """Build the layers."""
        super().__init__()
        self.first, self.second = (
            orthogonal(nn.Conv2d(channels, channels, 3, padding=1), gain) for gain in (SQRT_2, 0.5)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[N, channels, height, width]``, in and out."""
        return x + self.second(torch.relu(self.first(torch.relu(x))))


def _image_axes(shape: tuple[int, ...]) -> tuple[tuple[int, ...], int, int, int]:
    """Return the permutation that puts channels first (behind the batch axis), and channels, height and width."""
    if len(shape) == 2:
        return (1, 2, 3), 1, *shape
    stack = 1 if len(shape) == 3 else shape[0]
    image = shape[-3:]
    first = len(shape) - 2  # index of the image's first axis, counting the batch axis
    before = tuple(range(1, first))
    if image[0] < image[2]:
        return (*before, first, first + 1, first + 2), stack * image[0], image[1], image[2]
    return (*before, first + 2, first, first + 1), stack * image[2], image[0], image[1]


def is_image(space: gym_spaces.Space, encoder: str) -> bool:
    """Return whether a built-in ``encoder`` reads a leaf of the observation by a convolution."""
    if encoder == "mlp" or not isinstance(space, gym_spaces.Box) or len(space.shape) not in (2, 3, 4):
        return False
    _, _, height, width = _image_axes(space.shape)
    # Two axes of floats are treated as a stack of vectors, unless both are long.
    side = SMALL_SIDE if len(space.shape) == 2 and space.dtype != np.uint8 else IMAGE_SIDE
    return encoder != "auto" or min(height, width) >= side
