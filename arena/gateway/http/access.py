"""Access control: the token, and the web pages that may send requests."""

import hmac
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path

from arena.common.errors import ConfigError
from arena.gateway.http.request import Request
from arena.gateway.http.responses import Headers, Refusal, Response

_ALLOWED = b"authorization, content-type, game_id, game-id, step_kind, step-kind, tick_id, tick-id"


class Access:
    """Checks of the rights of requests."""

    def __init__(self, token: str | None = None, origins: Sequence[str] = ()) -> None:
        """Store the rights.

        Args:
          token: token that requests must have; None for no check.
          origins: origins of web pages that may send requests, such as ``http://localhost:3000``; ``*`` for all.
        """
        self._token = None if token is None else token.encode()
        self._origins = frozenset(origin.encode() for origin in origins)

    def check(self, request: Request) -> None:
        """Check the token of a request.

        Raises:
          Refusal: it has none, or another one.
        """
        if self._token is None:
            return
        scheme, _, token = (request.header(b"authorization") or b"").partition(b" ")
        if scheme.lower() != b"bearer" or not hmac.compare_digest(token.strip(), self._token):
            text = "expected a token: authorization: Bearer TOKEN"
            raise Refusal(401, "unauthorized", text, (b"www-authenticate", b"Bearer"))

    def headers(self, origin: bytes | None) -> Headers:
        """Return the headers of every response to a page of this origin."""
        if origin is None or not self._allows(origin):
            return ()
        return (
            (b"access-control-allow-origin", origin),
            (b"access-control-expose-headers", b"version, replayed"),
            (b"vary", b"origin"),
        )

    def preflight(self, request: Request, method: str) -> Response | None:
        """Return the response to a browser's preflight request, or None if the page may not send requests.

        Args:
          request: the preflight request.
          method: method that the path allows.
        """
        origin = request.header(b"origin")
        if request.method != "OPTIONS" or origin is None or not self._allows(origin):
            return None
        headers = ((b"access-control-allow-methods", method.encode()), (b"access-control-allow-headers", _ALLOWED))
        return Response(b"", headers=headers, status=204)

    def _allows(self, origin: bytes) -> bool:
        return origin in self._origins or (b"*" in self._origins and all(byte >= 32 for byte in origin))


def token_of(path: str | Path | None) -> str | None:
    """Return the token in a file, else the one in ``ARENA_TOKEN``, else None.

    Raises:
      ConfigError: the file cannot be read, or is empty.
    """
    if path is None:
        return os.environ.get("ARENA_TOKEN") or None
    try:
        token = Path(path).read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise ConfigError(f"token_file: {path} cannot be read: {error}") from error
    if not token:
        raise ConfigError(f"token_file: expected a token in {path}, found none")
    return token


def serves_loopback_only(host: str) -> bool:
    """Return whether a server on this host is reachable from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
