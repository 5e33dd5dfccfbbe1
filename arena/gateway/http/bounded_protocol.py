"""uvicorn's HTTP protocol with limits for headers, the time of a request, and the number of connections."""

import asyncio
import contextlib
import secrets
from functools import partial
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from arena.config.gateway import GatewayConfig
from arena.gateway.http.request import WHOLE_ANSWER
from arena.gateway.http.responses import Refusal

MAX_HEAD = 16384
"""Largest size of a request's line and headers, and of the trailer behind its body, in bytes."""

LINGER = 2.0
"""Seconds for which data of a refused client are read and dropped, so that it can read the refusal."""

SPARE_CONNECTIONS = 256
"""Connections beyond those of the games: for health checks, metrics, and new games."""


class _Transport:
    """A connection's transport that, if the client is still sending, reads for a while before it closes.

    A socket closed with unread data is reset, and the client may never see the response.
    """

    def __init__(self, transport: Any, protocol: "BoundedProtocol") -> None:
        self._transport, self._protocol = transport, protocol
        self.get_extra_info = transport.get_extra_info
        self._head = b""
        self.pause_reading, self.resume_reading = transport.pause_reading, transport.resume_reading
        self.abort = transport.abort
        self._closing = False

    def write(self, data: bytes) -> None:
        """Send data, but hold back the head of a response until its body follows: one system call for both."""
        if self._head:
            data, self._head = self._head + data, b""
        elif data.startswith(b"HTTP/1.1 ") and not data.startswith(b"HTTP/1.1 100"):
            self._head = data
            return
        self._transport.write(data)

    def write_whole(self, data: bytes) -> None:
        """Send a whole response."""
        self._transport.write(data)

    def flush(self) -> None:
        """Send a head without a body."""
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
        """Count the connection, and start its clock."""
        super().connection_made(_Transport(transport, self))  # type: ignore[arg-type]
        self.since: float | None = self.loop.time()  # when the current or next request has begun
        self.receiving = False  # whether a request has begun that is incomplete
        self._head, self._raw, self._body, self._in_head, self._boundary = 0, 0, 0, True, False
        self._wrong: Refusal | None = None
        if len(self.connections) > self.bounds.connections:
            self.app = self.bounds.reject_connection

    def data_received(self, data: bytes) -> None:
        """Parse received data."""
        if self.transport.is_closing():  # read only so that the client can read the refusal
            return
        self.receiving = True
        if self.since is None:
            self.since = self.loop.time()
        self._boundary, self._body = False, 0
        super().data_received(data)
        if self._in_head and not self.transport.is_closing():
            # Of an unfinished head, which the parser buffers itself. If it begins in these data, what precedes it ends
            # with an empty line and perhaps a body.
            begun = data.rfind(b"\r\n\r\n") + 4 + self._body if self._boundary and b"\r\n\r\n" in data else 0
            self._raw += len(data) - min(begun, len(data))
            if self._raw > MAX_HEAD:
                self.refuse(_head_too_large())

    def on_message_begin(self) -> None:
        """Begin a request."""
        super().on_message_begin()
        self._head, self._raw, self._in_head, self._boundary = 0, 0, True, True

    def on_url(self, url: bytes) -> None:
        """Add a part of the request's line."""
        super().on_url(url)
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header, or a trailer of a chunked body."""
        super().on_header(name, value)
        self._count(len(name) + len(value) + 4)

    def _count(self, size: int) -> None:
        self._head += size
        if self._head > MAX_HEAD:
            self._wrong = _head_too_large()
            raise ValueError(self._wrong.text)  # the parser stops, and calls send_400_response

    def on_headers_complete(self) -> None:
        """Begin the response; the application's task has not begun yet, and finds ``answer`` in the scope."""
        super().on_headers_complete()
        self._in_head, self._body = False, 0
        self.scope[WHOLE_ANSWER] = partial(self.answer, self.cycle)  # type: ignore[literal-required]

    def on_body(self, body: bytes) -> None:
        """Add a part of the body."""
        super().on_body(body)
        self._body += len(body)

    async def answer(self, cycle: Any, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        """Send a whole response: uvicorn's ``send`` would take two messages, and check the headers again.

        Args:
          cycle: uvicorn's cycle of the request.
          status: HTTP status.
          headers: headers with content-length; written by the application, so that they need no checks.
          body: the whole body; a HEAD request gets none of it.
        """
        if cycle.flow.write_paused and not cycle.disconnected:  # the client does not read earlier responses
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
        """Record that the request is complete."""
        self._in_head, self._raw, self._boundary = True, 0, True
        self.receiving, self.since = False, None
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Send the rest of a response, and continue with the next request."""
        self.transport.flush()  # type: ignore[attr-defined]
        super().on_response_complete()

    def _unsupported_upgrade_warning(self) -> None:
        """Respond as if no upgrade had been offered; the parser reads no more of this connection."""
        if self.cycle is not None:
            self.cycle.keep_alive = False

    def send_400_response(self, msg: str) -> None:
        """Refuse invalid HTTP, or too long a head."""
        self.refuse(self._wrong or Refusal(400, "bad_http", "this is no HTTP/1.1 request", close=True))

    def check(self, now: float) -> None:
        """Close the connection if its request takes too long."""
        if self.since is not None and now - self.since > self.bounds.body_timeout and not self.transport.is_closing():
            text = f"the request was not complete within {self.bounds.body_timeout:g} s"
            self.refuse(Refusal(408, "slow_body", text, close=True))

    def refuse(self, refusal: Refusal) -> None:
        """Respond without the application, if there is no response yet, and close the connection."""
        cycle = self.cycle
        under_way = cycle is not None and not cycle.response_complete
        if under_way and self._in_head:  # the error follows a request that still gets its response
            cycle.keep_alive = False
            return
        if self._in_head or (under_way and not cycle.response_started):
            answer = refusal.response(secrets.token_hex(8))
            headers = [(b"content-type", answer.content_type), *answer.headers]
            headers += [(b"content-length", str(len(answer.body)).encode())]
            lines = b"".join(name + b": " + value + b"\r\n" for name, value in headers)
            self.transport.write(STATUS_LINE[refusal.status] + lines + b"\r\n" + answer.body)
        if under_way:
            cycle.disconnected = True  # a wait for the rest of the body ends
            cycle.message_event.set()
        self.receiving = True  # the parser has stopped in the middle of it
        self.transport.close()


def _head_too_large() -> Refusal:
    return Refusal(431, "header_too_large", f"expected headers of at most {MAX_HEAD} bytes", close=True)


class Bounds:
    """Limits of connections.

    Attributes:
      connections: largest number of open connections.
      body_timeout: seconds for a request to arrive.
    """

    def __init__(self, config: GatewayConfig, *, peers: bool = False) -> None:
        """Read the limits; ``peers`` double them by forwarded requests."""
        self.connections = (2 if peers else 1) * (2 * config.sessions + SPARE_CONNECTIONS)
        self.body_timeout = config.body_timeout

    async def reject_connection(self, scope: Any, receive: Any, send: Any) -> None:
        """Respond to the first request of a surplus connection; an ASGI application."""
        text = f"all {self.connections} connections are taken; try again"
        answer = Refusal(503, "full", text, (b"retry-after", b"1"), close=True).response(secrets.token_hex(8))
        headers = [(b"content-type", answer.content_type), (b"content-length", str(len(answer.body)).encode())]
        await send({"type": "http.response.start", "status": 503, "headers": [*headers, *answer.headers]})
        await send({"type": "http.response.body", "body": answer.body})
