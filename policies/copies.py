"""Copies of named tensors into those of networks."""

from collections.abc import Mapping
from typing import Any

import torch

from arena.common.errors import ConfigError


@torch.no_grad()
def copy_tensors(targets: Mapping[str, torch.Tensor], sources: Mapping[str, Any]) -> None:
    """Copy named arrays or tensors into the tensors of the same names, in place.

    Raises:
      ConfigError: a name is missing or unknown, or a shape differs; nothing has been copied then.
    """
    missing, unknown = sorted(targets.keys() - sources.keys()), sorted(sources.keys() - targets.keys())
    if missing or unknown:
        raise ConfigError(
            f"the weights do not fit the networks that the spaces and settings require: missing {missing or 'none'}, "
            f"unknown {unknown or 'none'}; use the settings that they were trained with"
        )
    tensors = {name: torch.as_tensor(value) for name, value in sources.items()}
    for name, tensor in targets.items():
        if tensor.shape != tensors[name].shape:
            raise ConfigError(
                f"the weights do not fit: expected {name} of shape {tuple(tensor.shape)}, found "
                f"{tuple(tensors[name].shape)}; use the spaces and settings that they were trained with"
            )
    for name, tensor in targets.items():
        tensor.copy_(tensors[name])
