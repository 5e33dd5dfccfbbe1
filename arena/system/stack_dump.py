"""Activity and stacks of all ranks on request: a thread in each rank replies, whatever its main thread does.

Only the main thread calls MPI, and it may be stuck: requests and replies therefore use a socket between a thread of
each rank and a thread of the root. These threads sleep until a request arrives.
"""

import contextlib
import hmac
import json
import os
import resource
import secrets
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

from arena.common.package import FOLDER
from arena.common.user_code import source_of_stack

CONNECT_TIMEOUT = 10.0
"""Seconds that a rank tries to connect to the root; without a connection it cannot be queried, and the run
continues."""

DESCRIPTORS_MOST, DESCRIPTORS_KEPT = 65_536, 512
"""Open files that the root requires, one for each rank, and the number of them that it reserves for other uses:

if the system allows less, some ranks cannot be queried.
"""

LARGEST = 1 << 20
"""Largest size of a reply in bytes."""

STACK, ACTIVITY = b"?", b"a"
"""Requests of the root."""


class Address(NamedTuple):
    """Address of the root's listener.

    Attributes:
      host: name of the machine.
      port: port of the listener.
      secret: sent first by a rank, so that no other client is taken for one.
    """

    host: str
    port: int
    secret: str


def stack_of(thread: int) -> str:
    """Return the stack of a thread of this process, the innermost call last."""
    frame = sys._current_frames().get(thread)
    return "".join(traceback.format_stack(frame)) if frame is not None else "(it has ended)\n"


def environment_call(thread: int) -> tuple[int, str]:
    """Return the environment call that a thread is in: a number that identifies the call, and its location.

    Return (0, "") if the thread is in none.
    """
    frame = sys._current_frames().get(thread)
    if frame is None:
        return 0, ""
    summary = traceback.extract_stack(frame)
    frames = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    for outer in reversed(frames):
        if os.path.realpath(outer.f_code.co_filename).startswith(_ENVIRONMENTS):
            return id(outer), source_of_stack(summary)
    return 0, ""


_ARENA = FOLDER.resolve()
_ENVIRONMENTS = tuple(
    str(place)
    for place in (
        _ARENA / "envs",
        _ARENA.parent / "envs",
        _ARENA / "env_manager",
        _ARENA / "environment" / "stepping.py",
        _ARENA / "environment" / "fast_step.py",
    )
)
"""Code that calls environments: each constructor, reset and step has a frame of its own there."""


class StackReporter:
    """A rank's end: sends a description of the main thread's activity to the root on request."""

    def __init__(
        self,
        address: Address,
        rank: int,
        same_host: bool,
        action: Callable[[], str],
        activity: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        """Connect, from a thread.

        Args:
          address: address of the root's listener.
          rank: this one.
          same_host: whether the root is on this machine.
          action: returns a description of the rank's activity, in a line.
          activity: returns measurements of the rank as JSON values.
        """
        self._activity = activity
        self._host = "127.0.0.1" if same_host else address.host
        self._address, self._rank, self._action = address, rank, action
        self._main = threading.main_thread().ident or 0
        threading.Thread(target=self._serve, name="stack-reporter", daemon=True).start()

    def _serve(self) -> None:
        with (
            contextlib.suppress(OSError),  # the run does not depend on it
            socket.create_connection((self._host, self._address.port), CONNECT_TIMEOUT) as connection,
        ):
            connection.settimeout(None)
            connection.sendall(json.dumps([self._address.secret, self._rank]).encode() + b"\n")
            while request := connection.recv(1):
                if request == ACTIVITY:
                    answer = self._activity()
                else:
                    call, place = environment_call(self._main)
                    answer = {"action": self._action(), "stack": stack_of(self._main), "call": call, "place": place}
                connection.sendall(json.dumps(answer).encode() + b"\n")


class StackReport(NamedTuple):
    """Reply of a rank: its activity, in a line, and its stack.

    Attributes:
      call: number of the environment's constructor, reset or step that it is in; 0 for none.
      place: file and line of the user's code in there.
    """

    action: str
    stack: str
    call: int = 0
    place: str = ""


class StackCollector:
    """The root's end: accepts the ranks' connections, and queries all of them in parallel.

    Attributes:
      address: address of the listener.
    """

    def __init__(self, host: str) -> None:
        """Listen, from a thread; ``host`` is this machine's name for others."""
        self._listener = socket.create_server(("", 0), backlog=1024)
        self.address = Address(host, self._listener.getsockname()[1], secrets.token_hex(16))
        self._ranks: dict[int, socket.socket] = {}
        self._measuring: set[int] = set()  # ranks that have not replied yet
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = DESCRIPTORS_MOST if hard == resource.RLIM_INFINITY else max(soft, min(hard, DESCRIPTORS_MOST))
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        self._room = max(0, most - DESCRIPTORS_KEPT)
        threading.Thread(target=self._accept, name="stack-collector", daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # closed: the run is over
                return
            with contextlib.suppress(OSError, ValueError, TypeError):
                connection.settimeout(CONNECT_TIMEOUT)
                secret, rank = json.loads(_lines(connection, 256)[-1])
                if hmac.compare_digest(str(secret), self.address.secret) and len(self._ranks) < self._room:
                    self._ranks[int(rank)] = connection
                    continue
            connection.close()

    def ask(self, patience: float) -> dict[int, StackReport]:
        """Return the replies of all ranks that arrive within ``patience`` seconds."""
        requested = {}
        for rank, connection in sorted(self._ranks.items()):
            with contextlib.suppress(OSError):
                connection.sendall(STACK)
                requested[rank] = connection
        until = time.monotonic() + patience
        reports = {}
        for rank, connection in requested.items():
            with contextlib.suppress(OSError, ValueError, TypeError):
                connection.settimeout(max(0.05, until - time.monotonic()))
                reply: dict[str, Any] = {}
                while "stack" not in reply:  # one to a request for the activity may come before
                    reply = json.loads(_lines(connection, LARGEST)[-1])
                reports[rank] = StackReport(**reply)
        return reports

    def request_activity(self) -> None:
        """Request the measurements of all ranks, except those that have not replied to the last request."""
        for rank, connection in sorted(self._ranks.items()):
            if rank not in self._measuring:
                with contextlib.suppress(OSError):
                    connection.sendall(ACTIVITY)
                    self._measuring.add(rank)

    def received_activity(self) -> dict[int, dict[str, Any]]:
        """Return the measurements that have arrived since, by rank, without waiting."""
        replies = {}
        for rank in sorted(self._measuring):
            with contextlib.suppress(OSError, ValueError):
                connection = self._ranks[rank]
                connection.settimeout(0)
                if not connection.recv(1, socket.MSG_PEEK):
                    continue
                connection.settimeout(CONNECT_TIMEOUT)  # the rest of the line is under way
                replies[rank] = json.loads(_lines(connection, LARGEST)[-1])
                self._measuring.discard(rank)
        return replies

    def close(self) -> None:
        """Close all connections."""
        for connection in (self._listener, *self._ranks.values()):
            connection.close()


def _lines(connection: socket.socket, longest: int) -> list[bytes]:
    """Return the lines that arrive, at least one, up to the end of the last one."""
    data = b""
    while not data.endswith(b"\n"):
        chunk = connection.recv(65536)
        if not chunk or len(data) > longest:
            raise ValueError("the connection ended in the middle of a line")
        data += chunk
    return data.splitlines()
