"""Metadata of an exported file, and the check file beside it."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from arena.common.errors import ConfigError
from arena.envs.interface import EntitySpaces
from arena.experience.entity_json import entity_from_json, entity_to_json
from arena.tensors.weights import read_metadata, read_tensors, write_tensors

KEY = "arena"  # key of the text in a file's metadata
SHA256 = "sha256"


class ExportError(Exception):
    """A file differs from the policy, or is not the file that was checked; one sentence."""


class ExportMetadata(NamedTuple):
    """Description of an exported file.

    Attributes:
      player: name of the player.
      steps: transition steps that it has learned from.
      policy: name of its policy in configurations.
      settings: settings of the policy.
      spaces: its inputs and outputs.
      memory: shape of a lane's recurrent state; empty for feed-forward policies.
      opset: version of ONNX's operators; 0 for other formats.
      quantized: ``int8`` or empty.
      checked: result of the comparison: rows, largest errors, share of equal actions.
      weights: sha256 of the policy's weights.
      normalization: ``mean`` and ``deviation`` of each number of the inputs that the file itself normalises, by input.
    """

    player: str
    steps: int
    policy: str
    settings: dict[str, Any]
    spaces: EntitySpaces
    memory: tuple[int, ...] = ()
    opset: int = 0
    quantized: str = ""
    checked: dict[str, float] = {}  # noqa: RUF012  # immutable by convention
    weights: str = ""
    normalization: dict[str, dict[str, list[float]]] = {}  # noqa: RUF012  # immutable by convention

    @property
    def state(self) -> tuple[int, ...] | None:
        """Shape of a lane's recurrent state; None for feed-forward policies."""
        return self.memory or None

    def to_json(self) -> str:
        """Return the metadata as text."""
        data = self._asdict()
        return json.dumps({**data, "spaces": entity_to_json(self.spaces)})


def about_from_json(text: str | None, place: object) -> ExportMetadata:
    """Return the metadata that ``ExportMetadata.to_json`` has written.

    Raises:
      ExportError: the text is something else.
    """
    try:
        data = json.loads(text or "")
        return ExportMetadata(**{**data, "memory": tuple(data["memory"]), "spaces": entity_from_json(data["spaces"])})
    except (ConfigError, KeyError, TypeError, ValueError) as error:
        raise ExportError(f"{place}: expected a file of arena export, found none of its metadata") from error


def digest_of_weights(weights: Mapping[str, Any]) -> str:
    """Return sha256 of named tensors."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        digest.update(name.encode() + np.ascontiguousarray(weights[name].detach().cpu().numpy()).tobytes())
    return digest.hexdigest()


def check_file(path: Path) -> Path:
    """Return the path of the check file of an exported file: ``x.onnx.check.safetensors``."""
    return path.with_name(path.name + ".check.safetensors")


def write_check_file(path: Path, content: bytes, tensors: Mapping[str, np.ndarray]) -> None:
    """Write the data of a later check: named arrays, and sha256 of the exported file.

    Raises:
      OSError: the disk is full or the write fails.
    """
    write_tensors(check_file(path), tensors, {SHA256: hashlib.sha256(content).hexdigest()})


def read_check_file(path: Path, content: bytes) -> dict[str, np.ndarray]:
    """Return the named arrays of a check file.

    Raises:
      ConfigError: there is no check file, or it is damaged.
      ExportError: it belongs to another file.
    """
    beside = check_file(path)
    tensors = read_tensors(beside)
    if read_metadata(beside).get(SHA256) != hashlib.sha256(content).hexdigest():
        raise ExportError(f"{path}: expected the file that {beside.name} was written for, found another or a cut one")
    return tensors
