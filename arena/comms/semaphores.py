"""How ranks that share a core wake each other, and how the matches of a core take turns.

MPI knows no wait that sleeps: it asks again and again, or gives its core away and asks when it gets it back. With
several ranks on a core most of these questions are in vain, and each costs two changes of process. So on such a core
whoever sends a message rings, and whoever waits for it sleeps.

And a rank that finds its memory in the core's caches is several times faster than one that does not. So where several
matches share a core, one plays for a while and then lets the next one play.
"""

import resource
import time
from collections.abc import Sequence
from typing import NamedTuple

import posix_ipc

from arena.common.errors import ConfigError
from arena.common.waiting import Waiter
from arena.comms.mailbox import Mailbox

PATIENCE = 0.02
"""Seconds between two looks at what else may have happened while a rank sleeps: a death, a deadline."""

TURN = 0.01
"""Seconds that a match plays in one go: hundreds of exchanges, beside which filling the caches counts little."""

GAP = 1e-4
"""Seconds that nobody plays after a turn. Ranks that do nothing but wake each other seem to some kernels (Linux 6.18)
like a single one that never rests: without a gap, whoever else wants the core may wait for many seconds."""

SOON = 0.002
"""Seconds that a match waits for its seats before it lets others play: they may be learning."""

FREQUENT = 20
"""Turns in a row in whose first step the environment slept, after which it counts as one that waits for others."""


class Bell:
    """A semaphore of one machine: rung once for each message, and taken once for each.

    Attributes:
      name: by which other processes find it.
      ring: rings it.
    """

    def __init__(self, name: str | None = None, *, rung: int = 0) -> None:
        """Hang up a new bell that was ``rung`` so often, or find the one of this name.

        Raises:
          OSError, posix_ipc.Error: the machine has no new one to give.
          ConfigError: this rank finds none of this name.
        """
        flags = posix_ipc.O_CREX if name is None else 0
        try:
            self._semaphore = posix_ipc.Semaphore(name, flags, initial_value=rung)
        except (OSError, posix_ipc.Error) as error:
            if name is None:
                raise
            raise ConfigError(
                "pin_matches: expected the ranks of a machine to share its semaphores (/dev/shm), found one that does "
                f"not see another's ({error}), as in containers of their own; set pin_matches: false"
            ) from error
        self.name: str = self._semaphore.name
        self.ring = self._semaphore.release
        self._take = self._semaphore.acquire

    def rung(self, patience: float = PATIENCE) -> bool:
        """Return whether it has rung since it was last taken; sleep for it, but not for longer than ``patience``."""
        try:
            self._take(patience)
        except (posix_ipc.BusyError, posix_ipc.SignalError):
            return False
        return True

    def hide(self) -> None:
        """Take its name away: once all who need it have found it, nothing is left behind, however they end."""
        self._semaphore.unlink()

    def close(self) -> None:
        """Give it back."""
        self._semaphore.close()


class SeatBells(NamedTuple):
    """The two bells of a seat: the worker rings the first, its environment process the second."""

    environment: Bell
    worker: Bell

    @classmethod
    def find(cls, names: tuple[str, str]) -> "SeatBells":
        """Return those of these names."""
        return cls(Bell(names[0]), Bell(names[1]))

    @property
    def names(self) -> tuple[str, str]:
        """What ``find`` takes."""
        return self.environment.name, self.worker.name

    def hide(self) -> None:
        """Take both names away."""
        for bell in self:
            bell.hide()

    def close(self) -> None:
        """Give both back."""
        for bell in self:
            bell.close()


def hang_up(seats: int) -> list[SeatBells]:
    """Return new bells for so many seats; an empty list where the machine has none to give."""
    hung: list[SeatBells] = []
    try:
        hung.extend(SeatBells(Bell(), Bell()) for _ in range(seats))
    except (OSError, posix_ipc.Error):
        for bells in hung:
            bells.hide()
            bells.close()
        return []
    return hung


class Turn:
    """The right to play, which the matches of a core pass round. Not a lock: all goes on, slower, without it.

    Attributes:
      held: whether this match has it.
    """

    def __init__(self, bell: Bell, *, shared: bool) -> None:
        """Pass round what this bell stands for, which is rung while nobody has the turn; ``shared``: with others."""
        self._bell, self._shared = bell, shared
        self.held = False
        self._until = 0.0
        self._slept: int | None = None  # how often this thread had, when the first step of the turn began
        self._sleepy = 0

    def take(self) -> bool:
        """Whether it has become this match's turn; sleep for it, but not for long."""
        self.held = self._bell.rung()
        if self.held:
            self._begin()
        return self.held

    def give(self) -> None:
        """Let the next match play, where this one had its turn."""
        if self.held:
            self.held = False
            self._bell.ring()

    def give_if_over(self) -> None:
        """Let the next match play where this one has played for its time; before it, whoever else needs the core."""
        if self.held and time.monotonic() > self._until:
            time.sleep(GAP)
            if self._shared:
                self.give()
                time.sleep(GAP)  # or this match would take it again before the next one wakes up
            else:
                self._begin()

    def _begin(self) -> None:
        self._until = time.monotonic() + TURN
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
        self._bell.close()


def agree_on_turn(mailbox: Mailbox, waiter: Waiter, rank: int, ranks: Sequence[int]) -> Turn | None:
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
        turn = None if name is None else Turn(Bell(name), shared=True)
        mailbox.hand(first, "found")
        return turn
    try:
        bell = Bell(rung=1)
    except (OSError, posix_ipc.Error):
        bell = None
    for other in others:
        mailbox.hand(other, bell and bell.name)
    for other in others:
        mailbox.take(other, waiter, "that it knows whose turn it is on its core")
    if bell is None:
        return None
    bell.hide()
    return Turn(bell, shared=bool(others))


def _sleeps() -> int:
    """Return how often this thread has given its core away because it waited for something."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
