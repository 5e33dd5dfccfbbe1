"""Pipelining of batches of copies in subprocesses: some step while others are served."""

import math
import time
from collections.abc import Callable, Sequence

from arena.common.waiting import Waiter
from arena.comms import MatchChannel
from arena.env_manager import BaseEnvManager

SHORTEST_PAUSE, LONGEST_PAUSE = 2e-5, 5e-4
"""Seconds between two polls of copies and seats while both may have news."""

LOOK_UP = 0.05
"""Seconds after which the waiter may do housekeeping."""


class AsyncBatches:
    """Dispatches batches as soon as their seats have acted, and returns the next one to serve.

    Attributes:
      late: copies that had not answered when their batch was returned; their request is still pending.
    """

    def __init__(
        self,
        channel: MatchChannel,
        manager: BaseEnvManager,
        slices: Sequence[slice],
        send_off: Callable[[int], bool],
        housekeeping: Callable[[], None],
        waiter: Waiter,
        patience: float | None,
    ) -> None:
        """Begin to dispatch.

        Args:
          channel: channel to the seats.
          manager: manager of the copies.
          slices: copies of each batch.
          send_off: begins the steps of a batch's copies; returns False if the batch must be served first.
          housekeeping: called during waits.
          waiter: bounded waits of this rank.
          patience: seconds after which a batch is returned without copies that have not answered; None waits for all.
        """
        self._channel, self._manager, self._dispatch = channel, manager, send_off
        self._numbers = [range(s.start, s.stop) for s in slices]
        self.late: set[int] = set()
        self._away: dict[int, float] = {}  # batch -> start of its step
        self._patience = math.inf if patience is None else patience
        self._found = 0
        self._stepped = 0.0  # seconds that the steps of that batch have taken
        # Polling without a pause would take a core from the copies.
        self._waiter = waiter.like(spin=0.0, yielding=0.0, on_idle=housekeeping)

    def next_batch(self) -> int:
        """Return a batch in which all copies have answered, or that must be served first."""
        activity = self._waiter.activity
        waited, self._stepped = activity.waiting, 0.0
        self._waiter.until(self._poll, self._missing)
        stepping = min(activity.waiting - waited, self._stepped)
        activity.waiting -= stepping
        activity.environment += stepping
        return self._found

    def _poll(self) -> bool:
        until = time.monotonic() + LOOK_UP
        pause = SHORTEST_PAUSE
        while True:
            batch = self._channel.find_ready()
            if batch is not None:
                if not self._dispatch(batch):
                    self._found = batch
                    return True
                self._channel.hold(batch)
                self._away[batch] = time.monotonic()
            elif not self._away:
                return False
            elif self._channel.holds_all():
                self._manager.poll(min(LOOK_UP, self._patience))
            else:
                self._manager.poll()
                time.sleep(pause)
                pause = min(1.5 * pause, LONGEST_PAUSE)
            for away in self._away:
                if self._has_answered(away):
                    self._stepped = time.monotonic() - self._away.pop(away)
                    self._channel.release(away)
                    self._found = away
                    return True
            if time.monotonic() > until:
                return False

    def _has_answered(self, batch: int) -> bool:
        """Return whether all copies of a batch have answered, or at least one of them has and the patience is over."""
        numbers = self._numbers[batch]
        pending = [number for number in numbers if self._manager.pending(number)]
        if pending:
            if len(pending) == len(numbers) or self._patience == math.inf:
                return False
            if time.monotonic() < self._away[batch] + self._patience and not self.late.issuperset(pending):
                return False
        self.late.difference_update(numbers)
        self.late.update(pending)
        return True

    def _missing(self) -> str:
        late = [number for batch in self._away for number in self._numbers[batch] if self._manager.pending(number)]
        return f"environment copies {late}" if late else self._channel.missing()
