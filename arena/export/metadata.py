"""What an exported file says of itself, and the check file that lies beside it."""

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

KEY = "arena"  # of the text in a file's metadata
SHA256 = "sha256"


class ExportError(Exception):
    """A file does not say what the policy says, or is not the file that was checked; one sentence."""


class ExportMetadata(NamedTuple):
    """What an exported file is.

    Attributes:
      player: its name.
      steps: the transition steps that it has learned from.
      policy: of which kind it is, as configurations name it.
      settings: of the policy.
      spaces: what it reads and gives.
      memory: shape of what its memory keeps of a lane; empty without one.
      opset: the version of ONNX's operators; 0 for other formats.
      quantized: ``int8`` or empty.
      checked: how it was found to agree: rows, greatest errors, share of equal actions.
      weights: sha256 of the policy's weights.
    """

    player: str
    steps: int
    policy: str
    settings: dict[str, Any]
    spaces: EntitySpaces
    memory: tuple[int, ...] = ()
    opset: int = 0
    quantized: str = ""
    checked: dict[str, float] = {}  # noqa: RUF012  # never changed
    weights: str = ""

    @property
    def state(self) -> tuple[int, ...] | None:
        """Shape of a lane's memory; None without one."""
        return self.memory or None

    def to_json(self) -> str:
        """Return all of it as a text."""
        said = self._asdict()
        return json.dumps({**said, "spaces": entity_to_json(self.spaces)})


def about_from_json(text: str | None, place: object) -> ExportMetadata:
    """Return what ``ExportMetadata.to_json`` has written.

    Raises:
      ExportError: it is no such text.
    """
    try:
        said = json.loads(text or "")
        return ExportMetadata(**{**said, "memory": tuple(said["memory"]), "spaces": entity_from_json(said["spaces"])})
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
    """Write what a later check compares with: named arrays, and sha256 of the exported file.

    Raises:
      OSError: the disk is full or refuses.
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
