"""How the launcher starts the parent process of its machine."""

import contextlib
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator

from arena.launch.parent.client import listen, machine


@contextlib.contextmanager
def parent_process() -> Iterator[str]:
    """Start a parent process, and end it with the block; yields the address of its socket.

    The socket listens before the parent has imported anything: clients that come early wait in its queue.
    """
    address = f"@arena-{secrets.token_hex(16)}-{machine()}"
    with listen(address) as listener:
        process = subprocess.Popen(
            [sys.executable, "-m", "arena.launch.parent.server", str(listener.fileno()), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            pass_fds=[listener.fileno()],
            start_new_session=True,
        )
    try:
        yield address
    finally:
        process.kill()
        process.wait()
