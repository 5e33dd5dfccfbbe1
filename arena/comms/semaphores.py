"""How ranks that share a core wake each other.

MPI knows no wait that sleeps: it asks again and again, or gives its core away and asks when it gets it back. With
several ranks on a core most of these questions are in vain, and each costs two changes of process. So on such a core
whoever sends a message rings, and whoever waits for it sleeps.
"""

from typing import NamedTuple

import posix_ipc

from arena.common.errors import ConfigError

PATIENCE = 0.02
"""Seconds between two looks at what else may have happened while a rank sleeps: a death, a deadline."""


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
