"""Encoders of observations, one for each kind of leaf and one for nested spaces, and layers shared with trunks."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces as gym_spaces
from torch import nn

from arena.common.errors import ConfigError
from arena.common.trees import map_tree
from arena.policies.normalization import Normalization
from arena.policies.settings import EncoderSettings
from arena.tensors.reducer import Reducer

SQRT_2 = math.sqrt(2)
NATURE_SIDE = 64  # below it, the convolutions of the Nature DQN paper leave less than 4 x 4 cells of an image
SMALL_SIDE = 20  # smallest image that the same network with half its first kernel and stride can read
IMAGE_SIDE = 8  # below it, an image is a short vector

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "elu": nn.ELU,
    "silu": nn.SiLU,
    "gelu": nn.GELU,
}


class _Tanh(torch.autograd.Function):
    """tanh(x) = 2 sigmoid(2x) - 1, which torch computes several times faster on a CPU than its own tanh."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        y = torch.sigmoid(x + x).mul_(2).sub_(1)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        (y,) = ctx.saved_tensors
        return torch.addcmul(gradient, gradient, y * y, value=-1)


class Tanh(nn.Module):
    """The hyperbolic tangent."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return tanh of ``x``, elementwise."""
        return _Tanh.apply(x)


ACTIVATIONS["tanh"] = Tanh


def linear(inputs: int, outputs: int, gain: float) -> nn.Linear:
    """Return a linear layer with orthogonal weights (Saxe et al., 2014) and zero biases."""
    return orthogonal(nn.Linear(inputs, outputs), gain)


def orthogonal(layer: Any, gain: float) -> Any:
    """Initialise a layer's weight to an orthogonal matrix times ``gain`` and its bias to zeros; return the layer."""
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


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
        self.scale = None if normalization is not None else _byte_scale(space)
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
        x = x.flatten(1).float()
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


class Convolution(nn.Module):
    """Encoder of images: the network of Mnih et al. (Nature, 2015), or a smaller one for smaller images.

    Axes may be (height, width), channels first or channels last (whichever end is shorter), and any of them with
    stacked frames before them, which become channels.
    """

    def __init__(self, space: gym_spaces.Box, features: int) -> None:
        """Choose layers by the size of the image."""
        super().__init__()
        self.scale = _byte_scale(space)
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


def _byte_scale(space: gym_spaces.Space) -> float | None:
    return (
        1 / 255 if space.dtype == np.uint8 and isinstance(space, gym_spaces.Box) and space.high.max() == 255 else None
    )


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
    """Return whether a leaf of the observation is encoded by a convolution."""
    if encoder == "mlp" or not isinstance(space, gym_spaces.Box) or len(space.shape) not in (2, 3, 4):
        return False
    _, _, height, width = _image_axes(space.shape)
    # Two axes of floats are treated as a stack of vectors, unless both are long.
    side = SMALL_SIDE if len(space.shape) == 2 and space.dtype != np.uint8 else IMAGE_SIDE
    return encoder == "cnn" or min(height, width) >= side


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
        space.low.min(initial=0), space.high.max(initial=0), is_bytes=_byte_scale(space) is not None
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
