"""The client of the parent process, which mpirun or srun starts for each forked rank and which stands for it.

Any other ``arena`` command becomes such a client, too, if ``ARENA_PARENT`` names a parent.

Run as ``python -I -S client.py ARGUMENT...``. It imports from the standard library only and starts in some 20 ms. It
sends its environment and descriptors to the parent, forwards signals to the rank, and ends as the rank ends. The parent
is that of ``ARENA_PARENT``, else that of the job on this machine, which the first client starts. If no parent accepts
it, the client becomes the rank itself.
"""

import contextlib
import errno
import marshal
import os
import resource
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Mapping

TYPE_CHECKING = False  # for each rank, typing would take as long to import as the rest
if TYPE_CHECKING:
    import subprocess
    from typing import NoReturn

SOCKET = "ARENA_PARENT"
"""Environment variable: address of a parent's socket, a path, or ``@`` and a name in Linux's abstract namespace."""

START = "ARENA_START"
"""Environment variable: how ranks start, ``auto``, ``fork`` or ``spawn``."""

BACKLOG = 4096
"""Number of clients that may wait while the parent imports."""

TRIES = 5
"""Attempts to connect to the parent of the job: a parent without ranks may end while a client connects to it."""

DAEMON = os.getppid()
"""Process that started this one: in a client, mpirun or its daemon on this machine."""

LENGTH, STATUS = struct.Struct("!I"), struct.Struct("!i")
"""Length of the handover, before it; wait status of the rank, from the parent."""

ACCEPTED = b"+"
"""Reply of a parent that forks the rank; any other reply begins with ``-`` and states the reason."""

INHERITED = ("PMI_FD", "HYDI_CONTROL_FD")
"""Environment variables that name a descriptor which the MPI library inherits from its launcher."""

_DECIDES_IMPORTS = ("PYTHON", "NUMBA_", "MKL_", "OMP_", "OPENBLAS_", "LD_PRELOAD")
"""Prefixes of the environment variables that affect imports.

LD_LIBRARY_PATH is not among them: Open MPI's mpirun adds its own folder to it.
"""

UNBUFFERED = "PYTHONUNBUFFERED"
"""Environment variable that affects no import: forks flush each line of their output if it is set."""

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Environment variables with the number of threads of numerical libraries: 1 in the parent, which must have no other
threads, and set again in each fork."""

FORWARDED = ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGCONT", "SIGQUIT")
"""Signals that the client forwards to the rank."""


def descriptors() -> list[int]:
    """Return the open descriptors that the rank needs under the same numbers."""
    numbers = [0, 1, 2]
    numbers += [int(os.environ[name]) for name in INHERITED if os.environ.get(name, "").isdecimal()]
    return [number for number in dict.fromkeys(numbers) if _is_open(number)]


def inherited_descriptors() -> list[int]:
    """Return the descriptors that this process has inherited, such as those of a shell's ``<(command)``."""
    numbers = (int(name) for name in os.listdir("/proc/self/fd"))
    return sorted(number for number in numbers if _is_open(number) and os.get_inheritable(number))


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def program() -> list[str]:
    """Return the folder of the interpreter and the installation of the arena that a rank runs with."""
    return [os.path.realpath(os.path.dirname(sys.executable)), os.path.realpath(__file__)]


def handover(arguments: list[str], numbers: list[int]) -> bytes:
    """Return what the rank inherits besides descriptors, marshalled: see ``Handover``."""
    umask = os.umask(0)
    os.umask(umask)
    limits = {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")}
    content = {
        "program": program(),
        "arguments": arguments,
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "umask": umask,
        "limits": limits,
        "affinity": sorted(os.sched_getaffinity(0)),
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
        "descriptors": numbers,
        "ignored": [name for name in FORWARDED if signal.getsignal(getattr(signal, name)) is signal.SIG_IGN],
    }
    return marshal.dumps(content, 2)  # json takes 4 ms to import


def import_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that affect imports."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(_DECIDES_IMPORTS) and name not in (*THREADS, UNBUFFERED)
    }


def address(text: str) -> str:
    """Return the kernel's form of a socket address: an abstract one begins with a zero byte."""
    return f"\0{text[1:]}" if text.startswith("@") else text


