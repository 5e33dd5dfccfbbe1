"""Supervisor of the processes of a server: starts them, forwards signals, and ends with them."""

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
from arena.gateway.workers.peers import WorkerPlace
from arena.system.listening import listen
from arena.system.signals import stop_signals

OPTION = "--as-worker"
AFTER_A_SECOND_SIGNAL = 130
MAILBOX_INTERVAL = 0.05  # seconds
SAME_SIGNAL = 0.5
"""Seconds within which a second signal counts as the first one: ``timeout`` sends it to the process and to its
group."""


def serve_by_workers(arguments: Sequence[str], config: GatewayConfig, count: int) -> int:
    """Serve by several processes until a signal; return the exit code.

    The kernel spreads connections over them. The first one is started alone, so that errors are reported once.

    Args:
      arguments: arguments of ``arena serve``.
      config: host, port and limits.
      count: number of processes.

    Raises:
      ConfigError: the port cannot be opened.
    """
    with tempfile.TemporaryDirectory(prefix="arena-") as directory, contextlib.ExitStack() as stack:
        ports = [stack.enter_context(port) for port in _ports(config, count)]
        supervisor = _Supervisor(arguments, Path(directory), ports)
        for number in stop_signals():
            signal.signal(number, supervisor.close)
        return supervisor.run()


def _ports(config: GatewayConfig, count: int) -> list[socket.socket]:
    """Return sockets that share a port; a given port that another server uses is refused, even if it could be shared.

    Raises:
      ConfigError: it is in use, or cannot be opened.
    """
    if config.port:
        listen(config.host, config.port).close()  # fails if the port is in use, since it is not shared
    first = listen(config.host, config.port, shared=True)  # port 0: any free one
    port = first.getsockname()[1]
    return [first, *(listen(config.host, port, shared=True) for _ in range(count - 1))]


class _Supervisor:
    """The processes, and the signals sent to them."""

    def __init__(self, arguments: Sequence[str], directory: Path, ports: Sequence[socket.socket]) -> None:
        self._arguments, self._directory, self._ports = arguments, directory, ports
        self._workers: list[subprocess.Popen[str]] = []
        self._signalled: set[int] = set()  # processes that got a signal to close: a second one ends them
        self._close_requested: float | None = None

    def close(self, number: int, frame: FrameType | None) -> None:
        """Send all processes a signal to close, or on the second one to end."""
        now = time.monotonic()
        if self._close_requested is None:
            self._close_requested = now
            self._request_close()
        elif number != signal.SIGHUP and now - self._close_requested > SAME_SIGNAL:
            for worker in self._workers:
                worker.kill()
            shutil.rmtree(self._directory, ignore_errors=True)
            os._exit(AFTER_A_SECOND_SIGNAL)

    def _is_closing(self) -> bool:
        return self._close_requested is not None

    def _request_close(self) -> None:
        for worker in self._workers:
            if worker.pid not in self._signalled and worker.poll() is None:
                self._signalled.add(worker.pid)
                worker.terminate()

    def run(self) -> int:
        """Start the processes, and return the exit code when the last one has ended."""
        line = self._started(self._start(0))
        if line and not self._is_closing():
            others = [self._start(number) for number in range(1, len(self._ports))]
            if self._is_closing():  # a signal arrived while they were started
                self._request_close()
            if all(self._started(worker) for worker in others):
                several = f" games in each of {len(self._ports)} processes)"
                print(line.rstrip().replace(" games)", several), flush=True)
        while all(worker.poll() is None for worker in self._workers):
            time.sleep(MAILBOX_INTERVAL)
        if self._close_requested is None:  # one has ended by itself, and its games with it
            self._close_requested = time.monotonic()
            number, code = next(
                (n, worker.poll()) for n, worker in enumerate(self._workers) if worker.poll() is not None
            )
            self._request_close()
            if line:  # otherwise it has reported the error itself
                print(f"error: process {number} of the server has ended with exit code {code}", file=sys.stderr)
        codes = [worker.wait() for worker in self._workers]
        return next((code if code > 0 else 1 for code in codes if code), 0)

    def _start(self, number: int) -> "subprocess.Popen[str]":
        """Start a process. Only it holds its port then: no client is left waiting when it has ended."""
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
        """Return the line that a process prints once it serves; an empty string if it ends instead."""
        assert worker.stdout is not None
        return worker.stdout.readline()
