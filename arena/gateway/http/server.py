"""The HTTP server: uvicorn with limits, on a port that is open before serving begins."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvicorn

from arena.common.errors import ConfigError
from arena.config.gateway import GatewayConfig
from arena.gateway.http.bounded_protocol import BoundedProtocol, Bounds
from arena.system.open_files import make_room

GRACE = 5
"""Seconds for incomplete requests when the server closes."""

SPARE_FILES = 512
"""Open files beyond those of the games."""


def raise_open_file_limit(sessions: int, *, peers: bool = False) -> None:
    """Raise the limit on open files to the needs of ``sessions`` games; ``peers`` double them.

    Raises:
      ConfigError: the system does not allow that many.
    """
    needed = (4 if peers else 2) * sessions + SPARE_FILES
    hard = make_room(needed)
    if hard is not None:
        raise ConfigError(
            f"sessions: {sessions} games need {needed} open files, and this system allows {hard} (ulimit -Hn); "
            f"expected at most {max(1, (hard - SPARE_FILES) // 2)}"
        )


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the owner of the process."""
        yield


class HttpServer:
    """Serves an ASGI application in the running event loop."""

    def __init__(
        self, application: Any, listening: socket.socket, config: GatewayConfig, peers: Path | None = None
    ) -> None:
        """Prepare to serve.

        Args:
          application: the ASGI application.
          listening: the open port.
          config: the limits, and the certificate.
          peers: path of the socket for other processes of this server; None if there are none.

        Raises:
          ConfigError: the certificate or its key cannot be read.
        """
        self._listening = listening
        self._peers = peers
        bounds = Bounds(config, peers=peers is not None)
        protocol = self._protocol = type("Protocol", (BoundedProtocol,), {"bounds": bounds})
        self._server = _Server(
            uvicorn.Config(
                application,
                http=protocol,
                ws="none",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=GRACE,
                timeout_keep_alive=config.keep_alive,  # type: ignore[arg-type]  # fractions are fine
                ssl_certfile=config.tls_cert,
                ssl_keyfile=config.tls_key,
            )
        )
        if config.tls_cert is not None:
            _load_certificate(self._server.config, config.tls_cert)

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return len(self._server.server_state.connections)

    async def serve(self) -> None:
        """Serve until ``stop`` is called, and complete the responses in progress."""
        loop = asyncio.get_running_loop()
        clock = loop.create_task(self._watch())
        try:
            async with await self._listen_to_peers(loop) if self._peers is not None else contextlib.nullcontext():
                await self._server.serve(sockets=[self._listening])
        finally:
            clock.cancel()

    async def _listen_to_peers(self, loop: asyncio.AbstractEventLoop) -> asyncio.AbstractServer:
        """Listen on a local socket, without TLS."""
        config = self._server.config
        if not config.loaded:
            config.load()

        def connection() -> asyncio.Protocol:
            return self._protocol(config=config, server_state=self._server.server_state, app_state={}, _loop=loop)

        return await loop.create_unix_server(connection, str(self._peers), backlog=2048)

    async def _watch(self) -> None:
        """Close connections with requests that take too long."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(1)
            now = loop.time()
            for connection in list(self._server.server_state.connections):
                if isinstance(connection, BoundedProtocol):
                    connection.check(now)

    def stop(self) -> None:
        """Accept no more connections, and make ``serve`` return."""
        self._server.should_exit = True

    async def started(self) -> None:
        """Return once connections are accepted."""
        while not self._server.started:
            await asyncio.sleep(0.001)


def _load_certificate(config: uvicorn.Config, path: str) -> None:
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"tls_cert: {path} and its key cannot be read: {error}") from error


__all__ = ["BoundedProtocol", "HttpServer", "raise_open_file_limit"]
