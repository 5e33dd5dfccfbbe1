"""Encoders of images, and what counts as an image."""

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
    """Encoder of images: the network of Mnih et al. (Nature, 2015), or a smaller one for smaller images.

    Axes may be (height, width), channels first or channels last (whichever end is shorter), and any of them with
    stacked frames before them, which become channels.
    """

    def __init__(self, space: gym_spaces.Box, features: int) -> None:
        """Choose layers by the size of the image."""
        super().__init__()
        self.scale = byte_scale(space)
        self.order, channels, height, width = _image_axes(space.shape)
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
        self.width = features

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
