"""Listening sockets of HTTP servers, and the addresses that clients use."""

import errno
import os
import socket

from arena.common.errors import ConfigError

_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""Keepalive of connections: seconds of silence before the first probe, seconds between probes, number of probes."""


def listen(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """Return a listening socket.

    Args:
      host: address of this machine.
      port: port; 0 for any free one.
      shared: whether other sockets may share the port; the kernel then spreads connections over them.

    Raises:
      ConfigError: the port is in use, or the host is not of this machine.
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
    """Return the address for clients."""
    host, port = listening.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
