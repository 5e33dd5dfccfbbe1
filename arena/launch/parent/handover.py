"""State that a forked rank takes over from its client: environment, folder, limits, descriptors."""

import contextlib
import fcntl
import marshal
import os
import resource
import signal
import socket
import sys
from collections.abc import Sequence
from typing import NamedTuple

from arena.launch.parent.client import LENGTH, UNBUFFERED

MOST_DESCRIPTORS = 16
"""Largest number of descriptors of one handover."""

LARGEST = 1 << 26
"""Largest size of a handover in bytes."""

TIMEOUT = 5.0
"""Seconds in which a client that has connected sends its handover; other clients wait meanwhile."""

FIRST_FREE = 100
"""Lowest number of descriptors while they are moved, above those that launchers pass on."""


class Handover(NamedTuple):
    """Message of the client.

    Attributes:
      program: folder of the interpreter and installation of the arena.
      arguments: command line of the rank, without the program.
      environment: variables; they replace the parent's.
      folder: working directory.
      umask: file mode creation mask.
      limits: soft and hard resource limits, by name (``RLIMIT_...``).
      affinity: numbers of the cores that the rank may run on.
      nice: nice value.
      descriptors: number of each received descriptor in the client, and so in the rank.
      ignored: names of the signals that the client ignores, as under nohup.
    """

    program: list[str]
    arguments: list[str]
    environment: dict[str, str]
    folder: str
    umask: int
    limits: dict[str, tuple[int, int]]
    affinity: list[int]
    nice: int
    descriptors: list[int]
    ignored: list[str]


def receive(connection: socket.socket) -> tuple[Handover, list[int]]:
    """Return the handover of a client and its descriptors.

    Raises:
      OSError, ValueError, TypeError, EOFError: the client has ended, or sends something else.
    """
    connection.settimeout(TIMEOUT)
    head, received, _, _ = socket.recv_fds(connection, LENGTH.size, MOST_DESCRIPTORS)
    try:
        if len(head) < LENGTH.size:
            raise ConnectionError("the client has ended")
        (size,) = LENGTH.unpack(head)
        if size > LARGEST:
            raise ValueError(f"expected a handover of at most {LARGEST} bytes, found {size}")
        data = connection.recv(size, socket.MSG_WAITALL)
        while len(data) < size:
            part = connection.recv(size - len(data))
            if not part:
                raise ConnectionError("the client has ended")
            data += part
        handover = Handover(**marshal.loads(data))  # sent by a process of this user
        if len(handover.descriptors) != len(received):
            raise ValueError(f"expected {len(handover.descriptors)} descriptors, found {len(received)}")
    except BaseException:
        for descriptor in received:
            os.close(descriptor)
        raise
    connection.settimeout(None)
    return handover, received


def take_over(handover: Handover, received: Sequence[int]) -> None:
    """Give this process, just forked, the state of its client."""
    # Target numbers may be those of received descriptors: move all of them away first.
    moved = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, FIRST_FREE) for descriptor in received]
    for descriptor in received:
        os.close(descriptor)
    for descriptor, number in zip(moved, handover.descriptors, strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)
    for number in {0, 1, 2} - set(handover.descriptors):
        os.close(number)
    os.environ.clear()
    os.environ.update(handover.environment)
    os.chdir(handover.folder)
    os.umask(handover.umask)
    for name, (soft, hard) in handover.limits.items():
        with contextlib.suppress(OSError, ValueError, AttributeError):  # a lower hard limit cannot be raised
            resource.setrlimit(getattr(resource, name), (soft, hard))
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, handover.affinity)
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, handover.nice)
    for name in handover.ignored:
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    sys.argv[1:] = handover.arguments
    if sys.stdout is not None:
        # As Python does at its start: line-buffered for a terminal, else by blocks.
        by_lines = os.isatty(1) or bool(os.environ.get(UNBUFFERED))
        sys.stdout.reconfigure(line_buffering=by_lines)  # type: ignore[union-attr]
