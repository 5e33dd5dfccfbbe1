"""Checks of encoders before a run: a first pass of each module that is not built of known layers."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from gymnasium import spaces as gym_spaces
from torch import nn

from arena.common.errors import ConfigError
from arena.common.registry import is_reference
from arena.common.trees import map_tree
from arena.policies.encoders.composite import Encoder
from arena.policies.encoders.parts import Part, parts_of
from arena.policies.encoders.users import UserEncoder, sample
from arena.policies.settings.networks import EncoderSettings

CLOSE = 1e-5
"""Largest difference, relative to 1 + the size of a number, of what is computed in another order."""

MOST_NAMES = 5
"""Names of parameters that a warning lists."""


def check_encoder(space: gym_spaces.Space, settings: EncoderSettings, announce: Callable[[str], None]) -> list[str]:
    """Build the encoder of an observation, and read two observations by the parts of it that users have written.

    Args:
      space: space of the observation.
      settings: settings of the encoder.
      announce: called with the encoder's name before code of a user runs.

    Returns:
      Warnings.

    Raises:
      ConfigError: an encoder cannot be used; other exceptions are those of the user's code.
    """
    parts = parts_of(space, settings)
    _check_images(parts, space)
    for part in parts:
        if is_reference(part.encoder.use):
            announce(part.encoder.use)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        encoder = Encoder(space, settings)
        warnings = []
        for part, module in zip(parts, encoder.leaves, strict=True):
            if isinstance(module, UserEncoder):
                announce(part.encoder.use)
                warnings += _check(part.encoder.use, module, sample(part.space, rows=2, seed=0))
    return warnings


def _check_images(parts: Sequence[Part], space: gym_spaces.Space) -> None:
    """Check that ``impala`` has an image, if it is the encoder of something."""
    residual = [part for part in parts if part.encoder.use == "impala"]
    if residual and not any(part.is_convolved for part in residual):
        raise ConfigError(f"encoder: impala expects an image (a Box with two to four axes), found none in {space}")


def _check(name: str, encoder: UserEncoder, observations: Any) -> list[str]:
    """Check a user's encoder on two observations; return warnings."""
    statistics = [
        type(module).__name__ for module in encoder.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)
    ]
    if statistics:
        raise ConfigError(
            f"{name!r}: expected no {statistics[0]}, whose statistics differ between workers; use LayerNorm, or "
            "normalize_observations"
        )
    with torch.no_grad():
        together = encoder(observations)
        _check_result(name, encoder, together)
        apart = [encoder(map_tree(lambda x, row=row: x[row : row + 1], observations)) for row in range(2)]
    for row, alone in enumerate(apart):
        if alone.shape[0] != 1 or ((alone[0] - together[row]).abs() > CLOSE * (1 + together[row].abs())).any():
            raise ConfigError(
                f"{name!r}: expected features of an observation that do not depend on the others of a batch, found "
                "other ones for a row alone than beside another row; average over its own axes only"
            )
    buffers = {key: buffer.clone() for key, buffer in encoder.named_buffers()}
    features = encoder(observations)
    changed = [key for key, buffer in encoder.named_buffers() if not torch.equal(buffer, buffers[key])]
    if changed:
        raise ConfigError(
            f"{name!r}: expected a forward pass that leaves all buffers as they are, found a change of "
            f"{changed[0].removeprefix('module.')}: workers would come to differ in it; use layers without such a state"
        )
    return _warnings(name, encoder, features)


def _check_result(name: str, encoder: UserEncoder, features: Any) -> None:
    if not isinstance(features, torch.Tensor):
        raise ConfigError(f"{name!r}: expected a tensor [N, width] from forward, found {type(features).__name__}")
    if tuple(features.shape) != (2, encoder.width):
        raise ConfigError(
            f"{name!r}: expected features of shape [2, {encoder.width}] for two observations, since its width is "
            f"{encoder.width}, found {list(features.shape)}"
        )
    if not features.is_floating_point() or not torch.isfinite(features).all():
        found = "numbers that are not finite" if features.is_floating_point() else str(features.dtype)
        raise ConfigError(f"{name!r}: expected finite floats from forward, found {found} in its first pass")


def _warnings(name: str, encoder: UserEncoder, features: torch.Tensor) -> list[str]:
    warnings = []
    learned = {key: tensor for key, tensor in encoder.module.named_parameters() if tensor.requires_grad}
    if features.requires_grad:
        features.sum().backward()
    idle = [key for key, tensor in learned.items() if tensor.grad is None]
    if idle:
        more = f" and {len(idle) - MOST_NAMES} more" if len(idle) > MOST_NAMES else ""
        warnings.append(f"{name}: no gradient reaches {', '.join(idle[:MOST_NAMES])}{more}, which will not learn")
    if any(isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0 for module in encoder.modules()):
        warnings.append(
            f"{name} has dropout: it acts without (in eval mode) and learns with it, and a resumed run drops others"
        )
    return warnings
