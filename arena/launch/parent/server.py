"""The parent process: imports what ranks import, does not initialise MPI, and forks a rank for each client.

A client may also stand for another ``arena`` command, which is forked likewise, but without MPI.

It has one thread, which sleeps in ``select``. If a client ends, its rank is killed; if a rank ends, it is reaped, and
its wait status is sent to its client. Ranks end with the parent, and the parent ends with its owner.
"""

import contextlib
import gc
import importlib
import os
import random
import resource
import selectors
import shlex
import signal
import socket
import sys
import traceback
from typing import NamedTuple, NoReturn

import setproctitle

from arena.launch import ending
from arena.launch.parent.choice import rank_of
from arena.launch.parent.client import ACCEPTED, SOCKET, STATUS, THREADS, import_settings, program, user_of_peer
from arena.launch.parent.handover import Handover, receive, take_over
from arena.system import aslr
from arena.system.launcher_env import DEFERRED
from arena.system.processes import die_with_parent
from arena.system.surroundings import settle

MODULES = (
    "torch",
    "arena.tensors.numba_jit",
    "gymnasium",
    "arena.comms",
    "arena.launch.ranks.entry",
    "arena.environment.process",
    "arena.environment.one_rank.colocated",
    "arena.evaluation.players",
    "arena.group.learning",
    "arena.learner.process",
    "arena.records.writers.tensorboard",
    "arena.records.writers.run",
    "arena.report.progress",
    "arena.report.summary",
    "arena.root.process",
    "arena.worker.act_learn",
    "arena.worker.sampler",
    "arena.policies.on_policy.ppo",
    "arena.policies.off_policy.dqn",
    "arena.policies.off_policy.sac",
    "arena.policies.off_policy.td3",
    "arena.envs.factory",
)
"""Modules that ranks import. User code is imported in the forks only."""


class _Rank(NamedTuple):
    """A running rank.

    Attributes:
      process: process id.
      connection: connection to its client.
    """

    process: int
    connection: socket.socket


UNUSED_FOR = 2.0
"""Seconds without a rank after which a parent started by a client ends: more clients may be on their way."""


