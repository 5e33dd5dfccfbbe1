"""Ports of simulators: each copy on a machine gets one that no other copy has, of this run or of another one."""

import os
import random
import socket

from arena.common.errors import ConfigError

LOWEST, HIGHEST, STEP = 20_000, 32_000, 4
"""Range of the ports: below those that Linux gives to clients (32,768 on). The ``STEP - 1`` ports behind one belong to
it, for simulators that need several."""

_reserved: dict[int, socket.socket] = {}


def reserve_port(index: int) -> int:
    """Return a port that is free, with those behind it, and reserve it for a copy of this process.

    The reservation is an abstract Unix socket of the port's name, which exists once in a network namespace, and ends
    with the process that holds it, however it ends. It is released when the copy with this index gets another one.

    Raises:
      ConfigError: no port is free.
    """
    candidates = list(range(LOWEST, HIGHEST, STEP))
    random.Random(os.urandom(8)).shuffle(candidates)  # of its own: the global generator may be seeded
    for port in candidates:
        reservation = _reservation(port)
        if reservation is None:
            continue
        if all(_is_free(each) for each in range(port, port + STEP)):
            before = _reserved.pop(index, None)
            if before is not None:
                before.close()
            _reserved[index] = reservation
            return port
        reservation.close()
    raise ConfigError(f"expected a free port from {LOWEST} to {HIGHEST} for {{port}}, found none")


def _reservation(port: int) -> socket.socket | None:
    """Return a socket that holds a port's name; None if another process, or this one, has it."""
    held = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        held.bind(f"\0arena-port-{port}")
    except FileNotFoundError:  # no abstract sockets: not Linux, where a port is only checked
        pass
    except OSError:
        held.close()
        return None
    return held


def _is_free(port: int) -> bool:
    """Return whether nothing uses a port on any address, over TCP or UDP."""
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(socket.AF_INET, kind) as trial:
            try:
                trial.bind(("", port))
            except OSError:
                return False
    return True
