"""A standalone server: from the open port to the last response, with its signals."""

import asyncio
import contextlib
import gc
import os
import signal
import socket
import sys
from collections.abc import Iterator

import numpy as np
import uvloop

from arena.common.errors import ConfigError
from arena.config.gateway import GatewayConfig
from arena.gateway.http.access import Access, serves_loopback_only, token_of
from arena.gateway.http.app import Gateway
from arena.gateway.http.server import HttpServer, raise_open_file_limit
from arena.gateway.workers.peers import WorkerPlace
from arena.system.listening import listen, url_of
from arena.system.signals import stop_signals

AFTER_A_SECOND_SIGNAL = 130
GARBAGE = (50_000, 20, 20)
"""Number of objects after which Python searches for cycles: pending requests hold many, and leave none."""

SWITCH_INTERVAL = 0.0005
"""Seconds for which a computing thread keeps the interpreter, while the event loop waits for it."""


class Listener:
    """An open port, and its access checks.

    Attributes:
      access: access checks.
      url: address for clients.
      listening: the socket.
    """

    def __init__(self, config: GatewayConfig, access: Access, listening: socket.socket) -> None:
        """Store the arguments."""
        self.access, self.listening = access, listening
        self.url = url_of(listening, "http" if config.tls_cert is None else "https")


@contextlib.contextmanager
def opened(config: GatewayConfig, place: WorkerPlace | None = None) -> Iterator[Listener]:
    """Open the port, before anything slow is loaded.

    Args:
      config: host, port and limits.
      place: place of this process among several; its port is open already.

    Raises:
      ConfigError: other machines would have access without a token, the port is in use, or there are too many games.
    """
    token = token_of(config.token_file)
    if token is None and not serves_loopback_only(config.host):
        raise ConfigError(
            f"token_file: expected a file with a token, since {config.host} can be reached from other machines, "
            "found none"
        )
    raise_open_file_limit(config.sessions, peers=place is not None)
    with listen(config.host, config.port) if place is None else socket.socket(fileno=place.descriptor) as listening:
        yield Listener(config, Access(token, config.allow_origins), listening)


def serve(gateway: Gateway, door: Listener, config: GatewayConfig, line: str, place: WorkerPlace | None = None) -> int:
    """Serve until a signal, then until open games have ended; return the exit code.

    Args:
      gateway: the application.
      door: the open port.
      config: the limits.
      line: printed when the server is ready.
      place: place of this process among several.

    Raises:
      ConfigError: the certificate cannot be read.
    """
    gc.freeze()  # objects loaded by now stay, and need not be traversed again
    gc.set_threshold(*GARBAGE)
    np.seterr(over="ignore")  # a number that is too large for its space is refused
    sys.setswitchinterval(SWITCH_INTERVAL)
    peers = None if place is None else place.socket_of(place.number)
    server = HttpServer(gateway, door.listening, config, peers)
    return uvloop.run(_serve(gateway, server, line, supervised=place is not None))


def _close_once(loop: asyncio.AbstractEventLoop, close_requested: asyncio.Event) -> None:
    loop.remove_reader(sys.stdin.fileno())
    close_requested.set()


async def _serve(gateway: Gateway, server: HttpServer, line: str, *, supervised: bool) -> int:
    gateway.connections = lambda: server.connections
    loop, close_requested = asyncio.get_running_loop(), asyncio.Event()

    def close(number: int) -> None:
        if close_requested.is_set() and number != signal.SIGHUP:
            os._exit(AFTER_A_SECOND_SIGNAL)
        close_requested.set()

    for number in stop_signals():
        loop.add_signal_handler(number, close, number)
    if supervised:  # the other end of standard input closes when the supervisor ends
        loop.add_reader(sys.stdin.fileno(), _close_once, loop, close_requested)
    serving, clock = loop.create_task(server.serve()), loop.create_task(gateway.run_maintenance())
    starting = loop.create_task(server.started())
    await asyncio.wait({starting, serving}, return_when=asyncio.FIRST_COMPLETED)
    if serving.done():  # it could not start, and raises the reason
        starting.cancel()
        await serving
    with contextlib.suppress(BrokenPipeError):  # the supervisor may have ended
        print(line, flush=True)
    await close_requested.wait()
    await gateway.drain()
    server.stop()
    await serving
    clock.cancel()
    return 0
