"""How a manager treats its copies: timeouts, limits, and what it does when one fails."""

from typing import NamedTuple


class ManagerSettings(NamedTuple):
    """The options of an environment manager; times in seconds.

    Attributes:
      retry: what follows a fault: ``renew`` makes a new copy; ``reset`` goes on with the old one where it is still
        there (it raised, or returned something wrong).
      max_retry: faults of one copy in a row, without a finished episode between them, after which it is given up.
      backoff: pause before the second replacement in a row, doubled for each further one, at most ``MAX_BACKOFF``.
      start_timeout, reset_timeout, step_timeout: how long a copy may take; fractions count. A serial manager cannot
        enforce them.
      memory_limit: megabytes that a copy's process may hold, None for no limit; subprocesses only.
      wait_num: ``step`` returns as soon as this many copies have answered; None waits for all.
      wait_timeout: ... or after so long, if at least one has.
      seed: what the seeds of restarted copies derive from where nobody gave them one; None leaves them random.
    """

    retry: str = "renew"
    max_retry: int = 10
    backoff: float = 0.1
    start_timeout: float = 60.0
    reset_timeout: float = 60.0
    step_timeout: float = 60.0
    memory_limit: float | None = None
    wait_num: int | None = None
    wait_timeout: float | None = None
    seed: int | None = None


RETRIES = ("renew", "reset")

MAX_BACKOFF = 5.0
"""Longest pause before a replacement: a simulator's license server or port may need so long to come back."""


def pause_before(settings: ManagerSettings, faults: int) -> float:
    """Return how long to wait before the replacement after so many faults in a row; the first one comes at once."""
    return 0.0 if faults < 2 else min(settings.backoff * 2.0 ** (faults - 2), MAX_BACKOFF)
