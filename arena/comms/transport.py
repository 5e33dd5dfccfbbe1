"""How the messages of a seat and of its environment process get across: one each way, in turns."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from arena.common.waiting import Waiter
from arena.comms.mpi import MPI
from arena.protocol.wire import ALIGNMENT, ActionMessage, Block, ObservationMessage, aligned, make_observation_message
from arena.system.shared_memory import ORDERED, keep_order

# Tags of a seat's four streams, per batch.
ACTIONS, OBSERVATIONS, ACTIONS_SIDE, OBSERVATIONS_SIDE, STREAMS = 0, 1, 2, 3, 4


class Transport(Protocol):
    """One end of what carries the two messages of a batch, which lie in memory that the transport knows of."""

    def send(self) -> None:
        """Send this end's message, and be ready for the answer."""

    def arrived(self) -> bool:
        """Whether the other end's message is there."""

    def close(self, waiter: Waiter) -> None:
        """Give back what it needed, once the last message has left."""


class MpiTransport:
    """A transport between ranks anywhere: persistent requests."""

    def __init__(self, send: MPI.Prequest, receive: MPI.Prequest, *, first: bool) -> None:
        """Take a request of each direction; ``first`` says which end begins."""
        self._send, self._receive, self._first = send, receive, first
        if not first:
            receive.Start()

    def send(self) -> None:
        """Start both. Whether the message has left is not asked: often it has not, and MPI then gives the core away."""
        self._send.Start()
        self._receive.Start()

    def arrived(self) -> bool:
        """Ask MPI."""
        if not self._receive.Test():
            return False
        self._send.Wait()  # it has left: this is the answer
        return True

    def close(self, waiter: Waiter) -> None:
        """Wait until the last message has left, and free the requests."""
        waiter.until(self._send.Test, lambda: "the last message to leave")
        if not self._first:  # a rank that answers is ready for one more message
            self._receive.Cancel()
            self._receive.Wait()
        self._send.Free()
        self._receive.Free()


class SharedMemoryTransport:
    """A transport within a machine: both messages lie where both ends have them, and a word says whose turn it is.

    Each end raises the word by one when it has written its message.
    """

    def __init__(self, turn: "memoryview[int]", *, first: bool) -> None:
        """Take the word, which is zero; ``first`` says which end begins."""
        self._turn, self._awaited = turn, 0 if first else 1

    def send(self) -> None:
        """Say that it is the other end's turn."""
        self._awaited += 2
        if not ORDERED:
            keep_order()
        self._turn[0] = self._awaited - 1

    def arrived(self) -> bool:
        """Whether it is this end's turn."""
        if self._turn[0] != self._awaited:
            return False
        if not ORDERED:
            keep_order()
        return True

    def close(self, waiter: Waiter) -> None:
        """Do nothing: the memory goes when nobody refers to it any more."""


class CarriedBatch(NamedTuple):
    """One batch of a seat, at one of its ends: its two messages, and what carries them."""

    message: ActionMessage
    record: ObservationMessage
    transport: Transport


def memory_needed(blocks: Sequence[Block], batch_copies: Sequence[int], *, marked: bool = False) -> int:
    """Return the bytes that the messages of a seat take in memory that both ends have, whose turn it is included."""
    sizes = [
        buffer.nbytes
        for n in batch_copies
        for buffer in (ActionMessage(blocks, n).buffer, make_observation_message(blocks, n, marked=marked).buffer)
    ]
    return sum(aligned(size) for size in sizes) + len(batch_copies) * ALIGNMENT


def open_transports(
    comm: MPI.Comm,
    peer: int,
    blocks: Sequence[Block],
    batch_copies: Sequence[int],
    memory: memoryview | None,
    *,
    at_seat: bool,
    marked: bool = False,
) -> Iterator[CarriedBatch]:
    """Yield the batches of a seat.

    Args:
      comm: for messages.
      peer: the rank at the other end.
      blocks: of the seat.
      batch_copies: of each batch.
      memory: zeros that both ends have mapped, as many as ``memory_needed`` says; None where they have none.
      at_seat: which end this is: of the seat's worker, which begins, or of its environment process.
      marked: whether records have marks.
    """
    place = 0
    for batch, copies in enumerate(batch_copies):
        if memory is None:
            message, record = ActionMessage(blocks, copies), make_observation_message(blocks, copies, marked=marked)
            buffers, tags = (message.buffer, record.buffer), (STREAMS * batch + ACTIONS, STREAMS * batch + OBSERVATIONS)
            out, back = (0, 1) if at_seat else (1, 0)
            send = comm.Send_init(buffers[out], peer, tags[out])
            receive = comm.Recv_init(buffers[back], peer, tags[back])
            yield CarriedBatch(message, record, MpiTransport(send, receive, first=at_seat))
        else:
            part = np.frombuffer(memory, np.uint8, offset=place)
            message = ActionMessage(blocks, copies, part[ALIGNMENT:])
            behind = part[ALIGNMENT + aligned(message.buffer.nbytes) :]
            record = make_observation_message(blocks, copies, behind, marked=marked)
            place += ALIGNMENT + aligned(message.buffer.nbytes) + aligned(record.buffer.nbytes)
            yield CarriedBatch(message, record, SharedMemoryTransport(part[:8].view(np.int64).data, first=at_seat))
