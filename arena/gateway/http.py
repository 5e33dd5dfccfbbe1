"""The HTTP server: uvicorn, on a port that is open before the server says so. The only module that imports it."""

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn

from arena.common.errors import ConfigError

GRACE = 5
"""Seconds for requests that have not come whole when the server closes."""


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0 takes a free one.

    Raises:
      ConfigError: the port is in use, or the host is none of this machine.
    """
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(f"port: {host}:{port} is in use; choose another, or 0 for any free one") from error
        if error.errno == errno.EACCES:
            raise ConfigError(f"port: {host}:{port} is not ours to open; choose one of 1024 to 65535") from error
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        raise ConfigError(f"host: expected an address of this machine, found {host!r} ({reason})") from error


def url_of(listening: socket.socket, scheme: str = "http") -> str:
    """Return the address that clients use."""
    host, port = listening.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to whoever owns the process."""
        yield


class HttpServer:
    """Serves an ASGI application in the running event loop."""

    def __init__(self, application: Any, listening: socket.socket, *, keep_alive: float) -> None:
        """Prepare to serve.

        Args:
          application: what answers.
          listening: the open port.
          keep_alive: seconds after which a connection without a request is closed.
        """
        self._listening = listening
        config = uvicorn.Config(
            application,
            http="httptools",
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=GRACE,
            timeout_keep_alive=keep_alive,  # type: ignore[arg-type]  # seconds of a timer: a fraction is fine
        )
        self._server = _Server(config)

    async def serve(self) -> None:
        """Serve until ``stop`` is called; what is being answered then is still answered."""
        await self._server.serve(sockets=[self._listening])

    def stop(self) -> None:
        """Take no more connections, and have ``serve`` return."""
        self._server.should_exit = True

    async def started(self) -> None:
        """Return once connections are taken."""
        while not self._server.started:
            await asyncio.sleep(0.001)
