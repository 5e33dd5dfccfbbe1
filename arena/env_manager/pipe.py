"""Framed messages over a socket between a manager and one copy's process; the manager's end never blocks."""

import select
import socket
import struct
import time
from typing import Any, NamedTuple

# Requests of the manager; the first one is the step path, and has no data.
STEP, RESET, ASK, CLOSE = b"s", b"r", b"a", b"c"
# Replies of a copy: its entities; a timestep without infos, and with them; a value; an error of the caller; a fault; an
# error in the configuration.
HELLO, PLAIN, WITH_INFOS, VALUE, REFUSAL, FAULT, CONFIG = b"h", b"t", b"i", b"v", b"e", b"f", b"g"

_HEAD = struct.Struct("<Ic")


class PipeClosedError(Exception):
    """The other end has closed, or reads nothing any more."""


class Message(NamedTuple):
    """One message: its kind, and pickled data for most kinds."""

    kind: bytes
    data: bytes


class Pipe:
    """One end of the socket."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self._inbox = bytearray()

    def fileno(self) -> int:
        """Return the descriptor, for ``select``."""
        return self.socket.fileno()

    def send(self, kind: bytes, data: bytes = b"", timeout: float = 5.0) -> None:
        """Send a message.

        Raises:
          PipeClosedError: the other end has closed, or has read nothing for ``timeout`` seconds.
        """
        rest = memoryview(_HEAD.pack(len(data), kind) + data)
        until = time.monotonic() + timeout
        while True:
            try:
                rest = rest[self.socket.send(rest, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL) :]
                if not rest:
                    return
            except BlockingIOError:
                pass
            except OSError as error:
                raise PipeClosedError(str(error)) from error
            left = until - time.monotonic()
            if left <= 0:
                raise PipeClosedError(f"the other process has received no message for {timeout:g} s")
            select.select((), (self.socket,), (), left)

    def poll(self) -> Message | None:
        """Return the next message if it has arrived completely, else None.

        Raises:
          PipeClosedError: the other end has closed.
        """
        message = self._take()
        while message is None:
            try:
                chunk = self.socket.recv(1 << 16, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return None
            except OSError as error:
                raise PipeClosedError(str(error)) from error
            if not chunk:
                raise PipeClosedError("the other process has ended")
            self._inbox += chunk
            message = self._take()
        return message

    def receive(self) -> Message:
        """Wait for the next message without a timeout: the copy's process has no other work.

        Raises:
          PipeClosedError: the other end has closed.
        """
        while (message := self._take()) is None:
            try:
                chunk = self.socket.recv(1 << 16)
            except OSError as error:
                raise PipeClosedError(str(error)) from error
            if not chunk:
                raise PipeClosedError("the environment manager has ended")
            self._inbox += chunk
        return message

    def _take(self) -> Message | None:
        inbox = self._inbox
        if len(inbox) < _HEAD.size:
            return None
        length, kind = _HEAD.unpack_from(inbox)
        end = _HEAD.size + length
        if len(inbox) < end:
            return None
        data = bytes(inbox[_HEAD.size : end])
        del inbox[:end]
        return Message(kind, data)

    def send_descriptor(self, descriptor: int) -> None:
        """Send an open file; the other end calls ``receive_descriptor``. No other message may be in flight.

        Raises:
          PipeClosedError: the other end has closed.
        """
        try:
            socket.send_fds(self.socket, [b"d"], [descriptor], socket.MSG_NOSIGNAL)
        except OSError as error:
            raise PipeClosedError(str(error)) from error

    def receive_descriptor(self) -> int:
        """Wait for an open file.

        Raises:
          PipeClosedError: the other end has closed.
        """
        try:
            data, descriptors, _, _ = socket.recv_fds(self.socket, 1, 1)
        except OSError as error:  # a manager that ends before it has read the greeting resets the connection
            raise PipeClosedError(str(error)) from error
        if not data or not descriptors:
            raise PipeClosedError("the environment manager has ended")
        return descriptors[0]

    def close(self) -> None:
        """Close this end."""
        self.socket.close()


def pair() -> tuple[Any, Any]:
    """Return two connected sockets."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
