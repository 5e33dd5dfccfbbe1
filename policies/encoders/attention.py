"""Encoder of sets of entities: self-attention over rows, in which their order does not count."""

from typing import Any

import torch
from gymnasium import spaces as gym_spaces
from torch import nn
from torch.nn import functional

from arena.common.errors import ConfigError
from arena.policies.encoders.leaves import NormalizedLeaf, Rows, flat_encoder, running_normalization
from arena.policies.encoders.parts import at, leaf_paths
from arena.policies.settings.encoders import AttentionSettings
from arena.policies.settings.networks import EncoderSettings

MASK = "_mask"
"""End of the key, beside that of a set, with a flag for each row: nonzero is present."""

NEVER = -1e9  # score of an absent token; finite, so that nothing becomes nan where all are absent


class Attention(nn.Module):
    """Encoder of sets and vectors: each row of a set, and each vector, is a token, and tokens read each other.

    A Box with two axes, ``[entities, features]``, is a set. Its rows of zeros are absent, or those that a key
    ``<name>_mask`` beside it excludes. Blocks of self-attention are pre-norm (Xiong et al., On layer normalization in
    the transformer architecture, 2020). The result is the mean over all present tokens, and beside it what a learned
    query reads of them; zeros where nothing is present.

    Attributes:
      width: width of the result.
    """

    def __init__(self, space: gym_spaces.Space, own: AttentionSettings, settings: EncoderSettings) -> None:
        """Build the layers.

        Raises:
          ConfigError: there is no set, or a leaf that is neither a set nor a vector.
        """
        super().__init__()
        paths = leaf_paths(space)
        sets = [path for path in paths if _is_set(at(space, path))]
        if not sets:
            raise ConfigError(
                f"encoder: attention expects a set, a Box with two axes (entities, features), found none in {space}"
            )
        self._masks = {path: mask for path in sets if (mask := _mask_path(path)) is not None and mask in paths}
        for path, mask in self._masks.items():
            _check_mask(mask, at(space, mask), at(space, path))
        self._is_token = [path not in self._masks.values() for path in paths]
        self._paths = [path for path, is_token in zip(paths, self._is_token, strict=True) if is_token]
        self.tokens = nn.ModuleList(
            Tokens(at(space, path), own.width, settings, has_mask=path in self._masks) for path in self._paths
        )
        self.blocks = nn.ModuleList(Block(own.width, own.heads) for _ in range(own.layers))
        self.norm = nn.LayerNorm(own.width)
        self.query = nn.Parameter(torch.randn(own.width))
        self.reading = MultiHead(own.width, own.heads)
        self.width = 2 * own.width

    def forward(self, observations: Any) -> torch.Tensor:
        """Encode a tensor ``[N, ...]``, or a nested dict or tuple of them ``-> [N, width]``."""
        parts, flags = [], []
        for tokens, path in zip(self.tokens, self._paths, strict=True):
            mask = at(observations, self._masks[path]) if path in self._masks else None
            x, present = tokens(at(observations, path), mask)
            parts.append(x)
            flags.append(present)
        x, present = torch.cat(parts, 1), torch.cat(flags, 1)
        scores = torch.where(present, 0.0, NEVER)[:, None, None]
        for block in self.blocks:
            x = block(x, scores)
        x = self.norm(x)
        weights = present.to(x.dtype)[:, :, None]
        mean = (x * weights).sum(1) / weights.sum(1).clamp(min=1)
        read = self.reading(self.query.expand(x.shape[0], 1, -1), x, scores).squeeze(1) * present.any(1, keepdim=True)
        return torch.cat((mean, read), 1)

    @property
    def normalized(self) -> list[NormalizedLeaf | None]:
        """Module with the running normalisation of each leaf of the space; None for leaves without."""
        tokens = iter(self.tokens)
        readers = [next(tokens).leaf if is_token else None for is_token in self._is_token]
        return [reader if isinstance(reader, NormalizedLeaf) else None for reader in readers]


