"""The manager's end of a fork server: starts it, requests processes, receives their exits."""

import contextlib
import os
import pickle
import select
import socket
import subprocess
import sys
import tempfile
import time

from arena.env_manager.fork_server import Ended, ForkServerPlan, Kill, Start
from arena.system.launcher_env import without_mpi

PATIENCE = 1.0
"""Seconds to wait for the exit report of a process that is known to have ended."""


COMMAND = "from arena.env_manager.fork_server import main; main()"


class ForkClient:
    """A running fork server; the manager creates another one if it has died."""

    def __init__(self, plans: ForkServerPlan) -> None:
        control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, tempfile.TemporaryFile() as plan_file:
            pickle.dump(plans, plan_file)
            plan_file.seek(0)
            path = os.pathsep.join(part for part in sys.path if part)
            self._process = subprocess.Popen(
                [sys.executable, "-c", COMMAND, str(theirs.fileno())],
                stdin=plan_file,
                env={**without_mpi(os.environ), "PYTHONPATH": path},
                pass_fds=[theirs.fileno()],
            )
        self._control = control
        self._ended: dict[int, Ended] = {}

    @property
    def alive(self) -> bool:
        """Return whether the fork server runs."""
        return self._process.poll() is None

    def start(self, order: Start, descriptor: int) -> None:
        """Request a process, which inherits the socket.

        Raises:
          OSError: the fork server has ended.
        """
        socket.send_fds(self._control, [pickle.dumps(order)], [descriptor], socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)

    def kill(self, key: int) -> Ended | None:
        """End a process; return its exit report, if any."""
        with contextlib.suppress(OSError):
            self._control.send(pickle.dumps(Kill(key)), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            return self.end_of(key)
        return None

    def end_of(self, key: int) -> Ended | None:
        """Return the exit report of a process that is known to have ended; None if it does not arrive in time."""
        until = time.monotonic() + PATIENCE
        while key not in self._ended:
            left = until - time.monotonic()
            if left <= 0 or not select.select((self._control,), (), (), left)[0] or not self._read():
                break
        return self._ended.pop(key, None)

    def _read(self) -> bool:
        try:
            data = self._control.recv(1 << 16, socket.MSG_DONTWAIT)
        except OSError:
            return False
        if data:
            ended: Ended = pickle.loads(data)
            self._ended[ended.key] = ended
        return bool(data)

    def close(self) -> None:
        """End the fork server, and with it every process that it has started."""
        self._control.close()
        try:
            self._process.wait(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