def machine() -> str:
    """Return a name of this machine within the reach of abstract sockets: its boot, and its network namespace."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return f"{file.read(8)}-{os.stat('/proc/self/ns/net').st_ino}"


def user_of_peer(connection: socket.socket) -> int:
    """Return the user id of the process at the other end."""
    credentials = struct.Struct("3i")  # ucred of unix(7): process, user, group
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, credentials.size)
    return credentials.unpack(data)[1]


def parent_of_job() -> str:
    """Return the address that all ranks of this job on this machine derive for their parent.

    Besides the job, it depends on what affects imports, and on the namespaces of the process, since a fork lives in
    those of its parent.
    """
    import hashlib

    # Ranks of one machine are children of one daemon; Open MPI and srun --mpi=pmix also name the job.
    job = os.environ.get("PMIX_NAMESPACE", os.getppid())
    spaces = [os.stat(f"/proc/self/ns/{kind}").st_ino for kind in ("mnt", "pid", "user")]
    decisive = [os.getuid(), job, spaces, program(), sorted(import_settings(os.environ).items())]
    return "@arena-" + hashlib.sha256(repr(decisive).encode()).hexdigest()[:32]


def listen(text: str) -> socket.socket:
    """Return a socket that listens at an address.

    Raises:
      OSError: another process listens there.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(address(text))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def start_parent(listener: socket.socket, *words: str, output: int | None = None) -> "subprocess.Popen[bytes]":
    """Start a parent process that serves a listening socket.

    Args:
      listener: the socket.
      words: more arguments of ``arena.launch.parent.server``.
      output: target of its standard output and errors; None for those of this process.
    """
    import subprocess

    return subprocess.Popen(
        [sys.executable, "-m", "arena.launch.parent.server", str(listener.fileno()), str(os.getpid()), *words],
        env={name: value for name, value in os.environ.items() if name != SOCKET},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        pass_fds=[listener.fileno()],
        start_new_session=True,
    )


def connect_to_job(arguments: list[str], numbers: list[int]) -> socket.socket:
    """Return the connection to the parent of this job on this machine; start it if there is none.

    The kernel assigns the address to one process at a time, so no two clients start a parent, and releases it when that
    process ends.

    Raises:
      OSError: as ``connect``.
    """
    text = parent_of_job()
    for attempt in range(TRIES):
        try:
            # mpirun waits for the end of its ranks' output. Failures of the parent also show in the ranks.
            with listen(text) as listener, open(os.devnull, "wb") as nothing:
                start_parent(listener, "--until-unused", output=nothing.fileno())
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        try:
            return connect(text, arguments, numbers, DAEMON)
        except (ConnectionRefusedError, ConnectionResetError, BrokenPipeError):  # it is not listening yet, or is ending
            if attempt == TRIES - 1:
                raise
            time.sleep(0.05)
    raise AssertionError


def connect(text: str, arguments: list[str], numbers: list[int], daemon: int | None) -> socket.socket:
    """Return the connection to a parent that has accepted the rank or command.

    Args:
      text: address of the parent's socket.
      arguments: command line of the rank or command.
      numbers: the descriptors that it inherits.
      daemon: process with which this one ends, see ``wait_for``.

    Raises:
      OSError: no parent of this user listens there, or it rejects the rank; the text is the reason.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(address(text))
        _hand_over(connection, text, arguments, numbers, daemon)
    except OSError:
        connection.close()
        raise
    return connection


def _hand_over(
    connection: socket.socket, text: str, arguments: list[str], numbers: list[int], daemon: int | None
) -> None:
    if user_of_peer(connection) != os.getuid():
        raise PermissionError(f"{text} belongs to another user")
    payload = handover(arguments, numbers)
    head = LENGTH.pack(len(payload))
    connection.sendmsg([head], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack(f"{len(numbers)}i", *numbers))])
    connection.sendall(payload)
    wait_for(connection, daemon)
    reply = connection.recv(1)
    if not reply:
        raise ConnectionResetError("the parent process has ended")
    if reply != ACCEPTED:
        reason = connection.recv(1000).decode()
        raise ConnectionError(f"the parent process does not fork this process: {reason}")


def wait_for(connection: socket.socket, daemon: int | None) -> None:
    """Wait until the parent sends or ends; end this process if mpirun's daemon ends.

    Args:
      connection: connection to the parent.
      daemon: process id of mpirun's daemon; None for a command, which outlives the shell that started it.
    """
    if daemon is None:
        return
    try:
        watched = os.pidfd_open(daemon)
    except ProcessLookupError:
        end_like(signal.SIGKILL)
    except (OSError, AttributeError):  # an old kernel
        return
    try:
        ready, _, _ = select.select([connection.fileno(), watched], [], [])
        if connection.fileno() not in ready:
            end_like(signal.SIGKILL)
    finally:
        os.close(watched)


def end_like(status: int) -> "NoReturn":
    """End this process with the exit code, or by the signal, of a wait status."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        os._exit(128 + number)
    os._exit(os.WEXITSTATUS(status))


