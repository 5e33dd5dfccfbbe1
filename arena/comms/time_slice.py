"""How the matches of a core take turns.

A rank that finds its memory in the core's caches is several times faster than one that does not. So where several
matches share a core, one plays for a while and then lets the next one play.
"""

import resource
import time
from collections.abc import Sequence

import posix_ipc

from arena.common.waiting import Waiter
from arena.comms.mailbox import Mailbox
from arena.comms.semaphores import Semaphore

TIME_SLICE = 0.01
"""Seconds that a match plays in one go: hundreds of exchanges, beside which filling the caches counts little."""

GAP = 1e-4
"""Seconds that nobody plays after a turn. Ranks that do nothing but wake each other seem to some kernels (Linux 6.18)
like a single one that never rests: without a gap, another process that wants the core may wait for many seconds."""

SOON = 0.002
"""Seconds that a match waits for its seats before it lets others play: they may be learning."""

FREQUENT = 20
"""Turns in a row in whose first step the environment slept, after which it counts as one that waits for others."""


class TimeSlice:
    """The right to play, which the matches of a core pass round. Not a lock: all goes on, slower, without it.

    Attributes:
      held: whether this match has it.
    """

    def __init__(self, semaphore: Semaphore, *, shared: bool) -> None:
        """Take a semaphore that is released while no match plays; ``shared``: with other matches."""
        self._semaphore, self._shared = semaphore, shared
        self.held = False
        self._until = 0.0
        self._slept: int | None = None  # how often this thread had, when the first step of the turn began
        self._sleepy = 0

    def take(self) -> bool:
        """Whether it has become this match's turn; sleep for it, but not for long."""
        self.held = self._semaphore.acquire()
        if self.held:
            self._begin()
        return self.held

    def give(self) -> None:
        """Let the next match play, where this one had its turn."""
        if self.held:
            self.held = False
            self._semaphore.release()

    def give_if_over(self) -> None:
        """Let the next match play if the time of this one is over; other processes that need the core come first."""
        if self.held and time.monotonic() > self._until:
            time.sleep(GAP)
            if self._shared:
                self.give()
                time.sleep(GAP)  # or this match would take it again before the next one wakes up
            else:
                self._begin()

    def _begin(self) -> None:
        self._until = time.monotonic() + TIME_SLICE
        self._slept = _sleeps()

    def suits(self) -> bool:
        """Whether it still helps to take turns; to be asked after each step.

        An environment that sleeps while it steps waits for something else than this core, and lets others play.
        """
        if self._slept is not None:
            self._sleepy = self._sleepy + 1 if _sleeps() > self._slept else 0
            self._slept = None
        return self._sleepy < FREQUENT

    def close(self) -> None:
        """Let the next match play, for good."""
        self.give()
        self._semaphore.close()


def agree_on_time_slice(mailbox: Mailbox, waiter: Waiter, rank: int, ranks: Sequence[int]) -> TimeSlice | None:
    """Return the turn that environment processes pass round; None where there is none to have.

    Args:
      mailbox: among all ranks.
      waiter: how this rank waits.
      rank: this one.
      ranks: of all environment processes that share the core, this one among them; all of them call this.
    """
    first, others = ranks[0], [other for other in ranks if other != rank]
    if rank != first:
        name = mailbox.take(first, waiter, "whose turn it is on its core")
        turn = None if name is None else TimeSlice(Semaphore(name), shared=True)
        mailbox.hand(first, "found")
        return turn
    try:
        semaphore = Semaphore(value=1)
    except (OSError, posix_ipc.Error):
        semaphore = None
    for other in others:
        mailbox.hand(other, semaphore and semaphore.name)
    for other in others:
        mailbox.take(other, waiter, "that it knows whose turn it is on its core")
    if semaphore is None:
        return None
    semaphore.unlink()
    return TimeSlice(semaphore, shared=bool(others))


def _sleeps() -> int:
    """Return how often this thread has given its core away because it waited for something."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
