"""What mpirun starts for each forked rank: a client of the parent process that stands for the rank.

Run as ``python -I -S client.py ARGUMENT...``, with the socket of the parent in ``ARENA_PARENT``. It imports from the
standard library only and starts in some 20 ms. It sends its environment and descriptors to the parent, forwards
signals to the rank, and ends as the rank ends. Without a parent that takes it, it becomes the rank itself.
"""

import array
import json
import os
import resource
import signal
import socket
import struct
import sys
from typing import NoReturn

SOCKET = "ARENA_PARENT"
"""Environment variable: path of the parent's socket."""

LENGTH, STATUS = struct.Struct("!I"), struct.Struct("!i")
"""Length of the handover, before it; wait status of the rank, from the parent."""

ACCEPTED = b"+"
"""Reply of a parent that forks the rank; any other reply begins with ``-`` and states the reason."""

INHERITED = ("PMI_FD", "HYDI_CONTROL_FD")
"""Environment variables that name a descriptor which the MPI library inherits from its launcher."""

FORWARDED = ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGCONT", "SIGQUIT")
"""Signals that the client forwards to the rank."""


def descriptors() -> list[int]:
    """Return the open descriptors that the rank needs under the same numbers."""
    numbers = [0, 1, 2]
    numbers += [int(os.environ[name]) for name in INHERITED if os.environ.get(name, "").isdecimal()]
    return [number for number in dict.fromkeys(numbers) if _is_open(number)]


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def handover(arguments: list[str], numbers: list[int]) -> bytes:
    """Return what the rank inherits beside descriptors, as JSON: see ``Handover``."""
    umask = os.umask(0)
    os.umask(umask)
    limits = {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")}
    content = {
        "arguments": arguments,
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "umask": umask,
        "limits": limits,
        "affinity": sorted(os.sched_getaffinity(0)),
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
        "descriptors": numbers,
    }
    return json.dumps(content).encode()


def connect(path: str, arguments: list[str]) -> socket.socket:
    """Return the connection to a parent that has accepted the rank.

    Raises:
      OSError: no parent listens there, or it refuses; the text is the reason.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(path)
    numbers = descriptors()
    payload = handover(arguments, numbers)
    head = LENGTH.pack(len(payload))
    connection.sendmsg([head], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", numbers))])
    connection.sendall(payload)
    reply = connection.recv(1)
    if reply != ACCEPTED:
        reason = connection.recv(1000).decode() if reply else "it has ended"
        raise ConnectionError(f"the parent process does not fork this rank: {reason}")
    return connection


def end_like(status: int) -> NoReturn:
    """End this process with the exit code, or by the signal, of a wait status."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        os._exit(128 + number)
    os._exit(os.WEXITSTATUS(status))


def stand_for_rank(connection: socket.socket) -> NoReturn:
    """Forward signals to the rank, and end as it does."""

    def forward(number: int, _frame: object) -> None:
        try:
            connection.send(bytes([number]), socket.MSG_NOSIGNAL)
        except OSError:  # the parent has ended: recv below returns
            pass

    def stop(_number: int, frame: object) -> None:
        forward(signal.SIGSTOP, frame)
        os.kill(os.getpid(), signal.SIGSTOP)

    for name in FORWARDED:
        signal.signal(getattr(signal, name), forward)
    signal.signal(signal.SIGTSTP, stop)
    for number in (0, 1, 2):  # the rank alone holds them: their end is the rank's
        if _is_open(number):
            os.close(number)
    try:
        status = connection.recv(STATUS.size, socket.MSG_WAITALL)
    except OSError:
        status = b""
    # A parent that has ended has taken its ranks with it.
    end_like(STATUS.unpack(status)[0] if len(status) == STATUS.size else signal.SIGKILL)


def main() -> NoReturn:
    """Stand for a rank that the parent forks, or become the rank."""
    arguments = sys.argv[1:]
    path = os.environ.get(SOCKET)
    if path is not None:
        try:
            connection = connect(path, arguments)
        except FileNotFoundError:  # on another machine than the launcher's
            pass
        except OSError as error:
            print(f"arena: started without a parent process: {error}", file=sys.stderr, flush=True)
        else:
            stand_for_rank(connection)
    os.environ.pop(SOCKET, None)
    os.execv(sys.executable, [sys.executable, "-m", "arena.launch", *arguments])


if __name__ == "__main__":
    main()
