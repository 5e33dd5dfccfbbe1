"""The terminal that a run is watched on: whether there is one, how large it is, and a console for it."""

import os
from collections.abc import Mapping
from typing import NamedTuple, TextIO

from rich.console import Console

from arena.system.launcher_env import started_by_mpi


class Terminal(NamedTuple):
    """What the output goes to.

    Attributes:
      interactive: whether lines on it can be drawn over.
      width, height: its size in characters; None where it is asked each time.
    """

    interactive: bool
    width: int | None = None
    height: int | None = None


def find_terminal(stream: TextIO, environment: Mapping[str, str] = os.environ) -> Terminal:
    """Return what ``stream`` goes to.

    What rank 0 writes to is no sign of it: some launchers give their ranks a pseudo terminal and write what comes out
    of it to a file. A launcher that was started from a terminal says so with ``ARENA_TERMINAL=120x40``; where nobody
    did, the launcher's own output is looked at. Anything but a size (``ARENA_TERMINAL=plain``) asks for plain lines.
    """
    said = environment.get("ARENA_TERMINAL", "")
    width, _, height = said.partition("x")
    if environment.get("TERM") == "dumb":
        return Terminal(False)
    if width.isdecimal() and height.isdecimal():
        return Terminal(True, max(int(width), 40), max(int(height), 8))
    if said:
        return Terminal(False)
    return _terminal_of_launcher() if started_by_mpi() is not None else Terminal(stream.isatty())


def _terminal_of_launcher() -> Terminal:
    """Return what the parent process (mpirun, where that is on this machine) writes to."""
    try:
        with open(f"/proc/{os.getppid()}/fd/1", "wb", buffering=0, opener=_without_controlling) as output:
            return Terminal(True, *os.get_terminal_size(output.fileno()))
    except OSError:  # no such file system, somebody else's process, or no terminal
        return Terminal(False)


def _without_controlling(path: str, flags: int) -> int:
    return os.open(path, (flags | os.O_NOCTTY) & ~(os.O_CREAT | os.O_TRUNC))


def make_console(stream: TextIO, terminal: Terminal) -> Console:
    """Return a console that writes to ``stream`` what suits the terminal at its end."""
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
