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
LOOK_EVERY = 0.05  # seconds
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
        supervisor = _Supervisor(arguments, count, directory)
        ports = [stack.enter_context(port) for port in _ports(config, count)]
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, supervisor.close)
        return supervisor.run([WorkerPlace(n, count, port.fileno(), Path(directory)) for n, port in enumerate(ports)])


def _ports(config: GatewayConfig, count: int) -> list[socket.socket]:
    """Return sockets that share a port. A first one, which does not share it, finds out whether it is in use."""
    with listen(config.host, config.port) as alone:
        port = alone.getsockname()[1]
    return [listen(config.host, port, shared=True) for _ in range(count)]


class _Supervisor:
    """The processes, and what was told to them."""

    def __init__(self, arguments: Sequence[str], count: int, directory: str) -> None:
        self._arguments, self._count, self._directory = arguments, count, directory
        self._workers: list[subprocess.Popen[str]] = []
        self._told_to_close: float | None = None

    def close(self, number: int, frame: FrameType | None) -> None:
        """Tell all to close, or at the second time to end at once."""
        now = time.monotonic()
        if self._told_to_close is None:
            self._told_to_close = now
            self._signal(signal.SIGTERM)
        elif now - self._told_to_close > SAME_SIGNAL:
            self._signal(signal.SIGKILL)
            shutil.rmtree(self._directory, ignore_errors=True)
            os._exit(AFTER_A_SECOND_SIGNAL)

    def _signal(self, number: int) -> None:
        for worker in self._workers:
            if worker.poll() is None:
                worker.send_signal(number)

    def run(self, places: Sequence[WorkerPlace]) -> int:
        """Start the processes, and return the exit code when the last one has ended."""
        line = self._start(places[0])
        if line:
            lines = [self._start_without_waiting(place) for place in places[1:]]
            if all(worker.stdout is not None and worker.stdout.readline() for worker in lines):
                print(line.rstrip().replace(" games)", f" games in each of {self._count} processes)"), flush=True)
        while all(worker.poll() is None for worker in self._workers):
            time.sleep(LOOK_EVERY)
        if self._told_to_close is None:  # one has ended by itself, and its games with it
            self._told_to_close = time.monotonic()
            self._signal(signal.SIGTERM)
            if line:
                codes = [worker.poll() for worker in self._workers]
                index = next(index for index, code in enumerate(codes) if code is not None)
                print(f"error: process {index} of the server has ended with exit code {codes[index]}", file=sys.stderr)
        codes = [worker.wait() for worker in self._workers]
        return next((code if code > 0 else 1 for code in codes if code), 0)

    def _start(self, place: WorkerPlace) -> str:
        """Start a process, and return what it says once it serves; nothing where it ends instead."""
        worker = self._start_without_waiting(place)
        assert worker.stdout is not None
        return worker.stdout.readline()

    def _start_without_waiting(self, place: WorkerPlace) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "arena.launch", "serve", *self._arguments, OPTION, str(place)]
        worker = subprocess.Popen(
            command,
            pass_fds=[place.descriptor],
            stdin=subprocess.PIPE,  # it ends with this process
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._workers.append(worker)
        return worker
