"""How ranks that share a core wake each other: semaphores.

MPI knows no wait that sleeps: it asks again and again, or gives its core away and asks when it gets it back. With
several ranks on a core most of these questions are in vain, and each costs two changes of process. So on such a core
the sender of a message releases a semaphore, and its receiver sleeps until it has acquired that semaphore.
"""

from typing import NamedTuple

import posix_ipc

from arena.common.errors import ConfigError

PATIENCE = 0.02
"""Seconds between two looks at what else may have happened while a rank sleeps: a death, a deadline."""


class Semaphore:
    """A semaphore of one machine: released once for each message, and acquired once for each.

    Attributes:
      name: name by which other processes find it.
      release: releases it.
    """

    def __init__(self, name: str | None = None, *, value: int = 0) -> None:
        """Create a semaphore of this value, or find the one of this name.

        Raises:
          OSError, posix_ipc.Error: the machine has no new one to give.
          ConfigError: this rank finds none of this name.
        """
        flags = posix_ipc.O_CREX if name is None else 0
        try:
            self._semaphore = posix_ipc.Semaphore(name, flags, initial_value=value)
        except (OSError, posix_ipc.Error) as error:
            if name is None:
                raise
            raise ConfigError(
                "pin_matches: expected the ranks of a machine to share its semaphores (/dev/shm), found a rank that "
                f"cannot open those of another rank ({error}), for example since each rank runs in its own container; "
                "set pin_matches: false"
            ) from error
        self.name: str = self._semaphore.name
        self.release = self._semaphore.release
        self._acquire = self._semaphore.acquire

    def acquire(self, patience: float = PATIENCE) -> bool:
        """Return whether it was acquired; sleep for it, but not for longer than ``patience``."""
        try:
            self._acquire(patience)
        except (posix_ipc.BusyError, posix_ipc.SignalError):
            return False
        return True

    def unlink(self) -> None:
        """Remove its name: once all who need it have found it, nothing is left behind, however they end."""
        self._semaphore.unlink()

    def close(self) -> None:
        """Give it back."""
        self._semaphore.close()


class SeatSemaphores(NamedTuple):
    """The two semaphores of a seat: the worker releases the first, its environment process the second."""

    environment: Semaphore
    worker: Semaphore

    @classmethod
    def find(cls, names: tuple[str, str]) -> "SeatSemaphores":
        """Return those of these names."""
        return cls(Semaphore(names[0]), Semaphore(names[1]))

    @property
    def names(self) -> tuple[str, str]:
        """What ``find`` takes."""
        return self.environment.name, self.worker.name

    def unlink(self) -> None:
        """Remove both names."""
        for semaphore in self:
            semaphore.unlink()

    def close(self) -> None:
        """Give both back."""
        for semaphore in self:
            semaphore.close()


def create_semaphores(seats: int) -> list[SeatSemaphores]:
    """Return new semaphores for so many seats; an empty list where the machine has none to give."""
    created: list[SeatSemaphores] = []
    try:
        created.extend(SeatSemaphores(Semaphore(), Semaphore()) for _ in range(seats))
    except (OSError, posix_ipc.Error):
        for semaphores in created:
            semaphores.unlink()
            semaphores.close()
        return []
    return created