def stand_for_fork(connection: socket.socket, numbers: list[int], daemon: int | None) -> "NoReturn":
    """Forward signals to the fork, and end as it does.

    Args:
      connection: connection to the parent.
      numbers: the descriptors that the fork has inherited.
      daemon: process with which this one ends, see ``wait_for``.
    """

    def forward(number: int, _frame: object) -> None:
        try:
            connection.send(bytes([number]), socket.MSG_NOSIGNAL)
        except OSError:  # the parent has ended: recv below returns
            pass

    def stop(_number: int, frame: object) -> None:
        forward(signal.SIGSTOP, frame)
        os.kill(os.getpid(), signal.SIGSTOP)

    for name in FORWARDED:  # the fork ignores those that this process has ignored, unless it handles them
        signal.signal(getattr(signal, name), forward)
    signal.signal(signal.SIGTSTP, stop)
    for number in numbers:  # the fork alone holds them: they close when it ends
        os.close(number)
    wait_for(connection, daemon)
    status = b""
    with contextlib.suppress(OSError):
        status = connection.recv(STATUS.size, socket.MSG_WAITALL)
    # A parent that has ended has taken its ranks with it, and ends the rank of a client that ends.
    end_like(STATUS.unpack(status)[0] if len(status) == STATUS.size else signal.SIGKILL)


def connect_to_given(text: str, arguments: list[str], numbers: list[int]) -> socket.socket | None:
    """Return the connection to the parent of ``ARENA_PARENT``, None if it is elsewhere or does not fork this rank.

    Raises:
      SystemExit: it was the launcher's, on this machine, and has ended. The run is over then.
    """
    try:
        return connect(text, arguments, numbers, DAEMON)
    except (ConnectionRefusedError, ConnectionResetError, BrokenPipeError):
        if text.endswith(machine()):
            sys.exit("arena: the parent process of the run has ended")
    except OSError:
        pass
    return None


def stand_for_forked_rank(arguments: list[str]) -> None:
    """Stand for a rank that a parent process forks, and end with it; return if the rank has to start by itself."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # as in a rank that starts by itself
    address = os.environ.get(SOCKET)
    numbers = descriptors()  # before a socket takes the number of one that is closed
    try:
        connection = None
        if address is not None:
            connection = connect_to_given(address, arguments, numbers)
        if connection is None:
            connection = connect_to_job(arguments, numbers)
    except OSError as error:
        print(f"arena: a rank starts by itself: {error}", file=sys.stderr, flush=True)
    else:
        stand_for_fork(connection, numbers, DAEMON)
    os.environ.pop(SOCKET, None)
    os.environ[START] = "spawn"  # in case this process starts itself again


def stand_for_forked_command(arguments: list[str]) -> None:
    """Stand for a command that the parent of ``ARENA_PARENT`` forks, and end with it; return if it does not."""
    try:
        numbers = inherited_descriptors()
        connection = connect(os.environ[SOCKET], arguments, numbers, None)
    except OSError:
        return
    stand_for_fork(connection, numbers, None)


def main() -> "NoReturn":
    """Stand for a rank that a parent process forks, or become the rank."""
    arguments = sys.argv[1:]
    stand_for_forked_rank(arguments)
    os.execv(sys.executable, [sys.executable, "-m", "arena.launch", *arguments])


if __name__ == "__main__":
    main()
