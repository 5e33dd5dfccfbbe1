"""Encoders of whole observations: one encoder for each part of a nested space."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from gymnasium import spaces as gym_spaces
from torch import nn

from arena.common.errors import ConfigError
from arena.common.registry import is_reference
from arena.common.trees import map_tree
from arena.policies.copies import copy_tensors
from arena.policies.encoders.attention import Attention
from arena.policies.encoders.images import Convolution, Impala, Nature
from arena.policies.encoders.leaves import Measured, NormalizedLeaf, flat_encoder
from arena.policies.encoders.parts import Part, at, leaf_paths, parts_of
from arena.policies.encoders.users import UserEncoder
from arena.policies.settings.encoders import AttentionSettings, ImpalaSettings
from arena.policies.settings.networks import EncoderSettings


class Encoder(Measured):
    """Encoder of an observation: one encoder for each part of a nested space, with concatenated features.

    Attributes:
      leaves: the encoders, in the order of the space.
      paths: keys and indices that lead to the part that each of them reads.
      width: width of the result.
    """

    def __init__(self, space: gym_spaces.Space, settings: EncoderSettings, parts: Sequence[Part] | None = None) -> None:
        """Build an encoder for each part; without ``parts``, for those that the settings name.

        Raises:
          ConfigError: there is none for a part, or none that could be frozen.
        """
        super().__init__()
        self._parts = parts = parts_of(space, settings) if parts is None else parts
        self.paths = [part.path for part in parts]
        encoders = [_encoder(part, settings) for part in parts]
        self.leaves = nn.ModuleList(encoders)
        frozen = [encoder for encoder, part in zip(encoders, parts, strict=True) if part.is_frozen]
        if frozen and not any(True for encoder in frozen for _ in encoder.parameters()):
            raise ConfigError(
                f"frozen_encoder: expected an encoder with weights, found none for {space}, which is "
                "read as it is; leave it out"
            )
        for encoder in frozen:
            encoder.requires_grad_(False)
            if isinstance(encoder, UserEncoder):
                encoder.is_frozen = True
        self.width: int = sum(encoder.width for encoder in encoders)
        self._images = [
            encoder if isinstance(encoder, Convolution) else None
            for encoder, part in zip(encoders, parts, strict=True)
            for _ in leaf_paths(part.space)
        ]

    def forward(self, observations: Any) -> torch.Tensor:
        """Encode a tensor ``[N, ...]``, or a nested dict or tuple of them ``-> [N, width]``."""
        features = [leaf(at(observations, path)) for leaf, path in zip(self.leaves, self.paths, strict=True)]
        return features[0] if len(features) == 1 else torch.cat(features, -1)

    @property
    def given_parts(self) -> list[int]:
        """Indices of the encoders that begin with weights that were learned elsewhere."""
        return [number for number, part in enumerate(self._parts) if part.is_given]

    def load(self, tensors: Mapping[str, Any]) -> None:
        """Load the weights and statistics of ``given_parts``; statistics of frozen ones no longer change.

        Args:
          tensors: tensors with the names of this encoder's.

        Raises:
          ConfigError: names or shapes differ; statistics that only one side has are ignored.
        """
        for number in self.given_parts:
            prefix = f"leaves.{number}."
            state = {name: tensor for name, tensor in self.state_dict().items() if name.startswith(prefix)}
            found = {name: tensor for name, tensor in tensors.items() if name.startswith(prefix)}
            statistics = {name for name in state.keys() ^ found.keys() if ".normalization." in name}
            has_statistics = any(".normalization." in name for name in found)
            copy_tensors(
                {name: tensor for name, tensor in state.items() if name not in statistics},
                {name: tensor for name, tensor in found.items() if name not in statistics},
            )
            for leaf in _normalized(self.leaves[number]) if self._parts[number].is_frozen and has_statistics else ():
                if leaf is not None:
                    leaf.is_fixed = True

    def arranged(self, observations: Any) -> Any:
        """Return observations ``[N, ...]`` with images in the order in memory in which they are read fastest.

        To be called once for rows that are read several times.
        """
        readers = iter(self._images)  # the leaves of observations have the order of the space's
        return map_tree(lambda x: x if (reader := next(readers)) is None else reader.arranged(x), observations)

    @property
    def normalized(self) -> list[NormalizedLeaf | None]:
        """See ``Measured``."""
        return [leaf for encoder in self.leaves for leaf in _normalized(encoder)]


def _normalized(encoder: nn.Module) -> list[NormalizedLeaf | None]:
    """Return what holds the running normalisation of each leaf that an encoder reads."""
    if isinstance(encoder, UserEncoder | Attention):
        return encoder.normalized
    return [encoder if isinstance(encoder, NormalizedLeaf) else None]


def share_normalization(source: Encoder, *encoders: Encoder) -> None:
    """Let encoders of the same space, or of a tuple that begins with it, use the statistics of ``source``."""
    for encoder in encoders:
        for leaf, shared in zip(encoder.normalized, source.normalized, strict=False):
            if leaf is not None and shared is not None:
                leaf.share(shared.applied)


def check_normalization(encoder: Encoder, space: gym_spaces.Space, settings: EncoderSettings) -> None:
    """Check that an encoder normalises a part of its space if the settings require it; raise a ConfigError if not."""
    if settings.normalize_observations and not any(encoder.normalizations):
        raise ConfigError(
            f"normalize_observations: expected an observation with a vector of numbers (Box), found {space}; leave it "
            "out"
        )


def _encoder(part: Part, settings: EncoderSettings) -> Any:
    space, encoder = part.space, part.encoder
    if is_reference(encoder.use):
        return UserEncoder(encoder.use, space, encoder.settings, settings)
    if encoder.use == "attention":
        return Attention(space, AttentionSettings(**encoder.settings), settings)
    if part.is_convolved:
        assert isinstance(space, gym_spaces.Box)
        if encoder.use == "impala":
            return Impala(space, settings.image_features, ImpalaSettings(**encoder.settings).scale)
        return Nature(space, settings.image_features)
    return flat_encoder(space, settings)
