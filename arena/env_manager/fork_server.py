"""The fork server: a process without MPI, threads or torch that forks the processes of environment copies.

A rank of an MPI job must not fork, and starting a Python interpreter for each copy takes seconds. So each manager
starts one fork server, which imports the modules that copies need and then forks one process per copy in milliseconds.
It ends them on request, when they exceed the memory limit, and when the manager's process ends; if the fork server
itself is killed, the kernel ends them.

The manager's end is ``arena.env_manager.fork_client``.
"""

import contextlib
import faulthandler
import importlib
import os
import pickle
import random
import select
import signal
import socket
import sys
import time
from typing import Any, NamedTuple

import numpy as np

from arena.env_manager.pipe import Pipe
from arena.system.processes import die_with_parent, kill_group, megabytes_of
from arena.system.surroundings import settle

MAILBOX_INTERVAL = 0.1
"""Seconds between two checks of the copies' memory."""

DUMP_TIME = 0.05
"""Seconds that a hung process gets to write its stack."""


class Start(NamedTuple):
    """Manager to fork server, along with a socket: start a process.

    Attributes:
      key: key of the process in later messages.
      env_id: index of the copy that it constructs.
      seed: seed of its global generators, None for random ones.
      make: pickled constructor of the copy; None for that of the plan.
    """

    key: int
    env_id: int
    seed: int | None
    make: bytes | None


class Kill(NamedTuple):
    """Manager to fork server: end a process, and report its stack."""

    key: int


class Ended(NamedTuple):
    """Fork server to manager: a process has ended.

    Attributes:
      key: key of the process.
      what: ``exited``, ``killed`` or ``memory``.
      text: how it ended, and its last stack.
    """

    key: int
    what: str
    text: str


class ForkServerPlan(NamedTuple):
    """Data that a fork server reads when it starts.

    Attributes:
      make: pickled function that returns the copy with an index.
      memory_limit: megabytes of each process, or None.
      modules: modules to import before any process is forked.
    """

    make: bytes
    memory_limit: float | None
    modules: tuple[str, ...]


class _Process:
    """The process of one copy."""

    def __init__(self, key: int, pid: int, trace: int) -> None:
        self.key, self.pid, self.trace = key, pid, trace
        self.reason: str | None = None


class ForkServer:
    """The fork server's own side."""

    def __init__(self, control: socket.socket, plans: ForkServerPlan) -> None:
        self._control, self._plans = control, plans
        self._processes: dict[int, _Process] = {}
        self._wake, wake = socket.socketpair()
        wake.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        self._wake_end = wake

    def run(self) -> None:
        """Serve until the manager ends."""
        try:
            next_look = 0.0
            while self._serve(MAILBOX_INTERVAL):
                now = time.monotonic()
                if self._plans.memory_limit is not None and now >= next_look:
                    next_look = now + MAILBOX_INTERVAL
                    self._watch_memory(self._plans.memory_limit)
                self._reap()
        finally:
            # The manager no longer reads these ends, and our sockets may close before the last of them.
            self._ignore_child_exits()
            for process in self._processes.values():
                kill_group(process.pid)

    @staticmethod
    def _ignore_child_exits() -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    def _serve(self, timeout: float) -> bool:
        ready, _, _ = select.select((self._control, self._wake), (), (), timeout)
        if self._wake in ready:
            self._wake.recv(4096)
        if self._control not in ready:
            return True
        try:
            data, descriptors, _, _ = socket.recv_fds(self._control, 1 << 16, 1)
        except ConnectionResetError:  # the manager has ended, with reports unread
            return False
        if not data:
            return False
        order = pickle.loads(data)
        if isinstance(order, Start):
            self._start(order, descriptors[0])
        else:
            self._kill(order.key)
        return True

    def _start(self, order: Start, descriptor: int) -> None:
        trace = os.memfd_create("arena-trace") if hasattr(os, "memfd_create") else os.open(os.devnull, os.O_RDWR)
        server = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._be_copy(order, descriptor, trace, server)
        os.close(descriptor)
        self._processes[pid] = _Process(order.key, pid, trace)

    def _be_copy(self, order: Start, descriptor: int, trace: int, server: int) -> None:
        """Run as the copy's process until it ends."""
        code = 1
        try:
            os.setpgid(0, 0)
            die_with_parent()
            if os.getppid() != server:
                os._exit(1)
            self._ignore_child_exits()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            for own_end in (self._control, self._wake, self._wake_end):
                own_end.close()
            for process in self._processes.values():
                os.close(process.trace)
            faulthandler.enable(trace)
            faulthandler.register(signal.SIGUSR2, trace)
            # Forked processes inherit equal generators: seed each of them, for environments that use the global ones.
            random.seed(order.seed)
            np.random.seed(order.seed)  # noqa: NPY002 (users' environments may use the global generator)
            from arena.env_manager.child import serve

            make = pickle.loads(order.make or self._plans.make)
            serve(Pipe(socket.socket(fileno=descriptor)), make, order.env_id)
            code = 0
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code & 0xFF)

    def _kill(self, key: int) -> None:
        for process in self._processes.values():
            if process.key == key:
                process.reason = "killed"
                with contextlib.suppress(OSError):
                    os.kill(process.pid, signal.SIGUSR2)
                time.sleep(DUMP_TIME)
                kill_group(process.pid)

    def _watch_memory(self, limit: float) -> None:
        for process in self._processes.values():
            held = megabytes_of(process.pid)
            if held > limit and process.reason is None:
                process.reason = "memory"
                kill_group(process.pid)
                os.write(process.trace, f"its process held {held:.0f} MB, more than the limit of {limit:g}\n".encode())

    def _reap(self) -> None:
        for pid in list(self._processes):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                process = self._processes.pop(pid)
                with contextlib.suppress(OSError):
                    os.killpg(pid, signal.SIGKILL)  # its remaining descendants
                self._report(process, os.waitstatus_to_exitcode(status))

    def _report(self, process: _Process, code: int) -> None:
        os.lseek(process.trace, 0, os.SEEK_SET)
        trace = os.read(process.trace, 1 << 15).decode("utf-8", "replace").rstrip()
        os.close(process.trace)
        if process.reason is not None:
            what, text = process.reason, ""
        elif code >= 0:
            what, text = "exited", f"its process exited with code {code}"
        else:
            what, text = "killed", f"its process was ended by signal {-code} ({_signal_name(-code)})"
        ended = Ended(process.key, what, "\n".join(part for part in (trace, text) if part))
        with contextlib.suppress(OSError):
            self._control.send(pickle.dumps(ended), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


def main() -> None:
    """Read the plan from standard input, import its modules, and serve."""
    die_with_parent()
    settle()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    plans: Any = pickle.load(sys.stdin.buffer)
    for module in ("arena.env_manager.child", *plans.modules):
        with contextlib.suppress(Exception):  # the copies will report the failure
            importlib.import_module(module)
    # From here on the closed socket signals the manager's end; the kernel would watch the thread that started us, which
    # may end earlier.
    die_with_parent(0)
    descriptor = int(sys.argv[1])
    sys.argv = sys.argv[:1]  # a user's code that parses its arguments must not see ours
    ForkServer(socket.socket(fileno=descriptor), plans).run()
