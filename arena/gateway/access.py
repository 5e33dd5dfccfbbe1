"""Who may ask: the token, and the web pages whose scripts are let in."""

import hmac
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path

from arena.common.errors import ConfigError
from arena.gateway.answers import Answer, Headers, Refusal
from arena.gateway.request import Request

_ALLOWED = b"authorization, content-type, game_id, game-id, step_kind, step-kind, tick_id, tick-id"


class Access:
    """Decides who may ask."""

    def __init__(self, token: str | None = None, origins: Sequence[str] = ()) -> None:
        """Note who may.

        Args:
          token: that requests must bring; None lets everybody ask.
          origins: of web pages whose scripts may ask, such as ``http://localhost:3000``; ``*`` for all.
        """
        self._token = None if token is None else token.encode()
        self._origins = frozenset(origin.encode() for origin in origins)

    def check(self, request: Request) -> None:
        """Refuse a request without the token.

        Raises:
          Refusal: it has none, or another one.
        """
        if self._token is None:
            return
        scheme, _, given = (request.header(b"authorization") or b"").partition(b" ")
        if scheme.lower() != b"bearer" or not hmac.compare_digest(given.strip(), self._token):
            text = "expected a token: authorization: Bearer TOKEN"
            raise Refusal(401, "unauthorized", text, (b"www-authenticate", b"Bearer"))

    def headers(self, origin: bytes | None) -> Headers:
        """Return what every answer to a page of this origin has."""
        if origin is None or not self._allows(origin):
            return ()
        return (
            (b"access-control-allow-origin", origin),
            (b"access-control-expose-headers", b"version, replayed"),
            (b"vary", b"origin"),
        )

    def preflight(self, request: Request, method: str) -> Answer | None:
        """Return the answer to what a browser asks before a page may ask, or None where that may not.

        Args:
          request: the browser's question.
          method: that the path allows.
        """
        origin = request.header(b"origin")
        if request.method != "OPTIONS" or origin is None or not self._allows(origin):
            return None
        headers = ((b"access-control-allow-methods", method.encode()), (b"access-control-allow-headers", _ALLOWED))
        return Answer(b"", headers=headers, status=204)

    def _allows(self, origin: bytes) -> bool:
        return origin in self._origins or (b"*" in self._origins and all(byte >= 32 for byte in origin))


def token_of(path: str | Path | None) -> str | None:
    """Return the token in a file, else the one in ``ARENA_TOKEN``, else None.

    Raises:
      ConfigError: the file cannot be read, or has none.
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
    """Whether only this machine reaches a server that listens there."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
