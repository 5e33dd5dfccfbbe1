"""A client of a server: one connection, sequential requests, without a library."""

import asyncio
import ssl
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from arena.common.errors import ConfigError


class Address(NamedTuple):
    """Address of a server.

    Attributes:
      host, port: host and port of the server.
      tls: TLS settings; None for plain HTTP.
    """

    host: str
    port: int
    tls: ssl.SSLContext | None

    @classmethod
    def of(cls, url: str) -> "Address":
        """Return the address in a URL such as ``http://localhost:8000``.

        Raises:
          ConfigError: it is not such a URL.
        """
        try:
            parts = urlsplit(url if "//" in url else f"http://{url}")
            port = parts.port
        except ValueError:
            parts, port = urlsplit(""), None
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/"):
            raise ConfigError(f"expected a URL such as http://localhost:8000, found {url!r}")
        secure = parts.scheme == "https"
        return cls(parts.hostname, port or (443 if secure else 80), ssl.create_default_context() if secure else None)


class Reply(NamedTuple):
    """Response of a server.

    Attributes:
      status: HTTP status; 0 if the connection broke before a response.
      headers: headers by name in lower case.
      body: bytes of the body.
    """

    status: int
    headers: dict[str, str]
    body: bytes


class Connection:
    """A connection to a server, opened on demand."""

    def __init__(self, address: Address, headers: Mapping[str, str] | None = None) -> None:
        """Store the arguments.

        Args:
          address: address of the server.
          headers: headers of every request.
        """
        self._address = address
        self._fixed = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def post(self, path: str, headers: Mapping[str, str], body: bytes = b"") -> Reply:
        """Return the response to a POST request."""
        return await self._request("POST", path, headers, body)

    async def get(self, path: str, headers: Mapping[str, str]) -> Reply:
        """Return the response to a GET request."""
        return await self._request("GET", path, headers, b"")

    async def _request(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Reply:
        try:
            await self._send(method, path, headers, body)
            return await self._receive()
        except (OSError, EOFError, ValueError) as error:
            self.break_off()
            return Reply(0, {}, str(error).encode())

    async def post_and_disconnect(self, path: str, headers: Mapping[str, str], body: bytes = b"") -> None:
        """Send a POST request, and disconnect before the response."""
        try:
            await self._send("POST", path, headers, body)
        except OSError:
            pass
        self.break_off()

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, port, tls = self._address
        return await asyncio.open_connection(host, port, ssl=tls)

    async def _send(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> None:
        if self._writer is None:
            self._reader, self._writer = await self._open()
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = f"{method} {path} HTTP/1.1\r\nhost: {self._address.host}\r\ncontent-length: {len(body)}\r\n"
        self._writer.write(f"{head}{self._fixed}{lines}\r\n".encode("latin-1") + body)
        await self._writer.drain()

    async def _receive(self) -> Reply:
        assert self._reader is not None
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {}
        for line in head[1:-2]:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        body = await self._reader.readexactly(int(headers.get("content-length", "0")))
        if headers.get("connection") == "close":
            self.break_off()
        return Reply(int(head[0].split(" ")[1]), headers, body)

    def break_off(self) -> None:
        """Close the connection; the next request opens another one."""
        if self._writer is not None:
            self._writer.transport.abort()
        self._reader = self._writer = None