class Server:
    """Forks a rank for each client that connects.

    Args:
      listener: the listening socket.
      until_unused: whether to end a while after the last rank; otherwise it ends with its owner.
    """

    def __init__(self, listener: socket.socket, *, until_unused: bool = False) -> None:
        """Import the modules of ranks, and prepare to fork."""
        self._listener = listener
        self._until_unused = until_unused
        self._ranks: dict[int, _Rank] = {}
        setproctitle.getproctitle()  # finds the command line in memory, next to the current environment
        os.environ[DEFERRED] = "yes"
        # Python prepends the folder of its program; for a rank it is the working directory.
        if not getattr(sys.flags, "safe_path", False):  # new in Python 3.11
            del sys.path[0]
        os.environ.update(dict.fromkeys(THREADS, "1"))
        before = dict(os.environ)
        self._imports = import_settings(before)
        for module in MODULES:
            importlib.import_module(module)
        # such as the location of Intel MPI's providers, which mpi4py sets
        self._set_by_imports = {name: value for name, value in os.environ.items() if name not in before}
        if until_unused:
            die_with_parent(0)  # the client that started it may end before other ranks
        gc.collect()
        gc.freeze()  # the collector would otherwise write to pages that all ranks share
        self._wake, self._wake_end = socket.socketpair()
        for end in (self._wake, self._wake_end):
            end.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake_end.fileno(), warn_on_full_buffer=False)
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a connection for each rank of the machine
        self._selector = selectors.DefaultSelector()
        for end in (self._listener, self._wake):
            self._selector.register(end, selectors.EVENT_READ)

    def run(self) -> NoReturn:
        """Serve clients until this process ends."""
        while True:
            ready = self._selector.select(None if self._ranks or not self._until_unused else UNUSED_FOR)
            if not ready and not self._ranks:
                sys.exit()
            for key, _ in ready:
                if key.fileobj is self._listener:
                    self._accept()
                elif key.fileobj is self._wake:
                    with contextlib.suppress(BlockingIOError):
                        self._wake.recv(4096)
                    self._reap()
                elif key.data in self._ranks:  # otherwise reaped in this turn
                    self._obey(self._ranks[key.data])

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        if user_of_peer(connection) != os.getuid():
            connection.close()
            return
        try:
            handover, received = receive(connection)
        except (OSError, ValueError, TypeError, EOFError):
            connection.close()
            return
        try:
            reason = self._reason_to_refuse(handover)
            if reason is not None:
                connection.sendall(b"-" + reason.encode())
                connection.close()
                return
            server = os.getpid()
            process = os.fork()
            if process == 0:
                self._be_rank(handover, received, connection, server)
            self._ranks[process] = _Rank(process, connection)
            self._selector.register(connection, selectors.EVENT_READ, process)
            with contextlib.suppress(OSError):  # for a client that has ended, select reports it
                connection.sendall(ACCEPTED)
        except OSError as error:
            with contextlib.suppress(OSError):
                connection.sendall(f"-{error}".encode())
            connection.close()
        finally:
            for descriptor in received:
                os.close(descriptor)

    def _reason_to_refuse(self, handover: Handover) -> str | None:
        """Return why a rank cannot be a fork of this process, None if it can."""
        if handover.program != program():
            return f"expected {' and '.join(program())}, found {' and '.join(handover.program)}"
        requested = import_settings(handover.environment)
        different = sorted(name for name, _ in requested.items() ^ self._imports.items())
        if different:
            return f"{', '.join(dict.fromkeys(different))} is not as the parent process has it"
        threads = len(os.listdir("/proc/self/task"))
        return f"it has {threads} threads" if threads > 1 else None

    def _obey(self, rank: _Rank) -> None:
        """Forward the signals of a client to its rank; kill the rank of a client that has ended."""
        try:
            numbers = rank.connection.recv(64, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            numbers = b""
        for number in numbers or [signal.SIGKILL]:
            with contextlib.suppress(OSError):
                os.kill(rank.process, number)
        if not numbers:
            self._selector.unregister(rank.connection)  # _reap closes it, once the kernel has ended the rank

    def _reap(self) -> None:
        for rank in list(self._ranks.values()):
            process, status = os.waitpid(rank.process, os.WNOHANG)
            if process:
                del self._ranks[process]
                with contextlib.suppress(KeyError):
                    self._selector.unregister(rank.connection)
                with contextlib.suppress(OSError):
                    rank.connection.sendall(STATUS.pack(status))
                rank.connection.close()

    def _be_rank(self, handover: Handover, received: list[int], connection: socket.socket, server: int) -> NoReturn:
        """Run as a rank until it ends."""
        code = 1
        try:
            die_with_parent(parent=server)
            os.setpgid(0, 0)
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
                signal.signal(number, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            for rank in self._ranks.values():
                rank.connection.close()
            self._selector.close()
            for end in (self._listener, self._wake, self._wake_end, connection):
                end.close()
            is_rank = rank_of(handover.arguments, handover.environment) is not None
            take_over(handover, received)
            received.clear()
            # The command line in ps.
            setproctitle.setproctitle(shlex.join([sys.executable, "-m", "arena.launch", *handover.arguments]))
            for name, value in self._set_by_imports.items():
                os.environ.setdefault(name, value)
            if is_rank:
                os.environ.pop(SOCKET, None)  # a process that the rank starts is not a client
                # Forks of one process have the same addresses: a second start would change nothing.
                os.environ.setdefault(aslr.SETTLED, "forked")
            if not getattr(sys.flags, "safe_path", False):  # new in Python 3.11
                sys.path.insert(0, os.getcwd())
            reseed_generators()
            set_threads()
            if is_rank:
                from arena.comms.mpi import initialize

                initialize()
            from arena.launch.command_line import main

            code = ending.exit_code(main())
        except SystemExit as error:
            code = ending.exit_code(error.code)
        except BaseException:
            traceback.print_exc()
        finally:
            ending.warn_of_threads()
            ending.end(code)


def reseed_generators() -> None:
    """Seed the global generators from the system: forks would otherwise draw the same numbers."""
    import numpy as np
    import torch

    random.seed()
    np.random.seed()  # noqa: NPY002 (users' environments may use the global generator)
    torch.manual_seed(int.from_bytes(os.urandom(7), "big"))


def set_threads() -> None:
    """Set the number of threads of numerical libraries from the environment, which they read when they are loaded."""
    for_all, *for_blas = (_number(os.environ.get(name, "")) for name in THREADS)
    of_blas = max(for_blas, default=0) or for_all
    if of_blas > 1:
        import threadpoolctl

        threadpoolctl.threadpool_limits(of_blas, "blas")
    if for_all > 1:
        import torch

        torch.set_num_threads(for_all)


def _number(text: str) -> int:
    """Return the first number of a list like ``4,2``, 0 if there is none."""
    first = text.partition(",")[0].strip()
    return int(first) if first.isdecimal() else 0


def main() -> NoReturn:
    """Serve at a listening socket: ``DESCRIPTOR OWNER [--until-unused]``.

    The owner is the process that started this one. It ends with its owner, or with it only while it imports.
    """
    descriptor, owner = (int(word) for word in sys.argv[1:3])
    die_with_parent(parent=owner)
    settle()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)  # handled by the ranks, which end with their clients
    Server(socket.socket(fileno=descriptor), until_unused="--until-unused" in sys.argv).run()


if __name__ == "__main__":
    main()
