"""Transports of a seat's messages: one action message, one observation message, alternately."""

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
    """One end of the transport of a batch's two messages, which lie in memory known to the transport."""

    def send(self) -> None:
        """Send this end's message, and prepare to receive the other's."""

    def arrived(self) -> bool:
        """Return whether the other end's message has arrived."""

    def close(self, waiter: Waiter) -> None:
        """Free the requests, once the last message has been sent."""


class MpiTransport:
    """A transport between ranks on any machines: persistent requests."""

    def __init__(self, send: MPI.Prequest, receive: MPI.Prequest, *, first: bool) -> None:
        """Create a transport of two requests; ``first``: whether this end sends first."""
        self._send, self._receive, self._first = send, receive, first
        if not first:
            receive.Start()

    def send(self) -> None:
        """Start both requests; a pending send is not tested, since MPI would then yield the core."""
        self._send.Start()
        self._receive.Start()

    def arrived(self) -> bool:
        """Test the receive request."""
        if not self._receive.Test():
            return False
        self._send.Wait()  # the reply implies that the message has been sent
        return True

    def close(self, waiter: Waiter) -> None:
        """Wait until the last message has been sent, and free the requests."""
        waiter.until(self._send.Test, lambda: "the last message to leave")
        if not self._first:  # the end that replies has one more receive pending
            self._receive.Cancel()
            self._receive.Wait()
        self._send.Free()
        self._receive.Free()


class SharedMemoryTransport:
    """A transport within one machine: both messages lie in shared memory, and a word holds which end sends next.

    Each end increments the word when it has written its message.
    """

    def __init__(self, turn: "memoryview[int]", *, first: bool) -> None:
        """Create a transport from a zeroed word; ``first``: whether this end sends first."""
        self._turn, self._awaited = turn, 0 if first else 1

    def send(self) -> None:
        """Increment the word: the other end sends next."""
        self._awaited += 2
        if not ORDERED:
            keep_order()
        self._turn[0] = self._awaited - 1

    def arrived(self) -> bool:
        """Return whether the other end has sent."""
        if self._turn[0] != self._awaited:
            return False
        if not ORDERED:
            keep_order()
        return True

    def close(self, waiter: Waiter) -> None:
        """Do nothing: the memory is freed with its last reference."""


class CarriedBatch(NamedTuple):
    """One end of one batch of a seat: its two messages, and their transport."""

    message: ActionMessage
    record: ObservationMessage
    transport: Transport


def memory_needed(blocks: Sequence[Block], batch_copies: Sequence[int], *, marked: bool = False) -> int:
    """Return the bytes that the messages of a seat take in shared memory, with their words."""
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
      comm: communicator of the messages.
      peer: rank of the other end.
      blocks: the seat's entities, grouped by spaces.
      batch_copies: number of copies of each batch.
      memory: at least ``memory_needed`` zeros that both ends have mapped; None if they share none.
      at_seat: whether this is the worker's end, which sends first, or the environment process's.
      marked: whether observation messages have marks.
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
