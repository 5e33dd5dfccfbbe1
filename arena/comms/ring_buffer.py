"""Carries numbered buffers one way: number n lies in place n modulo K, at the sender and at the receiver.

A sender may write number n once nobody needs number n - K any more. Who uses this sees to that by counting: there is no
word from the receiver to the sender.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from arena.common.waiting import Waiter
from arena.comms.mpi import MPI
from arena.protocol.wire import ALIGNMENT, aligned
from arena.system.shared_memory import ORDERED, keep_order


class RingBuffer:
    """K buffers of one size, and a word that says how many numbers were written, for those who have the same memory.

    Attributes:
      buffers: the bytes of each.
    """

    def __init__(self, size: int, count: int, memory: memoryview | None = None) -> None:
        """Lay them out in ``memory``: zeros, as many as ``bytes_of_places`` says; None allocates."""
        needed = bytes_of_places(size, count)
        raw = np.zeros(needed + ALIGNMENT, np.uint8) if memory is None else np.frombuffer(memory, np.uint8)
        shift = -raw.ctypes.data % ALIGNMENT
        self._word: memoryview[int] = raw[shift : shift + 8].view(np.int64).data
        starts = [shift + ALIGNMENT + number * aligned(size) for number in range(count)]
        self.buffers = [raw[start : start + size] for start in starts]

    def post(self, number: int) -> None:
        """Say that a number is written."""
        if not ORDERED:
            keep_order()
        self._word[0] = number + 1

    def posted(self) -> int:
        """Return how many numbers were written."""
        posted = self._word[0]
        if not ORDERED:
            keep_order()
        return posted


def bytes_of_places(size: int, count: int) -> int:
    """Return the bytes that so many buffers of a size take, with the word."""
    return ALIGNMENT + count * aligned(size)


class RingSender(Protocol):
    """A sender's end."""

    def free(self, number: int) -> bool:
        """Whether what was in the place of a number has left."""

    def post(self, number: int) -> None:
        """Send a number, which is written."""

    def close(self, waiter: Waiter) -> None:
        """Give back what it needed, once everything has left."""


class RingReceiver(Protocol):
    """A receiver's end."""

    def posted(self) -> int:
        """Return how many numbers are here."""

    def release(self, number: int) -> None:
        """Say that a number, and all before it, are needed no more; they must be here."""

    def close(self) -> None:
        """Give back what it needed; nothing more comes."""


class SharedMemorySender:
    """A sender that shares its memory with the receivers."""

    def __init__(self, places: RingBuffer) -> None:
        """Take the memory."""
        self._places = places

    def free(self, number: int) -> bool:
        """Return True: who writes knows that nobody reads."""
        return True

    def post(self, number: int) -> None:
        """See ``RingSender``."""
        self._places.post(number)

    def close(self, waiter: Waiter) -> None:
        """Do nothing: the memory goes when nobody refers to it any more."""


class SharedMemoryReceiver:
    """A receiver that shares the sender's memory."""

    def __init__(self, places: RingBuffer) -> None:
        """Take the memory."""
        self._places = places

    def posted(self) -> int:
        """See ``RingReceiver``."""
        return self._places.posted()

    def release(self, number: int) -> None:
        """Do nothing: the sender knows by counting."""

    def close(self) -> None:
        """Do nothing."""


class MpiSender:
    """A sender to a rank anywhere: a persistent request for each place."""

    def __init__(self, comm: MPI.Comm, receiver: int, tag: int, buffers: Sequence[np.ndarray]) -> None:
        """Take the places."""
        self._requests = [comm.Send_init(buffer, receiver, tag) for buffer in buffers]

    def free(self, number: int) -> bool:
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
    """A receiver from a rank anywhere. Messages of a rank arrive in the order of the requests that wait for them."""

    def __init__(self, comm: MPI.Comm, sender: int, tag: int, buffers: Sequence[np.ndarray]) -> None:
        """Wait for the first numbers."""
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
