"""The server of the page: its port, its token, and its shutdown."""

import contextlib
import logging
import os
import secrets
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import uvicorn

from arena.common.errors import ConfigError
from arena.page.app import Page
from arena.page.runs import Catalogue
from arena.system.listening import listen, url_of
from arena.system.signals import stop_signals

GRACE = 1
"""Seconds for requests in progress when the server closes."""


def token_for(host: str, path: Path | None) -> str | None:
    """Return the token that requests need: None on this machine's loopback, unless a file is named.

    Args:
      host: address to listen on.
      path: file with the token; it is created, readable by its owner only, if it does not exist.

    Raises:
      ConfigError: the file cannot be read or written, or is empty.
    """
    if path is None:
        return None if host in ("localhost", "::1") or host.startswith("127.") else secrets.token_urlsafe(24)
    try:
        if not path.exists():
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
                file.write(secrets.token_urlsafe(24) + "\n")
        token = path.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise ConfigError(f"--token-file: {path} cannot be read or written: {error}") from error
    if not token:
        raise ConfigError(f"--token-file: expected a token in {path}, found none")
    return token


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Keep the handlers of ``Server``; uvicorn's own ones would raise the signal again afterwards."""
        yield


class Server:
    """A server of the page with an open port, so that its address is known before it serves.

    Attributes:
      link: address for a browser, with the token if there is one.
    """

    def __init__(self, catalogue: Catalogue, host: str, port: int, token: str | None) -> None:
        """Open the port, and end in order on Ctrl-C, SIGTERM and SIGHUP from now on.

        Raises:
          ConfigError: the port is in use, or the host is not of this machine.
        """
        self._listening = listen(host, port)
        number = self._listening.getsockname()[1]
        app = Page(catalogue).app(token, f"arena-page-{number}", (host,))
        self._server = _Server(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                ws="none",
                timeout_graceful_shutdown=GRACE,
            )
        )
        logging.getLogger("uvicorn").setLevel(logging.WARNING)
        for number in stop_signals():
            signal.signal(number, self._server.handle_exit)
        self.link = _link(self._listening, host) + (f"/?token={token}" if token else "/")

    def serve(self) -> None:
        """Serve until one of these signals."""
        self._server.run(sockets=[self._listening])


def _link(listening: socket.socket, host: str) -> str:
    """Return the address for a browser; of all addresses of this machine, the one with its name."""
    return (
        url_of(listening)
        .replace("//0.0.0.0", f"//{socket.gethostname()}")
        .replace("//[::]", f"//{socket.gethostname()}")
    )
