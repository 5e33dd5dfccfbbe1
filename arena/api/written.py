"""Values of Python as values of a configuration: classes and functions as references that ranks can load."""

import ast
import hashlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from arena.api.display import in_notebook
from arena.common.errors import ConfigError
from arena.common.registry import PICKLED, USER_MODULE

CODE_KEYS = ("use", "actor", "encoder", "network")
"""Keys with values that may be classes and functions; the last two, and all below ``encoder``, in policies alone."""


class Written:
    """Configurations as YAML has them.

    Attributes:
      pickled: content of the files that the ranks need, by their names: classes and functions that no file defines.
    """

    def __init__(self, folder: Path) -> None:
        """Refer to pickled classes and functions as files in ``folder``."""
        self._folder = folder
        self.pickled: dict[str, bytes] = {}

    def value(self, value: Any, place: str = "") -> Any:
        """Return a value with paths as text, tuples as lists, NumPy scalars as numbers, and classes as references.

        Args:
          value: mappings, sequences and scalars.
          place: its place in the configuration.

        Raises:
          ConfigError: a value has no form in a configuration; the message names its place.
        """
        if isinstance(value, Mapping):
            return {str(key): self.value(item, f"{place}.{key}" if place else str(key)) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(item, f"{place}.{index}") for index, item in enumerate(value)]
        if isinstance(value, os.PathLike):
            return os.fspath(value)
        if isinstance(value, str | int | float | None):  # a bool is an int
            return value
        if callable(value):
            if not _may_be_code(place.split(".")):
                raise ConfigError(
                    f"{place}: expected a value that YAML can hold, found {_kind(value)}; classes and functions may "
                    f"stand for {', '.join(CODE_KEYS)} only"
                )
            return self._reference(value, place)
        if hasattr(value, "tolist"):
            return self.value(value.tolist(), place)
        raise ConfigError(f"{place}: expected a value that YAML can hold, found {_kind(value)}")

    def _reference(self, code: Any, place: str) -> str:
        name = getattr(code, "__qualname__", "")
        if not isinstance(code, type | FunctionType) or "." in name or not name.isidentifier():
            raise ConfigError(
                f"{place}: expected a class or function that a module, a script or a cell defines at its top level, "
                f"found {_kind(code)}; ranks are other processes, and load it by its name"
            )
        module = code.__module__
        if module == "__main__":
            script = script_of_main()
            if script is None:
                return self._pickled(code, name)
            return f"{script}:{name}"
        if module.startswith(USER_MODULE):  # loaded from a file by such a reference
            return f"{inspect.getfile(code)}:{name}"
        if importlib.util.find_spec(module) is None or getattr(sys.modules[module], name, None) is not code:
            raise ConfigError(f"{place}: the ranks cannot import {name} from {module!r}; define it in a file")
        return f"{module}:{name}"

    def _pickled(self, code: Any, name: str) -> str:
        content = cloudpickle.dumps(code)
        file = f"{name}-{hashlib.sha256(content).hexdigest()[:8]}{PICKLED}"
        self.pickled[file] = content
        return f"{self._folder / file}:{name}"

    def write_pickled(self) -> None:
        """Write the files of pickled classes and functions."""
        for name, content in self.pickled.items():
            self._folder.mkdir(parents=True, exist_ok=True)
            (self._folder / name).write_bytes(content)

    def remove_pickled(self) -> None:
        """Remove them, if the run has not begun."""
        for name in self.pickled:
            (self._folder / name).unlink(missing_ok=True)
        for folder in (self._folder, self._folder.parent):
            if self.pickled and folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()


def _may_be_code(keys: Sequence[str]) -> bool:
    """Return whether a class or a function may stand at a place of the configuration."""
    return keys[-1] in ("use", "actor") or (keys[0] == "policies" and not {"encoder", "network"}.isdisjoint(keys))


def _kind(value: Any) -> str:
    name = getattr(value, "__qualname__", "")
    if "<lambda>" in name:
        return "a lambda"
    if "<locals>" in name:
        return f"{name.rpartition('.')[2]}, which the function {name.partition('.')[0]} defines"
    if isinstance(value, type):
        return f"the class {name}"
    return f"the function {name}" if isinstance(value, FunctionType) else f"an object of type {type(value).__name__}"


def script_of_main() -> Path | None:
    """Return the script that this process executes; None in a notebook and at a prompt."""
    file = getattr(sys.modules["__main__"], "__file__", None)
    if file is None or in_notebook() or not Path(file).is_file():
        return None
    return Path(file).resolve()


def check_main_guard(configuration: str) -> None:
    """Check that ranks can import the script that this process executes, if a configuration refers to it.

    Raises:
      ConfigError: they would start the training again.
    """
    script = script_of_main()
    if script is None or f"{script}:" not in configuration:
        return
    line = _line_of_main()
    if line is None:
        return
    for statement in ast.parse(script.read_text(encoding="utf-8")).body:
        if statement.lineno <= line <= (statement.end_lineno or 0):
            if not (isinstance(statement, ast.If) and "__name__" in ast.unparse(statement.test)):
                raise ConfigError(
                    f"{script}, line {statement.lineno}: the ranks import this script for its classes, and would start "
                    'the training again; put the call under if __name__ == "__main__":'
                )
            return


def _line_of_main() -> int | None:
    """Return the line that the script of this process executes at its top level; None if it is another thread's."""
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") == "__main__":
            return frame.f_lineno
        frame = frame.f_back
    return None
