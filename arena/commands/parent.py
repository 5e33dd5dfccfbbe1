"""``arena parent``: one process that imports for a series of runs, with ranks that are forks of it."""

import argparse
import contextlib
import os
import shlex
import signal
import sys
from collections.abc import Sequence

from arena.common.errors import ConfigError
from arena.launch.parent.client import SOCKET, listen
from arena.system.processes import die_with_parent


def main(argv: Sequence[str]) -> int:
    """Run ``arena parent`` until it is interrupted; return the exit code.

    Raises:
      ConfigError: the socket cannot be opened.
    """
    parser = argparse.ArgumentParser(
        "arena parent",
        description="Import once for a series of runs on this machine: tests, sweeps, tournaments. Ranks and arena "
        f"commands that are started with {SOCKET}=SOCKET are forks of this process. It ends by Ctrl-C, by SIGTERM, or "
        "with the process that has started it, and its forks end with it.",
    )
    parser.add_argument("socket", help="a path that does not exist, or @NAME for one without a file")
    text = parser.parse_args(argv).socket
    if not text.startswith("@"):
        text = os.path.abspath(text)  # runs have other working directories
    if sys.platform != "linux":
        raise ConfigError("arena parent: expected Linux, which ends ranks with their parent process")
    die_with_parent()
    try:
        listener = listen(text)
    except OSError as error:
        raise ConfigError(
            f"arena parent: expected a path that can be made, of at most 107 bytes, found {text!r}: "
            f"{error}; use @NAME for a socket without a file"
        ) from None
    from arena.launch.parent.server import Server

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        server = Server(listener)
        print(f"export {SOCKET}={shlex.quote(text)}", flush=True)
        server.run()
    except KeyboardInterrupt:
        return 0
    finally:
        if not text.startswith("@"):
            with contextlib.suppress(OSError):
                os.unlink(text)
