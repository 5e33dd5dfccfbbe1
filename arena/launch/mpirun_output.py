"""Filtered output of mpirun."""

import contextlib
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from arena.common.errors import GO_ON

FAILED_TO_START = b"listener thread failed to start"
"""Message of Open MPI's mpirun, at times on a busy machine, before it has started any rank; another attempt helps."""

BANNER = re.compile(rb"(?<!-)-{74}\n")
"""Frame of mpirun's own messages; it may follow a line that a rank has not ended yet."""

DEATH = re.compile(rb"process rank (\d+) with PID \d+ on node (\S+)\s+exited\s+on\s+signal\s+(\d+)")
"""Message of mpirun about a rank that was killed."""

CUT_OFF = re.compile(
    rb"NBC_Progress: an error \d+ was found during schedule \S+ at row-offset \d+[^\n]*\n\n?"
    rb"|Error in NBC_Start_round\(\) \(-?\d+\)\n"
)
"""Message of Open MPI about a collective that a dead rank has interrupted, once for each rank."""

NOISE = (b"MPI_ABORT was invoked", b"prterun has exited due to process", b"exited with non-zero status")
"""Messages of mpirun that only repeat, at length, what the arena has reported already."""


class RankAbout(NamedTuple):
    """Description of a rank.

    Attributes:
      part: its role, in a few words; empty if unknown.
      file: file with what it has printed.
      printed: the last lines of that.
    """

    part: str = ""
    file: str = ""
    printed: Sequence[str] = ()

    @classmethod
    def unknown(cls, rank: int) -> "RankAbout":
        """Return the description of a rank that nothing is known about."""
        return cls()


def signal_in(number: int) -> str:
    """Return the usual name of a signal."""
    with contextlib.suppress(ValueError):
        return f"signal {number} ({signal.Signals(number).name})"
    return f"signal {number}"


def of_a_death(message: bytes, about: Callable[[int], RankAbout]) -> bytes | None:
    """Return mpirun's message about a killed rank with the rank's role; None for other messages."""
    death = DEATH.search(message)
    if death is None:
        return None
    rank, node, number = int(death[1]), death[2].decode(errors="replace"), int(death[3])
    described = about(rank)
    part = f" ({described.part})" if described.part else ""
    lines = []
    if described.printed:
        lines = [f"the last lines of {described.file}:", *(f"  {line}" for line in described.printed)]
    lines.append(f"error: rank {rank} on {node}{part} was killed by {signal_in(number)}; {GO_ON}\n")
    return "\n".join(lines).encode()


def forward_output(
    source: int, about: Callable[[int], RankAbout], not_started: threading.Event, quiet: threading.Event | None = None
) -> None:
    """Copy mpirun's standard error to ours as it arrives, without messages that are only noise.

    Set ``not_started`` in place of a message that mpirun could not start; copy nothing once ``quiet`` is set.
    """
    held = b""
    while chunk := os.read(source, 65536):
        if quiet is not None and quiet.is_set():
            held = b""
            continue
        # Open MPI ends the text of an aborted job with a zero byte, which makes grep treat a log as binary.
        held = filter_noise(held + chunk.replace(b"\0", b""), about, not_started)
    write_error(held)


def filter_noise(
    data: bytes, about: Callable[[int], RankAbout] = RankAbout.unknown, not_started: threading.Event | None = None
) -> bytes:
    """Write the complete part of ``data``; return the rest, the beginning of a framed message.

    Set ``not_started``, if there is one, in place of a message that mpirun could not start.
    """
    while opening := BANNER.search(data):
        write_error(data[: opening.start()])
        closing = BANNER.search(data, opening.end())
        if closing is None:
            return data[opening.start() :]
        message, data = data[opening.start() : closing.end()], data[closing.end() :]
        if FAILED_TO_START in message and not_started is not None:
            not_started.set()
        elif not any(noise in message for noise in NOISE):
            write_error(of_a_death(message, about) or message)
    data = CUT_OFF.sub(b"", data)
    whole = len(data.rstrip(b"-"))  # a banner may be arriving in pieces
    write_error(data[:whole])
    return data[whole:]


def write_error(data: bytes) -> None:
    """Write to standard error, unbuffered."""
    sys.stderr.buffer.write(data)
    sys.stderr.flush()
