"""How the launcher starts the parent process of its machine."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

BACKLOG = 4096
"""Clients that may wait while the parent imports."""


@contextlib.contextmanager
def parent_process() -> Iterator[str]:
    """Start a parent process, and end it with the block; yields the path of its socket.

    The socket listens before the parent has imported anything: clients that come early wait in its queue.
    """
    folder = tempfile.mkdtemp(prefix="arena-")  # of this user alone
    process = None
    try:
        path = str(Path(folder) / "parent")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(path)
            listener.listen(BACKLOG)
            process = subprocess.Popen(
                [sys.executable, "-m", "arena.launch.parent.server", str(listener.fileno())],
                env={**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")},
                stdin=subprocess.DEVNULL,
                pass_fds=[listener.fileno()],
                start_new_session=True,
            )
        yield path
    finally:
        if process is not None:
            process.kill()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)
