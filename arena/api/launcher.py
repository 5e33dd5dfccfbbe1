"""The command line as a child process: the only way in which a run starts, from Python too.

Its output goes to files, which need no reader: a run must write its checkpoint although this process has died.
"""

import os
import re
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from arena.common.errors import ConfigError
from arena.system import launcher_env
from arena.system.processes import identity

CHUNK = 1 << 20
"""Bytes that are read at a time; a line that is longer is taken in parts."""

LAST_LINES = 30
"""Number of lines of an output that are kept."""


def check_call(function: str) -> None:
    """Check that a function that starts runs was called where it may be.

    Raises:
      ConfigError: it was called inside a rank, or by each of several tasks of srun.
    """
    inside = os.environ.get(launcher_env.INSIDE)
    if inside is not None:
        raise ConfigError(
            f"{function} was called inside {inside}, which imports this file for its classes; put the call under "
            'if __name__ == "__main__":'
        )
    _, tasks = launcher_env.task_of_step() or (0, 1)
    if tasks > 1:
        raise ConfigError(
            f"srun has started {tasks} processes that call {function}; start one of them (srun -n 1, or without "
            "srun), which starts the ranks itself"
        )


class _Output:
    """An output of the launcher: a file that grows, and the part of it that has been read."""

    def __init__(self) -> None:
        self.file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the process)
        self._read = 0
        self._last: list[str] = []

    def new_text(self) -> str:
        """Return what was written since the last call, up to the last whole line."""
        data = os.pread(self.file.fileno(), CHUNK, self._read)
        data = data[: data.rfind(b"\n") + 1] or (data if len(data) == CHUNK else b"")
        self._read += len(data)
        text = data.decode(errors="replace")
        self._last = (self._last + text.splitlines())[-LAST_LINES:]
        return text

    @property
    def last_lines(self) -> list[str]:
        """The last lines, as read so far."""
        return self._last


class Launcher:
    """A run that this process has started.

    Attributes:
      output: standard output; empty if the launcher writes to this process's terminal.
      errors: standard error.
    """

    def __init__(self, arguments: Sequence[str], *, on_terminal: bool, writes_progress: bool) -> None:
        """Start the launcher.

        Args:
          arguments: command line of ``arena``.
          on_terminal: whether it draws its view on the terminal of this process.
          writes_progress: whether the root writes its progress to a file.
        """
        self.output, self.errors = _Output(), _Output()
        variables = launcher_env.outside_of_rank(os.environ) | {launcher_env.ENDS_WITH: identity()}
        if writes_progress:
            variables[launcher_env.PROGRESS] = "1"
        if not on_terminal:
            variables["ARENA_TERMINAL"] = "plain"
        if places := _places_of_modules():
            variables["PYTHONPATH"] = os.pathsep.join(filter(None, [variables.get("PYTHONPATH"), *places]))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "arena.launch", *arguments],
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=None if on_terminal else self.output.file,
            stderr=self.errors.file,
            start_new_session=True,  # Ctrl-C reaches this process alone, which then stops the run in order
        )

    @property
    def exit_code(self) -> int | None:
        """Exit code, None while it runs."""
        return self._process.poll()

    def interrupt(self) -> None:
        """Stop the run in order; the second call kills it."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)

    def user_error(self) -> str:
        """Return the text of the error that the launcher has ended with."""
        self.errors.new_text()
        text = "\n".join(self.errors.last_lines)
        found = re.search(r"^error: (.*)", text, re.DOTALL | re.MULTILINE)
        return found[1] if found else text


def _places_of_modules() -> list[str]:
    """Return the folders from which this process, and not a new one, imports modules: that of a script, for example."""
    libraries = [os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")]
    known = {os.getcwd(), *os.environ.get("PYTHONPATH", "").split(os.pathsep)}
    places = []
    for entry in dict.fromkeys(sys.path):
        place = os.path.realpath(entry)
        in_library = any(place == library or place.startswith(library + os.sep) for library in libraries)
        if entry and entry not in known and place not in known and Path(place).is_dir() and not in_library:
            places.append(place)
    return places
