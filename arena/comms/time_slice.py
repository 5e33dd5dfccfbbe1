"""Time slices for matches that share a core.

A rank that finds its memory in the core's caches is several times faster than one that does not. So where several
matches share a core, one of them runs for a while before the next one does.
"""

import resource
import time
from collections.abc import Sequence

import posix_ipc

from arena.common.waiting import Waiter
from arena.comms.mailbox import Mailbox
from arena.comms.semaphores import Semaphore

TIME_SLICE = 0.01
"""Seconds that a match runs without a break: hundreds of exchanges, beside which filling the caches costs little."""

GAP = 1e-4
"""Idle seconds after a time slice. Some kernels (Linux 6.18) treat ranks that only wake each other like a single one
that never rests: without a gap, another process that needs the core may wait for many seconds."""

SOON = 0.002
"""Seconds that a match waits for its seats before it yields the core to other matches: the seats may be learning."""

FREQUENT = 20
"""Consecutive slices in which the environment slept in the first step, after which it counts as waiting for other
resources."""


class TimeSlice:
    """A token that the matches pinned to one core pass around, so that one of them runs at a time.

    Advisory: without it everything still works, only slower.

    Attributes:
      held: whether this match holds the token.
    """

    def __init__(self, semaphore: Semaphore, *, shared: bool) -> None:
        """Create the token from a semaphore that is released while no match runs; ``shared``: with other matches."""
        self._semaphore, self._shared = semaphore, shared
        self.held = False
        self._until = 0.0
        # number of voluntary context switches of this thread when the slice's first step began
        self._slept: int | None = None
        self._sleepy = 0

    def acquire(self) -> bool:
        """Sleep until this match holds the token, for a bounded time; return whether it does."""
        self.held = self._semaphore.acquire()
        if self.held:
            self._begin()
        return self.held

    def release(self) -> None:
        """Pass the token on, if this match holds it."""
        if self.held:
            self.held = False
            self._semaphore.release()

    def release_if_over(self) -> None:
        """Pass the token on if the slice has ended; other processes that need the core come first."""
        if self.held and time.monotonic() > self._until:
            time.sleep(GAP)
            if self._shared:
                self.release()
                time.sleep(GAP)  # without a pause this match would acquire the token again before the next one wakes up
            else:
                self._begin()

    def _begin(self) -> None:
        self._until = time.monotonic() + TIME_SLICE
        self._slept = _sleeps()

    def is_useful(self) -> bool:
        """Return whether time slices still help; to be called after each step.

        An environment that sleeps while it steps waits for something else than this core, and should not hold the
        token.
        """
        if self._slept is not None:
            self._sleepy = self._sleepy + 1 if _sleeps() > self._slept else 0
            self._slept = None
        return self._sleepy < FREQUENT

    def close(self) -> None:
        """Pass the token on for good."""
        self.release()
        self._semaphore.close()


def agree_on_time_slice(mailbox: Mailbox, waiter: Waiter, rank: int, ranks: Sequence[int]) -> TimeSlice | None:
    """Return the token that the environment processes of a core share; None if there is nothing to share.

    Args:
      mailbox: mailbox of all ranks.
      waiter: how this rank waits.
      rank: this one.
      ranks: all environment processes of the core, this one included; all of them call this.
    """
    first, others = ranks[0], [other for other in ranks if other != rank]
    if rank != first:
        name = mailbox.collect(first, waiter, "the time slices of its core")
        turn = None if name is None else TimeSlice(Semaphore(name), shared=True)
        mailbox.deliver(first, "found")
        return turn
    try:
        semaphore = Semaphore(value=1)
    except (OSError, posix_ipc.Error):
        semaphore = None
    for other in others:
        mailbox.deliver(other, semaphore and semaphore.name)
    for other in others:
        mailbox.collect(other, waiter, "that it has found the time slices of its core")
    if semaphore is None:
        return None
    semaphore.unlink()
    return TimeSlice(semaphore, shared=bool(others))


def _sleeps() -> int:
    """Return the number of voluntary context switches of this thread."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
