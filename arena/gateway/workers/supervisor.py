"""Starts the processes of a server, hands signals on, and ends with them."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from arena.config.gateway import GatewayConfig
from arena.gateway.http import listen
from arena.gateway.workers.peers import WorkerPlace

OPTION = "--as-worker"
AFTER_A_SECOND_SIGNAL = 130
MAILBOX_INTERVAL = 0.05  # seconds
SAME_SIGNAL = 0.5
"""Seconds within which a second signal is the first one again: ``timeout`` sends it to the process and to its group."""


def serve_by_workers(arguments: Sequence[str], config: GatewayConfig, count: int) -> int:
    """Serve by several processes until a signal says to close; return the exit code.

    The kernel spreads connections over them. The first one is started alone, so that what is wrong is said once.

    Args:
      arguments: of ``arena serve``.
      config: says where to listen.
      count: how many processes.

    Raises:
      ConfigError: the port cannot be opened.
    """
    with tempfile.TemporaryDirectory(prefix="arena-") as directory, contextlib.ExitStack() as stack:
        ports = [stack.enter_context(port) for port in _ports(config, count)]
        supervisor = _Supervisor(arguments, Path(directory), ports)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, supervisor.close)
        return supervisor.run()


def _ports(config: GatewayConfig, count: int) -> list[socket.socket]:
    """Return sockets that share a port; a given one that another server has is refused, even where it could be shared.

    Raises:
      ConfigError: it is in use, or cannot be opened.
    """
    if config.port:
        listen(config.host, config.port).close()  # which does not share it
    first = listen(config.host, config.port, shared=True)  # of port 0, one that nobody has
    port = first.getsockname()[1]
    return [first, *(listen(config.host, port, shared=True) for _ in range(count - 1))]


class _Supervisor:
    """The processes, and what was told to them."""

    def __init__(self, arguments: Sequence[str], directory: Path, ports: Sequence[socket.socket]) -> None:
        self._arguments, self._directory, self._ports = arguments, directory, ports
        self._workers: list[subprocess.Popen[str]] = []
        self._told: set[int] = set()  # process ids of those who were told to close: the second time they end at once
        self._told_to_close: float | None = None

    def close(self, number: int, frame: FrameType | None) -> None:
        """Tell all to close, or at the second time to end at once."""
        now = time.monotonic()
        if self._told_to_close is None:
            self._told_to_close = now
            self._tell_to_close()
        elif now - self._told_to_close > SAME_SIGNAL:
            for worker in self._workers:
                worker.kill()
            shutil.rmtree(self._directory, ignore_errors=True)
            os._exit(AFTER_A_SECOND_SIGNAL)

    def _is_closing(self) -> bool:
        return self._told_to_close is not None

    def _tell_to_close(self) -> None:
        for worker in self._workers:
            if worker.pid not in self._told and worker.poll() is None:
                self._told.add(worker.pid)
                worker.terminate()

    def run(self) -> int:
        """Start the processes, and return the exit code when the last one has ended."""
        line = self._started(self._start(0))
        if line and not self._is_closing():
            others = [self._start(number) for number in range(1, len(self._ports))]
            if self._is_closing():  # told while they were started
                self._tell_to_close()
            if all(self._started(worker) for worker in others):
                several = f" games in each of {len(self._ports)} processes)"
                print(line.rstrip().replace(" games)", several), flush=True)
        while all(worker.poll() is None for worker in self._workers):
            time.sleep(MAILBOX_INTERVAL)
        if self._told_to_close is None:  # one has ended by itself, and its games with it
            self._told_to_close = time.monotonic()
            number, code = next(
                (n, worker.poll()) for n, worker in enumerate(self._workers) if worker.poll() is not None
            )
            self._tell_to_close()
            if line:  # else it has said itself what is wrong
                print(f"error: process {number} of the server has ended with exit code {code}", file=sys.stderr)
        codes = [worker.wait() for worker in self._workers]
        return next((code if code > 0 else 1 for code in codes if code), 0)

    def _start(self, number: int) -> "subprocess.Popen[str]":
        """Start a process. It alone has its port then: who connects is not left waiting when it has ended."""
        port = self._ports[number]
        place = WorkerPlace(number, len(self._ports), port.fileno(), self._directory)
        worker = subprocess.Popen(
            [sys.executable, "-m", "arena.launch", "serve", *self._arguments, OPTION, str(place)],
            pass_fds=[port.fileno()],
            stdin=subprocess.PIPE,  # it ends with this process
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        port.close()
        self._workers.append(worker)
        return worker

    @staticmethod
    def _started(worker: "subprocess.Popen[str]") -> str:
        """Return what a process says once it serves; nothing where it ends instead."""
        assert worker.stdout is not None
        return worker.stdout.readline()
