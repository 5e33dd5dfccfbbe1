"""Detection of the terminal on which a run is watched, its size, and a console for it."""

import os
from collections.abc import Mapping
from typing import NamedTuple, TextIO

from rich.console import Console

from arena.system.launcher_env import started_by_mpi


class Terminal(NamedTuple):
    """Target of the output.

    Attributes:
      interactive: whether lines on it can be overwritten.
      width, height: its size in characters; None to query it each time.
    """

    interactive: bool
    width: int | None = None
    height: int | None = None


def find_terminal(stream: TextIO, environment: Mapping[str, str] = os.environ) -> Terminal:
    """Return the terminal behind ``stream``.

    The stream of rank 0 does not reveal it: some launchers give their ranks a pseudo terminal and write its output to a
    file. A launcher started from a terminal sets ``ARENA_TERMINAL=120x40``; without it the launcher's own output is
    inspected. Any other value (``ARENA_TERMINAL=plain``) requests plain lines.
    """
    configured = environment.get("ARENA_TERMINAL", "")
    width, _, height = configured.partition("x")
    if environment.get("TERM") == "dumb":
        return Terminal(False)
    if width.isdecimal() and height.isdecimal():
        return Terminal(True, max(int(width), 40), max(int(height), 8))
    if configured:
        return Terminal(False)
    return _terminal_of_launcher() if started_by_mpi() is not None else Terminal(stream.isatty())


def _terminal_of_launcher() -> Terminal:
    """Return the terminal of the parent process (mpirun, if that is on this machine)."""
    try:
        with open(f"/proc/{os.getppid()}/fd/1", "wb", buffering=0, opener=_without_controlling) as output:
            return Terminal(True, *os.get_terminal_size(output.fileno()))
    except OSError:  # no such file system, another user's process, or no terminal
        return Terminal(False)


def _without_controlling(path: str, flags: int) -> int:
    return os.open(path, (flags | os.O_NOCTTY) & ~(os.O_CREAT | os.O_TRUNC))


def make_console(stream: TextIO, terminal: Terminal) -> Console:
    """Return a console that writes to ``stream`` in a form that suits its terminal."""
    if not terminal.interactive:
        return Console(file=stream, no_color=True, force_terminal=False, highlight=False, width=1000)
    if terminal.width is None:
        return Console(file=stream, highlight=False)
    rich_colors = os.environ.get("COLORTERM", "").lower() in ("truecolor", "24bit")
    return Console(
        file=stream,
        force_terminal=True,
        color_system="truecolor" if rich_colors else "256",
        width=terminal.width,
        height=terminal.height,
        highlight=False,
    )
