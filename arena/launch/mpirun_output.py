"""mpirun's own output: passed on without what tells a user nothing."""

import contextlib
import os
import re
import signal
import sys
import threading
from collections.abc import Callable

from arena.common.errors import GO_ON

FAILED_TO_START = b"listener thread failed to start"
"""What Open MPI's mpirun says, now and then on a busy machine, before it has started any rank."""

BANNER = re.compile(rb"(?<!-)-{74}\n")
"""What mpirun frames its own messages with; it may follow a line that a rank has not ended yet."""

DEATH = re.compile(rb"process rank (\d+) with PID \d+ on node (\S+)\s+exited\s+on\s+signal\s+(\d+)")
"""What mpirun says of a rank that was killed."""

CUT_OFF = re.compile(
    rb"NBC_Progress: an error \d+ was found during schedule \S+ at row-offset \d+[^\n]*\n\n?"
    rb"|Error in NBC_Start_round\(\) \(-?\d+\)\n"
)
"""What Open MPI says of a collective that a dead rank has cut off, once for each rank."""

NOISE = (b"MPI_ABORT was invoked", b"prterun has exited due to process", b"exited with non-zero status")
"""Messages of mpirun that only repeat, at length, what the arena has said already."""


def signal_in(number: int) -> str:
    """Return what people call a signal."""
    with contextlib.suppress(ValueError):
        return f"signal {number} ({signal.Signals(number).name})"
    return f"signal {number}"


def of_a_death(message: bytes, part_of: Callable[[int], str]) -> bytes | None:
    """Return, where mpirun says that a rank was killed, the same with what the rank was."""
    found = DEATH.search(message)
    if found is None:
        return None
    rank, node, number = int(found[1]), found[2].decode(errors="replace"), int(found[3])
    what = part_of(rank)
    what = f" ({what})" if what else ""
    return f"error: rank {rank} on {node}{what} was killed by {signal_in(number)}; {GO_ON}\n".encode()


def forward_output(
    source: int, part_of: Callable[[int], str], not_started: threading.Event, quiet: threading.Event | None = None
) -> None:
    """Copy mpirun's standard error to ours as it comes, without the messages that are only noise.

    ``not_started`` is set where mpirun says that it could not even start; nothing is copied once ``quiet`` is set.
    """
    held = b""
    while chunk := os.read(source, 65536):
        if quiet is not None and quiet.is_set():
            held = b""
            continue
        if FAILED_TO_START in chunk:
            not_started.set()
        # Open MPI ends the text of an aborted job with a zero byte, for which grep takes a log to be binary.
        held = filter_noise(held + chunk.replace(b"\0", b""), part_of)
    write_error(held)


def filter_noise(data: bytes, part_of: Callable[[int], str] = lambda rank: "") -> bytes:
    """Write what can be written of ``data``; return what must wait for more: the start of a framed message."""
    while opening := BANNER.search(data):
        write_error(data[: opening.start()])
        closing = BANNER.search(data, opening.end())
        if closing is None:
            return data[opening.start() :]
        message, data = data[opening.start() : closing.end()], data[closing.end() :]
        if not any(noise in message for noise in NOISE):
            write_error(of_a_death(message, part_of) or message)
    data = CUT_OFF.sub(b"", data)
    whole = len(data.rstrip(b"-"))  # a banner may be arriving in pieces
    write_error(data[:whole])
    return data[whole:]


def write_error(data: bytes) -> None:
    """Write to standard error, at once."""
    sys.stderr.buffer.write(data)
    sys.stderr.flush()
