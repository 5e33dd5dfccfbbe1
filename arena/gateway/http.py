"""The HTTP server: uvicorn with limits, on a port that is open before the server says so. Its only importer."""

import asyncio
import contextlib
import errno
import os
import secrets
import socket
import ssl
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from arena.common.errors import ConfigError
from arena.config.gateway import GatewayConfig
from arena.gateway.answers import Refusal
from arena.gateway.request import WHOLE_ANSWER
from arena.system.open_files import make_room

MAX_HEAD = 16384
"""Bytes of a request's line and headers, and of what may follow its body."""

GRACE = 5
"""Seconds for requests that have not come whole when the server closes."""

LINGER = 2.0
"""Seconds for which what a refused client still sends is read and dropped, so that it can read why it was refused."""

SPARE_FILES = 512
SPARE_CONNECTIONS = 256
_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""After how many seconds of silence the kernel asks whether a client is still there, how often, and how many times."""


def listen(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """Return a socket that listens.

    Args:
      host: of this machine.
      port: 0 takes a free one.
      shared: whether other sockets may share the port; the kernel then spreads connections over them.

    Raises:
      ConfigError: the port is in use, or the host is none of this machine.
    """
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family, backlog=2048, reuse_port=shared)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(f"port: {host}:{port} is in use; choose another, or 0 for any free one") from error
        if error.errno == errno.EACCES:
            raise ConfigError(
                f"port: {host}:{port} may not be opened by this user; choose a port from 1024 to 65535"
            ) from error
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        raise ConfigError(f"host: expected an address of this machine, found {host!r} ({reason})") from error
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # connections inherit it
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):
            listening.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return listening


def url_of(listening: socket.socket, scheme: str = "http") -> str:
    """Return the address that clients use."""
    host, port = listening.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def raise_open_file_limit(sessions: int, *, peers: bool = False) -> None:
    """Raise the number of files that this process may open to what so many games need; ``peers`` need as many again.

    Raises:
      ConfigError: the system does not allow so many.
    """
    needed = (4 if peers else 2) * sessions + SPARE_FILES
    hard = make_room(needed)
    if hard is not None:
        raise ConfigError(
            f"sessions: {sessions} games need {needed} open files, and this system allows {hard} (ulimit -Hn); "
            f"expected at most {max(1, (hard - SPARE_FILES) // 2)}"
        )


class _Transport:
    """A connection's transport that, where the client is still sending, reads on for a while before it closes.

    A socket that is closed with unread data in it is reset, and the client may never see the answer.
    """

    def __init__(self, transport: Any, protocol: "BoundedProtocol") -> None:
        self._transport, self._protocol = transport, protocol
        self.get_extra_info = transport.get_extra_info
        self._head = b""
        self.pause_reading, self.resume_reading = transport.pause_reading, transport.resume_reading
        self.abort = transport.abort
        self._closing = False

    def write(self, data: bytes) -> None:
        """Send what has come, but keep the head of an answer until its body follows: one system call for both."""
        if self._head:
            data, self._head = self._head + data, b""
        elif data.startswith(b"HTTP/1.1 ") and not data.startswith(b"HTTP/1.1 100"):
            self._head = data
            return
        self._transport.write(data)

    def write_whole(self, data: bytes) -> None:
        """Send a whole answer."""
        self._transport.write(data)

    def flush(self) -> None:
        """Send a head that no body follows."""
        if self._head:
            self.write(b"")

    def is_closing(self) -> bool:
        return self._closing or self._transport.is_closing()

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        self.flush()
        if not self._protocol.receiving or self._transport.is_closing():
            self._transport.close()
            return
        with contextlib.suppress(Exception):
            self.resume_reading()
            if self._transport.can_write_eof():
                self._transport.write_eof()
        self._protocol.loop.call_later(LINGER, self._transport.abort)


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol, with limits for headers, the time of a request, and the number of connections."""

    bounds: "Bounds"

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the connection, and begin its clock."""
        super().connection_made(_Transport(transport, self))  # type: ignore[arg-type]
        self.since: float | None = self.loop.time()  # when the request that comes now, or could, has begun
        self.receiving = False  # whether a request has begun that is not whole
        self._head, self._raw, self._body, self._in_head, self._boundary = 0, 0, 0, True, False
        self._wrong: Refusal | None = None
        if len(self.connections) > self.bounds.connections:
            self.app = self.bounds.reject_connection

    def data_received(self, data: bytes) -> None:
        """Parse what has come."""
        if self.transport.is_closing():  # it is read so that the client can read why it was refused
            return
        self.receiving = True
        if self.since is None:
            self.since = self.loop.time()
        self._boundary, self._body = False, 0
        super().data_received(data)
        if self._in_head and not self.transport.is_closing():
            # Of a head without an end, whose parts the parser keeps to itself. Where it begins in these data, what
            # precedes it ends with an empty line and perhaps a body.
            begun = data.rfind(b"\r\n\r\n") + 4 + self._body if self._boundary and b"\r\n\r\n" in data else 0
            self._raw += len(data) - min(begun, len(data))
            if self._raw > MAX_HEAD:
                self.refuse(_head_too_large())

    def on_message_begin(self) -> None:
        """Begin a request."""
        super().on_message_begin()
        self._head, self._raw, self._in_head, self._boundary = 0, 0, True, True

    def on_url(self, url: bytes) -> None:
        """Take a part of the request's line."""
        super().on_url(url)
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, or what looks like one behind a chunked body."""
        super().on_header(name, value)
        self._count(len(name) + len(value) + 4)

    def _count(self, size: int) -> None:
        self._head += size
        if self._head > MAX_HEAD:
            self._wrong = _head_too_large()
            raise ValueError(self._wrong.text)  # the parser stops, and comes to send_400_response

    def on_headers_complete(self) -> None:
        """Begin to answer; the application's task has not begun yet, and finds how to answer at once in the scope."""
        super().on_headers_complete()
        self._in_head, self._body = False, 0
        self.scope[WHOLE_ANSWER] = partial(self.answer, self.cycle)  # type: ignore[literal-required]

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        super().on_body(body)
        self._body += len(body)

    async def answer(self, cycle: Any, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        """Send a whole answer: what uvicorn's ``send`` does in two messages, whose headers it looks at once more.

        Args:
          cycle: uvicorn's, of the request.
          status: of HTTP.
          headers: with content-length; written in the application, so that they need not be checked.
          body: the whole; a question for the headers alone (HEAD) gets none of it.
        """
        if cycle.flow.write_paused and not cycle.disconnected:  # the client does not read what it was sent before
            await cycle.flow.drain()
        if cycle.disconnected:
            return
        parts = [STATUS_LINE[status]]
        for name, value in (*cycle.default_headers, *headers):
            parts += (name, b": ", value, b"\r\n")
        if (b"connection", b"close") in headers:
            cycle.keep_alive = False
        elif not cycle.keep_alive:
            parts.append(b"connection: close\r\n")
        parts += (b"\r\n", b"" if cycle.scope["method"] == "HEAD" else body)
        cycle.response_started = cycle.response_complete = True
        cycle.waiting_for_100_continue = False
        cycle.transport.write_whole(b"".join(parts))
        cycle.message_event.set()
        if not cycle.keep_alive:
            self.transport.close()
        cycle.on_response()

    def on_message_complete(self) -> None:
        """Note that the request is whole."""
        self._in_head, self._raw, self._boundary = True, 0, True
        self.receiving, self.since = False, None
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Send what is left of an answer, and go on to the next request."""
        self.transport.flush()  # type: ignore[attr-defined]
        super().on_response_complete()

    def _unsupported_upgrade_warning(self) -> None:
        """Answer as if nothing else had been offered; the parser reads no more of this connection."""
        if self.cycle is not None:
            self.cycle.keep_alive = False

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, or too long a head."""
        self.refuse(self._wrong or Refusal(400, "bad_http", "this is no HTTP/1.1 request", close=True))

    def check(self, now: float) -> None:
        """Close the connection if its request takes too long."""
        if self.since is not None and now - self.since > self.bounds.body_timeout and not self.transport.is_closing():
            text = f"the request was not complete within {self.bounds.body_timeout:g} s"
            self.refuse(Refusal(408, "slow_body", text, close=True))

    def refuse(self, refusal: Refusal) -> None:
        """Answer without the application, where nothing has been answered, and close the connection."""
        cycle = self.cycle
        under_way = cycle is not None and not cycle.response_complete
        if under_way and self._in_head:  # what is wrong comes after a request that is still to be answered
            cycle.keep_alive = False
            return
        if self._in_head or (under_way and not cycle.response_started):
            answer = refusal.answer(secrets.token_hex(8))
            headers = [(b"content-type", answer.content_type), *answer.headers]
            headers += [(b"content-length", str(len(answer.body)).encode())]
            lines = b"".join(name + b": " + value + b"\r\n" for name, value in headers)
            self.transport.write(STATUS_LINE[refusal.status] + lines + b"\r\n" + answer.body)
        if under_way:
            cycle.disconnected = True  # a wait for the rest of the body ends
            cycle.message_event.set()
        self.receiving = True  # the parser has stopped in the midst of it
        self.transport.close()


def _head_too_large() -> Refusal:
    return Refusal(431, "header_too_large", f"expected headers of at most {MAX_HEAD} bytes", close=True)


class Bounds:
    """Limits of connections.

    Attributes:
      connections: how many may be open.
      body_timeout: seconds that a request may take to come.
    """

    def __init__(self, config: GatewayConfig, *, peers: bool = False) -> None:
        """Read the limits; ``peers`` hand on as many requests again."""
        self.connections = (2 if peers else 1) * (2 * config.sessions + SPARE_CONNECTIONS)
        self.body_timeout = config.body_timeout

    async def reject_connection(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer the first request of a connection that is one too many; an ASGI application."""
        text = f"all {self.connections} connections are taken; try again"
        answer = Refusal(503, "full", text, (b"retry-after", b"1"), close=True).answer(secrets.token_hex(8))
        headers = [(b"content-type", answer.content_type), (b"content-length", str(len(answer.body)).encode())]
        await send({"type": "http.response.start", "status": 503, "headers": [*headers, *answer.headers]})
        await send({"type": "http.response.body", "body": answer.body})


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
          application: what answers.
          listening: the open port.
          config: the limits, and the certificate.
          peers: where other processes of this server reach this one; None where there are none.

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
                timeout_keep_alive=config.keep_alive,  # type: ignore[arg-type]  # a timer's: a fraction is fine
                ssl_certfile=config.tls_cert,
                ssl_keyfile=config.tls_key,
            )
        )
        if config.tls_cert is not None:
            _load_certificate(self._server.config, config.tls_cert)

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._server.server_state.connections)

    async def serve(self) -> None:
        """Serve until ``stop`` is called; what is being answered then is still answered."""
        loop = asyncio.get_running_loop()
        clock = loop.create_task(self._watch())
        try:
            async with await self._listen_to_peers(loop) if self._peers is not None else contextlib.nullcontext():
                await self._server.serve(sockets=[self._listening])
        finally:
            clock.cancel()

    async def _listen_to_peers(self, loop: asyncio.AbstractEventLoop) -> asyncio.AbstractServer:
        """Listen on a socket of this machine, without TLS."""
        config = self._server.config
        if not config.loaded:
            config.load()

        def connection() -> asyncio.Protocol:
            return self._protocol(config=config, server_state=self._server.server_state, app_state={}, _loop=loop)

        return await loop.create_unix_server(connection, str(self._peers), backlog=2048)

    async def _watch(self) -> None:
        """Close connections whose requests take too long."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(1)
            now = loop.time()
            for connection in list(self._server.server_state.connections):
                if isinstance(connection, BoundedProtocol):
                    connection.check(now)

    def stop(self) -> None:
        """Take no more connections, and have ``serve`` return."""
        self._server.should_exit = True

    async def started(self) -> None:
        """Return once connections are taken."""
        while not self._server.started:
            await asyncio.sleep(0.001)


def _load_certificate(config: uvicorn.Config, path: str) -> None:
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"tls_cert: {path} and its key cannot be read: {error}") from error


__all__ = ["BoundedProtocol", "HttpServer", "listen", "raise_open_file_limit", "url_of"]
