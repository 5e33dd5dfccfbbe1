"""Copies of a user's files in the run directory, which are read where the files themselves have gone."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from arena.common.errors import ConfigError
from arena.config.files import copied_name
from arena.config.run import RunConfig
from arena.records.run_directory import RunDirectory, keep_and_write


class CodeCopies:
    """Copies of the files with the environments, policies and networks that a configuration refers to.

    Attributes:
      described: for each file its copy, relative to the run directory, and the SHA-256 of its content.
    """

    def __init__(self, config: RunConfig, run: RunDirectory) -> None:
        """Read the files; ``write`` writes the copies.

        Raises:
          ConfigError: a file cannot be read.
        """
        self._content: dict[Path, str] = {}
        self.described: dict[str, dict[str, str]] = {}
        for path in sorted(set(_files(config.model_dump()))):
            if path.parent == run.code:
                continue
            copy = run.code / copied_name(path)
            try:
                self._content[copy] = path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigError(f"{path} cannot be read: {error}") from error
            digest = hashlib.sha256(self._content[copy].encode()).hexdigest()
            self.described[str(path)] = {"copy": str(copy.relative_to(run.path)), "sha256": digest}

    def write(self) -> None:
        """Write the copies, once the run directory exists; a copy of an earlier attempt that differs is kept.

        Raises:
          ConfigError: one cannot be written.
        """
        for copy, text in self._content.items():
            try:
                copy.parent.mkdir(exist_ok=True)
                keep_and_write(copy, text)
            except OSError as error:
                raise ConfigError(f"{copy} cannot be written: {error.strerror}") from error


def _files(value: Any) -> Iterator[Path]:
    """Yield the files that references in a configuration lead to."""
    if isinstance(value, Mapping):
        for item in value.values():
            yield from _files(item)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for item in value:
            yield from _files(item)
    elif isinstance(value, str) and ".py:" in value:
        path = Path(value.partition(":")[0])
        if path.suffix == ".py" and path.is_file():
            yield path
