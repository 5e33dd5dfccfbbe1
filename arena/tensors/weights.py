"""Weights and other tensors in safetensors files."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import safetensors.numpy

from arena.common.errors import ConfigError
from arena.common.files import write_atomically

if TYPE_CHECKING:
    import torch


def write_tensors(path: Path, tensors: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> None:
    """Write named tensors to a safetensors file, whole or not at all.

    Args:
      path: where to; its directory exists.
      tensors: NumPy arrays, or torch tensors on any device.
      metadata: strings for the header of the file.

    Raises:
      OSError: the disk is full or the write fails; a file that existed before is unchanged.
    """
    arrays = {name: _as_array(tensor) for name, tensor in tensors.items()}

    def write(temporary: Path) -> None:
        try:
            safetensors.numpy.save_file(arrays, temporary, metadata=dict(metadata or {}))
        except safetensors.SafetensorError as error:  # how the library reports a full disk
            raise OSError(f"{path} cannot be written: {error}") from error

    write_atomically(path, write)


def read_tensors(path: Path) -> dict[str, np.ndarray]:
    """Return the named arrays of a safetensors file.

    Raises:
      ConfigError: the file does not exist, or is not a whole safetensors file.
    """
    try:
        return safetensors.numpy.load_file(path)
    except (OSError, safetensors.SafetensorError) as error:
        raise ConfigError(f"{path}: expected a safetensors file that can be read, found: {error}") from error


def read_state(path: Path) -> "dict[str, torch.Tensor]":
    """Return the named tensors of a safetensors file, as ``load_state_dict`` of a policy takes them.

    Raises:
      ConfigError: the file does not exist, or is not a whole safetensors file.
    """
    import torch

    return {name: torch.from_numpy(array) for name, array in read_tensors(path).items()}


def read_metadata(path: Path) -> dict[str, str]:
    """Return the strings in the header of a safetensors file.

    Raises:
      ConfigError: the file does not exist, or is not a whole safetensors file.
    """
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            return dict(file.metadata() or {})
    except (OSError, safetensors.SafetensorError) as error:
        raise ConfigError(f"{path}: expected a safetensors file that can be read, found: {error}") from error


def _as_array(tensor: Any) -> np.ndarray:
    if hasattr(tensor, "detach"):  # torch, which this module must not import
        tensor = tensor.detach().cpu().numpy()
    return np.asarray(tensor, order="C")
