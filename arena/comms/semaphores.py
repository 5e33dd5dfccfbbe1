"""Semaphores by which ranks that share a core wake each other.

An MPI wait never sleeps: it polls, or yields its core and polls again when it gets the core back. With several ranks on
a core most of these polls are in vain, and each costs two context switches. On such a core the sender of a message
therefore releases a semaphore, and its receiver sleeps until it has acquired that semaphore.
"""

from typing import NamedTuple

import posix_ipc

from arena.common.errors import ConfigError

PATIENCE = 0.02
"""Seconds between two checks for other events (a death, a deadline) while a rank sleeps."""


class Semaphore:
    """A named semaphore of one machine: released once and acquired once for each message.

    Attributes:
      name: name by which other processes find it.
      release: function that releases it.
    """

    def __init__(self, name: str | None = None, *, value: int = 0) -> None:
        """Create a semaphore of this value, or open the one of this name.

        Raises:
          OSError, posix_ipc.Error: the system cannot create another one.
          ConfigError: there is none of this name on this machine.
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
        """Sleep until the semaphore is acquired, at most ``patience`` seconds; return whether it was."""
        try:
            self._acquire(patience)
        except (posix_ipc.BusyError, posix_ipc.SignalError):
            return False
        return True

    def unlink(self) -> None:
        """Remove its name: once all processes have opened it, nothing is left behind, however they end."""
        self._semaphore.unlink()

    def close(self) -> None:
        """Close it."""
        self._semaphore.close()


class SeatSemaphores(NamedTuple):
    """The two semaphores of a seat: the worker releases the first, its environment process the second."""

    environment: Semaphore
    worker: Semaphore

    @classmethod
    def find(cls, names: tuple[str, str]) -> "SeatSemaphores":
        """Open the semaphores of these names."""
        return cls(Semaphore(names[0]), Semaphore(names[1]))

    @property
    def names(self) -> tuple[str, str]:
        """Return the names that ``find`` takes."""
        return self.environment.name, self.worker.name

    def unlink(self) -> None:
        """Remove both names."""
        for semaphore in self:
            semaphore.unlink()

    def close(self) -> None:
        """Close both."""
        for semaphore in self:
            semaphore.close()


def create_semaphores(seats: int) -> list[SeatSemaphores]:
    """Return new semaphores for this many seats; an empty list if the system cannot create any."""
    created: list[SeatSemaphores] = []
    try:
        created.extend(SeatSemaphores(Semaphore(), Semaphore()) for _ in range(seats))
    except (OSError, posix_ipc.Error):
        for semaphores in created:
            semaphores.unlink()
            semaphores.close()
        return []
    return created
