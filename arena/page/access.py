"""Protection of the page: the token, the Host header, and headers that let a browser run nothing else."""

import hmac
import ipaddress
from collections.abc import Sequence
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlsplit

from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "media-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
"""What a browser may load and run: only files of this server."""

HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


class Guard:
    """Middleware that admits requests, and adds the headers to every response.

    Without a token a request must name this machine in its Host header: otherwise a web page elsewhere could read the
    runs by a name that an attacker points to 127.0.0.1 (DNS rebinding). With a token, which such a page does not
    have, it may have any name, as behind a proxy.
    """

    def __init__(self, app: ASGIApp, token: str | None, cookie: str, hosts: Sequence[str] = ()) -> None:
        """Protect ``app``.

        Args:
          app: the application.
          token: token that requests must have once, in the link; None for no check.
          cookie: name of the cookie that keeps the token; it has the port, since cookies are shared between ports.
          hosts: names of this machine besides those of the loopback.
        """
        self._app, self._token, self._cookie = app, token, cookie
        self._hosts = frozenset(host.lower() for host in ("localhost", *hosts))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on; WebSockets are neither."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *HEADERS]
            await send(message)

        if scope["type"] == "http":
            await (self._answer(scope) or self._app)(scope, receive, send_with_headers)
        elif scope["type"] == "lifespan":
            await self._app(scope, receive, send)

    def _answer(self, scope: Scope) -> Response | None:
        """Return the response to a request that is not passed on."""
        headers = dict(scope["headers"])
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("expected GET: the page only reads\n", 405, {"allow": "GET, HEAD"})
        if self._token is None:
            host = _host(headers.get(b"host", b"").decode("latin-1"))
            if host is None or not (host in self._hosts or _is_loopback(host)):
                return PlainTextResponse(
                    "expected the name of this machine in the header Host, such as localhost; to open the page through "
                    "a proxy or under another name, start it with --token-file FILE\n",
                    421,
                )
            return None
        for name, value in parse_qsl(scope["query_string"].decode("latin-1")):
            if name == "token" and self._is_token(value):
                response = RedirectResponse("./")  # relative: it keeps the path of a proxy
                response.set_cookie(self._cookie, self._token, httponly=True, samesite="strict", path="")
                return response
        if self._is_token(_cookie_of(headers.get(b"cookie", b""), self._cookie)):
            return None
        return PlainTextResponse(
            "expected the token: open the link that arena page has printed, which ends in ?token=...\n", 401
        )

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(), (self._token or "").encode())


def _host(header: str) -> str | None:
    """Return the name or address in a Host header, in lower case; None if it is malformed."""
    try:
        return urlsplit(f"//{header}").hostname
    except ValueError:
        return None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _cookie_of(header: bytes, name: str) -> str:
    try:
        morsel = SimpleCookie(header.decode("latin-1")).get(name)
    except CookieError:
        return ""
    return "" if morsel is None else morsel.value