class Tokens(nn.Module):
    """Tokens of one leaf: the rows of a set, or a vector as a single one."""

    def __init__(self, space: gym_spaces.Space, width: int, settings: EncoderSettings, *, has_mask: bool) -> None:
        """Build a linear layer for the leaf."""
        super().__init__()
        self.is_set = _is_set(space)
        if isinstance(space, gym_spaces.Box) and len(space.shape) > 2:
            raise ConfigError(
                f"encoder: attention reads sets (a Box with two axes: entities, features) and vectors, found {space}; "
                "name another encoder for its key, as in encoder: {map: nature, rest: attention}"
            )
        if self.is_set:
            assert isinstance(space, gym_spaces.Box)
            features = space.shape[1]
            normalization = running_normalization(space, features, settings)
            self.leaf: nn.Module = Rows(space, normalization, zeros_are_absent=not has_mask)
        else:
            self.leaf = encoder = flat_encoder(space, settings)
            features = encoder.width
        self.embedding = nn.Linear(features, width)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the tokens ``[N, tokens, width]`` of ``x`` ``[N, ...]``, and which are present ``[N, tokens]``.

        ``mask`` is ``[N, tokens]``, nonzero is present; None derives it from rows of zeros.
        """
        rows = self.leaf(x)
        if not self.is_set:
            return self.embedding(rows[:, None]), torch.ones_like(rows[:, :1], dtype=torch.bool)
        present = torch.ne(x, 0).any(2) if mask is None else torch.ne(mask, 0)
        return self.embedding(rows), present


class Block(nn.Module):
    """Self-attention, then two layers for each token alone, both added to what they read."""

    def __init__(self, width: int, heads: int) -> None:
        """Build the layers."""
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = MultiHead(width, heads)
        self.layers = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))

    def forward(self, x: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """``[N, tokens, width]``, in and out; ``scores`` as in ``MultiHead``."""
        normed = self.before(x)
        x = x + self.attention(normed, normed, scores)
        return x + self.layers(self.between(x))


class MultiHead(nn.Module):
    """Attention with several heads (Vaswani et al., Attention is all you need, 2017, section 3.2.2)."""

    def __init__(self, width: int, heads: int) -> None:
        """Build the projections; ``width`` is a multiple of ``heads``."""
        super().__init__()
        self._heads = heads
        self.ask, self.answer, self.out = nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(width, width)

    def forward(self, queries: torch.Tensor, tokens: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Return what queries ``[N, Q, width]`` read of tokens ``[N, T, width]``, ``[N, Q, width]``.

        ``scores`` ``[N, 1, 1, T]`` are added to those of the tokens.
        """
        keys, values = self.answer(tokens).chunk(2, -1)
        asked, keys, values = (self._split(x) for x in (self.ask(queries), keys, values))
        read = functional.scaled_dot_product_attention(asked, keys, values, attn_mask=scores)
        return self.out(read.transpose(1, 2).flatten(2))

    def _split(self, x: torch.Tensor) -> torch.Tensor:
        """``[N, T, width] -> [N, heads, T, width / heads]``."""
        return x.unflatten(2, (self._heads, -1)).transpose(1, 2)


def _is_set(space: gym_spaces.Space) -> bool:
    return isinstance(space, gym_spaces.Box) and len(space.shape) == 2


def _mask_path(path: tuple) -> tuple | None:
    """Return where the mask of a set is, if there is one."""
    return (*path[:-1], f"{path[-1]}{MASK}") if path else None


def _check_mask(path: tuple, mask: gym_spaces.Space, rows: gym_spaces.Space) -> None:
    if rows.shape is None or mask.shape != rows.shape[:1]:
        raise ConfigError(
            f"encoder: attention: expected a flag for each row of {rows} at {path[-1]!r}, which names the mask of "
            f"{path[-1].removesuffix(MASK)!r}, found {mask}"
        )
