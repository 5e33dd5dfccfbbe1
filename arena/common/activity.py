"""Counters of the time that a rank spends waiting, in the environment, and learning."""

import contextlib
import time
from collections.abc import Iterator


class Activity:
    """Seconds that a rank has spent, counted by its main thread; another thread may read them.

    The rest of its time belongs to its role: an environment process steps, a worker acts, a learner learns.

    Attributes:
      waiting: seconds of waiting for other ranks.
      environment: seconds in the environment of a rank that also acts, or of subprocesses that step.
      learning: seconds in updates, without the waits in them.
    """

    __slots__ = ("environment", "learning", "waiting")

    def __init__(self) -> None:
        """Start at zero."""
        self.waiting = self.environment = self.learning = 0.0

    @contextlib.contextmanager
    def counted_as_learning(self) -> Iterator[None]:
        """Count the time of the block as learning, without waits, and without an environment that runs meanwhile."""
        began, others = time.perf_counter(), self.waiting + self.environment
        yield
        self.learning += time.perf_counter() - began - (self.waiting + self.environment - others)
