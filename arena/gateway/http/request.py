"""A parsed request: headers in one pass, body up to a limit."""

from collections.abc import Awaitable, Callable
from typing import Any

from arena.gateway.http.responses import Refusal, shown

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]

_READ = {
    b"game_id": b"game_id",
    b"game-id": b"game_id",
    b"step_kind": b"step_kind",
    b"step-kind": b"step_kind",
    b"tick_id": b"tick_id",
    b"tick-id": b"tick_id",
}
"""Headers of a step: some proxies drop names with an underscore, so that a dash is equivalent."""

UNKNOWN = "?"
WHOLE_ANSWER = "arena.answer"
"""Key of the scope: an async function of status, headers (with content-length) and body that sends a whole response."""

_KEPT = (b"content-length", b"content-encoding", b"authorization", b"origin", b"inference-header-content-length")
_KNOWN = {**_READ, **{name: name for name in _KEPT}}


class Request:
    """One request.

    Attributes:
      method, path: of the request.
      client: its origin address, ``UNKNOWN`` for another process of this server.
    """

    def __init__(self, scope: Scope, receive: Receive) -> None:
        """Parse the headers; see the ASGI specification for the arguments."""
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.client: str = (scope.get("client") or (UNKNOWN,))[0] or UNKNOWN
        self._receive = receive
        self._found: dict[bytes, bytes] = {}
        self._twice: set[bytes] = set()
        for name, value in scope["headers"]:
            known = _KNOWN.get(name)
            if known is not None and self._found.setdefault(known, value) != value:
                self._twice.add(known)

    def header(self, name: bytes) -> bytes | None:
        """Return a header's value, or None.

        Raises:
          Refusal: it occurs twice, with different values.
        """
        if name in self._twice:
            raise Refusal(400, "bad_header", f"{name.decode()}: given twice, with different values")
        return self._found.get(name)

    def first(self, name: bytes) -> bytes | None:
        """Return a header's first value, or None, without checks."""
        return self._found.get(name)

    def check_body(self, limit: int) -> None:
        """Check a body's headers before it is read: it must not be encoded, nor longer than the limit.

        Raises:
          Refusal: it is.
        """
        encoding = self.header(b"content-encoding")
        if encoding is not None and encoding.strip().lower() not in (b"", b"identity"):
            raise Refusal(415, "unsupported_encoding", f"content-encoding: expected none, found {shown(encoding)}")
        length = self.header(b"content-length")
        if length is not None and int(length) > limit:
            raise too_large(limit)

    async def body(self, limit: int) -> bytes:
        """Return the body.

        Raises:
          Refusal: it is longer than ``limit`` bytes.
          ConnectionError: the client has disconnected before it was complete.
        """
        message = await self._receive()
        if message["type"] == "http.request" and not message.get("more_body"):
            whole: bytes = message.get("body", b"")
            if len(whole) > limit:
                raise too_large(limit)
            return whole
        parts = bytearray()
        while True:
            if message["type"] != "http.request":
                raise ConnectionError("the client has gone away")
            parts += message.get("body", b"")
            if len(parts) > limit:
                raise too_large(limit)
            if not message.get("more_body"):
                return bytes(parts)
            message = await self._receive()


def too_large(limit: int) -> Refusal:
    """Return the refusal of a body that is too long."""
    return Refusal(413, "too_large", f"expected a body of at most {limit} bytes", close=True)
