"""Checkpoints: directories of tensor files that count only when every byte of them is on disk."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import safetensors
import safetensors.numpy

from arena.common.errors import ConfigError

if TYPE_CHECKING:  # root and environment processes do without torch, and so do some policies
    import torch

MANIFEST = "manifest.json"
PARTIAL = ".partial"


class Newest(NamedTuple):
    """The checkpoint to go on from.

    Attributes:
      path: its directory.
      manifest: what ``complete`` was given, plus ``parts`` (name -> size and checksum).
      warnings: one text for each newer checkpoint that is damaged and was passed over, newest first.
    """

    path: Path
    manifest: dict[str, Any]
    warnings: tuple[str, ...]


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Let ``write`` fill a file beside ``path``, and give it its name once it is on disk.

    Raises:
      OSError: the disk is full or refuses; ``path`` is as it was before.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write(temporary)
        _sync(temporary)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all."""

    def write(temporary: Path) -> None:
        temporary.write_text(text, encoding="utf-8")

    write_atomically(path, write)


def write_tensors(path: Path, tensors: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> None:
    """Write named tensors to a safetensors file, whole or not at all.

    Args:
      path: where to; its directory exists.
      tensors: NumPy arrays, or torch tensors on any device.
      metadata: texts for the header of the file.

    Raises:
      OSError: the disk is full or refuses; a file that was there before still is.
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
      ConfigError: there is no such file, or it is not a whole safetensors file.
    """
    try:
        return safetensors.numpy.load_file(path)
    except (OSError, safetensors.SafetensorError) as error:
        raise ConfigError(f"{path}: expected a safetensors file that can be read, found: {error}") from error


def read_state(path: Path) -> "dict[str, torch.Tensor]":
    """Return the named tensors of a safetensors file: what a policy's ``load_state_dict`` is given.

    Raises:
      ConfigError: there is no such file, or it is not a whole safetensors file.
    """
    import torch

    return {name: torch.from_numpy(array) for name, array in read_tensors(path).items()}


def read_metadata(path: Path) -> dict[str, str]:
    """Return the texts in the header of a safetensors file.

    Raises:
      ConfigError: there is no such file, or it is not a whole safetensors file.
    """
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            return dict(file.metadata() or {})
    except (OSError, safetensors.SafetensorError) as error:
        raise ConfigError(f"{path}: expected a safetensors file that can be read, found: {error}") from error


class Checkpoints:
    """The checkpoints of one run: ``<directory>/<number>/``, made as ``<number>.partial/`` and then renamed.

    Root begins and completes; in between every writer puts its part into the directory that ``begin`` returned.
    """

    def __init__(self, directory: Path, keep: int = 3) -> None:
        """Look after ``directory`` (made when needed) and keep the ``keep`` newest checkpoints in it."""
        if keep < 1:
            raise ConfigError(f"checkpoint.keep: expected at least 1, found {keep}")
        self.directory = directory
        self.keep = keep

    def next_number(self) -> int:
        """Return a number above that of every checkpoint there is, damaged ones too."""
        return max(self._numbers(), default=0) + 1

    def partial(self, number: int) -> Path:
        """Return the directory that the parts of checkpoint ``number`` are written into."""
        return self.directory / f"{number}{PARTIAL}"

    def begin(self, number: int) -> Path:
        """Make the empty directory for the parts of checkpoint ``number``, and remove what was left half-made.

        Raises:
          OSError: the disk is full or refuses.
        """
        if self.directory.is_dir():
            for leftover in self.directory.glob(f"*{PARTIAL}"):
                shutil.rmtree(leftover)
        path = self.partial(number)
        path.mkdir(parents=True)
        return path

    def carry(self, number: int, source: Path | None, names: Iterable[str]) -> None:
        """Take over what checkpoint ``number`` lacks from an older one: players who do not play now stay as they were.

        Raises:
          OSError: the disk is full or refuses.
        """
        for name in names:
            kept, missing = source and source / name, self.partial(number) / name
            if kept is not None and kept.is_file() and not missing.exists():
                shutil.copyfile(kept, missing)

    def complete(self, number: int, manifest: Mapping[str, Any], expected: Iterable[str] = ()) -> Path:
        """Declare that all parts of checkpoint ``number`` are written, and drop the oldest checkpoints.

        Args:
          number: what ``begin`` was given.
          manifest: JSON values that resume needs besides the parts.
          expected: names of parts that must be there.

        Returns:
          The directory of the complete checkpoint.

        Raises:
          OSError: an expected part is missing, or the disk is full or refuses; older checkpoints are untouched.
        """
        partial, final = self.partial(number), self.directory / str(number)
        for name in expected:
            if not (partial / name).is_file():
                raise FileNotFoundError(f"checkpoint {number} lacks its part {name}; it is left out")
        # Names with a dot in front are what a writer that died left half-made.
        whole = [path for path in sorted(partial.iterdir()) if not path.name.startswith(".")]
        parts = {path.name: _describe(path) for path in whole}
        write_text(partial / MANIFEST, _seal({**manifest, "number": number, "parts": parts}))
        if final.exists():  # a damaged one of an earlier life
            self._discard(final)
        os.rename(partial, final)
        _sync(self.directory)
        for old in sorted(self._numbers(), reverse=True)[self.keep :]:
            self._discard(self.directory / str(old))
        return final

    def newest(self) -> Newest | None:
        """Return the newest checkpoint that is whole; None if none was ever made.

        Raises:
          ConfigError: there are checkpoints, and each of them is damaged.
        """
        warnings: list[str] = []
        for number in sorted(self._numbers(), reverse=True):
            path = self.directory / str(number)
            try:
                return Newest(path, _verify(path), tuple(warnings))
            except (OSError, ValueError) as error:
                warnings.append(f"checkpoint {path} is damaged and is passed over: {error}")
        if warnings:
            raise ConfigError(
                f"{self.directory}: expected a checkpoint that is whole, found only damaged ones:\n  "
                + "\n  ".join(warnings)
                + "\nrestore one of them from a backup, or start a new run under another name (--set name=...)"
            )
        return None

    def _numbers(self) -> list[int]:
        if not self.directory.is_dir():
            return []
        return [int(path.name) for path in self.directory.iterdir() if path.name.isdecimal() and path.is_dir()]

    def _discard(self, path: Path) -> None:
        # Renamed first: a checkpoint that is removed only half must not look like a damaged one.
        doomed = path.with_name(f"{path.name}.old{PARTIAL}")
        os.rename(path, doomed)
        shutil.rmtree(doomed)


def _as_array(tensor: Any) -> np.ndarray:
    if hasattr(tensor, "detach"):  # torch, which this module must not import
        tensor = tensor.detach().cpu().numpy()
    return np.asarray(tensor, order="C")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _describe(path: Path) -> dict[str, Any]:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
        return {"bytes": file.tell(), "sha256": digest.hexdigest()}


def _canonical(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True).encode()


def _seal(document: Mapping[str, Any]) -> str:
    """Return ``document`` as JSON that carries its own checksum, so that damage to the manifest shows."""
    plain = json.loads(json.dumps(document))  # as it will be read: keys are texts, tuples are lists
    plain["sha256"] = hashlib.sha256(_canonical(plain)).hexdigest()
    return json.dumps(plain, indent=1)


def _verify(path: Path) -> dict[str, Any]:
    manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
    seal = manifest.pop("sha256", None) if isinstance(manifest, dict) else None
    if seal != hashlib.sha256(_canonical(manifest)).hexdigest():
        raise ValueError(f"{MANIFEST} does not match its checksum")
    for name, described in manifest["parts"].items():
        part = path / name
        if not part.is_file():
            raise ValueError(f"{name} is missing")
        size = part.stat().st_size
        if size != described["bytes"]:
            raise ValueError(f"{name} has {size} bytes instead of {described['bytes']}")
        if _describe(part)["sha256"] != described["sha256"]:
            raise ValueError(f"{name} does not match its checksum")
    return manifest
