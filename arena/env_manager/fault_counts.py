"""Counts of the faults of a manager's copies, and what follows: pauses, seeds, and when a copy is given up."""

from collections.abc import Callable

from arena.common.seeding import derive_seed
from arena.env_manager.faults import Fault, RetriesSpentError
from arena.env_manager.settings import ManagerSettings, pause_before

OnFault = Callable[[int, Fault], None]


class FaultCounts:
    """Counts of the faults of ``env_num`` copies.

    Attributes:
      ever: number of faults of each copy.
      seeds: for each copy, what the seeds after its faults derive from; None for random seeds.
    """

    def __init__(self, settings: ManagerSettings, env_num: int, on_fault: OnFault | None) -> None:
        """Begin to count.

        Args:
          settings: settings of the manager.
          env_num: number of copies.
          on_fault: called with the index of a copy and its fault; gives the copy up by raising a RetriesSpentError.
        """
        self._settings, self._on_fault = settings, on_fault
        self._in_a_row = [0] * env_num
        self.ever = [0] * env_num
        self.seeds = [None if settings.seed is None else derive_seed(settings.seed, i) for i in range(env_num)]

    def count(self, env_id: int, fault: Fault) -> float:
        """Count a fault; return the seconds to wait before the next attempt.

        Raises:
          RetriesSpentError: the copy has failed too often.
        """
        if self._on_fault is not None:
            self._on_fault(env_id, fault)
        self.ever[env_id] += 1
        self._in_a_row[env_id] += 1
        failed, allowed = self._in_a_row[env_id], self._settings.max_retry
        if failed > allowed:
            raise RetriesSpentError(
                f"environment copy {env_id} failed {failed} times in a row, without finishing an episode between; "
                f"expected at most {allowed} (max_retry). The last time: {fault.method} {fault.cause or fault.line}",
                fault.text,
            )
        return pause_before(self._settings, failed)

    def clear(self, env_id: int) -> None:
        """Reset the count of a copy's consecutive faults."""
        self._in_a_row[env_id] = 0

    def next_seed(self, env_id: int) -> int | None:
        """Return the seed of the reset that follows a fault."""
        seed = self.seeds[env_id]
        return None if seed is None else derive_seed(seed, "fault", self.ever[env_id])
