"""Checkpoints: directories of tensor files that count only when every byte of them is on disk."""

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from arena.common.errors import ConfigError
from arena.common.files import _sync, write_text

if TYPE_CHECKING:  # root and environment processes do without torch, and so do some policies
    pass

MANIFEST = "manifest.json"
PARTIAL = ".partial"


class Newest(NamedTuple):
    """The checkpoint from which a run continues.

    Attributes:
      path: its directory.
      manifest: argument of ``complete``, plus ``parts`` (name -> size and checksum).
      warnings: one text for each newer checkpoint that is damaged and was skipped, newest first.
    """

    path: Path
    manifest: dict[str, Any]
    warnings: tuple[str, ...]


class Checkpoints:
    """The checkpoints of one run: ``<directory>/<number>/``, made as ``<number>.partial/`` and then renamed.

    The root begins and completes one; in between every writer puts its part into the directory from ``begin``.
    """

    def __init__(self, directory: Path, keep: int = 3) -> None:
        """Manage ``directory`` (created when needed) and keep the ``keep`` newest checkpoints in it."""
        if keep < 1:
            raise ConfigError(f"checkpoint.keep: expected at least 1, found {keep}")
        self.directory = directory
        self.keep = keep

    def next_number(self) -> int:
        """Return a number above that of every existing checkpoint, damaged ones included."""
        return max(self._numbers(), default=0) + 1

    def partial(self, number: int) -> Path:
        """Return the directory for the parts of checkpoint ``number``."""
        return self.directory / f"{number}{PARTIAL}"

    def begin(self, number: int) -> Path:
        """Create the empty directory for the parts of checkpoint ``number``, and remove incomplete ones.

        Raises:
          OSError: the disk is full or the write fails.
        """
        if self.directory.is_dir():
            for leftover in self.directory.glob(f"*{PARTIAL}"):
                shutil.rmtree(leftover)
        path = self.partial(number)
        path.mkdir(parents=True)
        return path

    def carry(self, number: int, source: Path | None, names: Iterable[str]) -> None:
        """Copy parts that checkpoint ``number`` lacks from an older one: players that do not play now are unchanged.

        Raises:
          OSError: the disk is full or the write fails.
        """
        for name in names:
            source_file, target_file = source and source / name, self.partial(number) / name
            if source_file is not None and source_file.is_file() and not target_file.exists():
                shutil.copyfile(source_file, target_file)

    def complete(self, number: int, manifest: Mapping[str, Any], expected: Iterable[str] = ()) -> Path:
        """Mark checkpoint ``number`` as complete, and remove the oldest checkpoints.

        Args:
          number: argument of ``begin``.
          manifest: JSON values that resume needs besides the parts.
          expected: names of required parts.

        Returns:
          The directory of the complete checkpoint.

        Raises:
          OSError: an expected part is missing, or the write fails; older checkpoints are unchanged.
        """
        partial, final = self.partial(number), self.directory / str(number)
        for name in expected:
            if not (partial / name).is_file():
                raise FileNotFoundError(f"checkpoint {number} lacks its part {name}; it is left out")
        # Names with a leading dot are temporary files of a writer that died.
        whole = [path for path in sorted(partial.iterdir()) if not path.name.startswith(".")]
        parts = {path.name: _describe(path) for path in whole}
        write_text(partial / MANIFEST, _seal({**manifest, "number": number, "parts": parts}))
        if final.exists():  # a damaged one of an earlier attempt
            self._discard(final)
        os.rename(partial, final)
        _sync(self.directory)
        for old in sorted(self._numbers(), reverse=True)[self.keep :]:
            self._discard(self.directory / str(old))
        return final

    def newest(self) -> Newest | None:
        """Return the newest checkpoint that is whole; None if there never was one.

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

    def newest_manifest(self) -> dict[str, Any] | None:
        """Return the manifest of the newest checkpoint without comparing its parts; None if there is none to read."""
        numbers = self._numbers()
        try:
            return json.loads((self.directory / str(max(numbers)) / MANIFEST).read_text("utf-8")) if numbers else None
        except (OSError, ValueError):
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


def _describe(path: Path) -> dict[str, Any]:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
        return {"bytes": file.tell(), "sha256": digest.hexdigest()}


def _canonical(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True).encode()


def _seal(document: Mapping[str, Any]) -> str:
    """Return ``document`` as JSON with its own checksum, so that damage to the manifest is detected."""
    plain = json.loads(json.dumps(document))  # as it will be read: keys are strings, tuples are lists
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
