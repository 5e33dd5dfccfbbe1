"""Ring buffers from a sender to a receiver: buffer n lies in slot n modulo K at both ends.

Slot n modulo K may be written once its previous content, number n - K, is no longer read. The users of this module
guarantee that by counting; the receiver sends no message to the sender.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from arena.common.waiting import Waiter
from arena.comms.mpi import MPI
from arena.protocol.wire import ALIGNMENT, aligned
from arena.system.shared_memory import ORDERED, keep_order


class RingBuffer:
    """K buffers of one size and a word that counts the buffers written, for processes that share the memory.

    Attributes:
      buffers: the bytes of each slot.
    """

    def __init__(self, size: int, count: int, memory: memoryview | None = None) -> None:
        """Lay them out in ``memory``: at least ``ring_bytes`` zeros; None allocates."""
        needed = ring_bytes(size, count)
        raw = np.zeros(needed + ALIGNMENT, np.uint8) if memory is None else np.frombuffer(memory, np.uint8)
        shift = -raw.ctypes.data % ALIGNMENT
        self._word: memoryview[int] = raw[shift : shift + 8].view(np.int64).data
        starts = [shift + ALIGNMENT + number * aligned(size) for number in range(count)]
        self.buffers = [raw[start : start + size] for start in starts]

    def post(self, number: int) -> None:
        """Mark a buffer as written."""
        if not ORDERED:
            keep_order()
        self._word[0] = number + 1

    def posted(self) -> int:
        """Return how many buffers have been written."""
        posted = self._word[0]
        if not ORDERED:
            keep_order()
        return posted


def ring_bytes(size: int, count: int) -> int:
    """Return the bytes that this many buffers of a size take, with the word."""
    return ALIGNMENT + count * aligned(size)


class RingSender(Protocol):
    """The sender's end of a ring buffer."""

    def is_free(self, number: int) -> bool:
        """Return whether the slot of a number may be written: its previous content has been sent."""

    def post(self, number: int) -> None:
        """Send a buffer that has been written to its slot."""

    def close(self, waiter: Waiter) -> None:
        """Free the requests, once everything has been sent."""


class RingReceiver(Protocol):
    """The receiver's end of a ring buffer."""

    def posted(self) -> int:
        """Return how many buffers have arrived."""

    def release(self, number: int) -> None:
        """Mark a number, and all before it, as read; they must have arrived."""

    def close(self) -> None:
        """Free the requests; no more buffers arrive."""


class SharedMemorySender:
    """A sender that shares its memory with the receivers."""

    def __init__(self, ring: RingBuffer) -> None:
        """Create the sender of a ring."""
        self._ring = ring

    def is_free(self, number: int) -> bool:
        """Return True: the caller writes only to slots that are no longer read."""
        return True

    def post(self, number: int) -> None:
        """See ``RingSender``."""
        self._ring.post(number)

    def close(self, waiter: Waiter) -> None:
        """Do nothing: the memory is freed with its last reference."""


class SharedMemoryReceiver:
    """A receiver that shares the sender's memory."""

    def __init__(self, ring: RingBuffer) -> None:
        """Create the receiver of a ring."""
        self._ring = ring

    def posted(self) -> int:
        """See ``RingReceiver``."""
        return self._ring.posted()

    def release(self, number: int) -> None:
        """Do nothing: the sender counts."""

    def close(self) -> None:
        """Do nothing."""


class MpiSender:
    """A sender to a rank on any machine: one persistent request for each slot."""

    def __init__(self, comm: MPI.Comm, receiver: int, tag: int, buffers: Sequence[np.ndarray]) -> None:
        """Create the requests."""
        self._requests = [comm.Send_init(buffer, receiver, tag) for buffer in buffers]

    def is_free(self, number: int) -> bool:
        """See ``RingSender``."""
        return self._requests[number % len(self._requests)].Test()

    def post(self, number: int) -> None:
        """See ``RingSender``."""
        self._requests[number % len(self._requests)].Start()

    def close(self, waiter: Waiter) -> None:
        """See ``RingSender``."""
        for request in self._requests:
            waiter.until(request.Test, lambda: "the last rollouts or weights to leave")
            request.Free()


class MpiReceiver:
    """A receiver from a rank on any machine. MPI matches messages of a rank to requests in the order of both."""

    def __init__(self, comm: MPI.Comm, sender: int, tag: int, buffers: Sequence[np.ndarray]) -> None:
        """Start the requests of the first K numbers."""
        self._requests = [comm.Recv_init(buffer, sender, tag) for buffer in buffers]
        for request in self._requests:
            request.Start()
        self._posted = self._released = 0

    def posted(self) -> int:
        """See ``RingReceiver``."""
        count = len(self._requests)
        while self._posted - self._released < count and self._requests[self._posted % count].Test():
            self._posted += 1
        return self._posted

    def release(self, number: int) -> None:
        """See ``RingReceiver``."""
        while self._released <= number:
            self._requests[self._released % len(self._requests)].Start()
            self._released += 1

    def close(self) -> None:
        """See ``RingReceiver``."""
        for number in range(self._posted, self._released + len(self._requests)):
            request = self._requests[number % len(self._requests)]
            request.Cancel()
            request.Wait()
        for request in self._requests:
            request.Free()
