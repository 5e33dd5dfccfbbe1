"""Drives a built-in policy on a seat of games outside, whose lanes act when they ask to."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from arena.common.trees import map_tree
from arena.protocol.wire import BEGINS, VOID, WITHDRAWN
from arena.worker.collector import Collector, _LaneViews
from arena.worker.opponents import Opponents
from arena.worker.seat import Seat

if TYPE_CHECKING:  # they bring Numba along, which only those who learn need
    from arena.experience.lanes import LaneColumns
    from arena.experience.rollout import Rollout


class LaneCollector(Collector):
    """Plays a seat whose records say, lane by lane, who acts.

    There is one batch, and a policy is asked for the lanes that act, or whose episode ends, in the exchange: the value
    of a final observation is needed, too.
    """

    def __init__(
        self,
        seat: Seat,
        policies: Sequence[Any],
        is_called: Callable[[], bool],
        *,
        deterministic: bool,
        opponents: Opponents | None = None,
    ) -> None:
        """Take the seat; ``is_called`` says whether to collect no longer although no rollout is full."""
        super().__init__(seat, policies, deterministic=deterministic, opponents=opponents)
        self._takes_part = is_called
        self._columns: LaneColumns | None = None

    def begin(self, rollout: "Rollout") -> None:
        """See ``Collector``."""
        rollout.clear()

    def play(self, after_exchange: Callable[[], None] = lambda: None) -> None:
        """See ``Collector``."""
        while True:
            self._exchange(None)
            after_exchange()

    def collect(self, rollout: "Rollout") -> int:
        """Fill the lanes of a rollout with columns; return the transition steps in them.

        Its slots are as many as those of a rollout that has a lane for each lane of the seat. There are fewer once this
        worker is called.

        Raises:
          MatchOver: the match has ended.
        """
        if self._columns is None:
            from arena.experience.lanes import LaneColumns

            spaces, extras = self._seat.offer.entities[0], self._policies[0].extras
            lanes = self._blocks[0][0].count
            self._columns = LaneColumns(spaces, extras, horizon=rollout.horizon, lanes=lanes)
        columns, moved, is_called = self._columns, 0, False
        enough = rollout.horizon * len(columns.slots)
        while not is_called:
            moved += columns.move_full(rollout, moved)
            if moved * rollout.horizon + columns.filled >= enough:
                break
            # Another seat of this match may be this player's, too, and be waiting for this worker in an update: then no
            # record comes before this one has taken part.
            is_called = not self._wait()
            if not is_called:
                self._exchange(columns)
                is_called = self._takes_part()
        moved += columns.move_all(rollout, moved)
        taken = int(rollout.acting[: rollout.horizon, :moved].sum())
        self.steps += taken
        return taken

    def _wait(self) -> bool:
        """Wait for the next record; False where this worker is called first."""
        if self._seat.in_hand[0]:
            return True
        if not self._seat.is_pending(0):
            self._seat.send(0)
        return self._seat.wait(0, self._takes_part)

    def _exchange(self, columns: "LaneColumns | None") -> None:
        """Answer a record."""
        self._receive(0)
        for block, policy in zip(self._blocks[0], self._policies, strict=True):
            self._answer(block, policy, columns)
        self._seat.send(0)

    def _answer(self, block: _LaneViews, policy: Any, columns: "LaneColumns | None") -> None:
        rewards, over, cut = block.outcome()
        acting, marks = block.acting(), block.marks()
        starts, withdrawn, void = ((marks & mark) != 0 for mark in (BEGINS, WITHDRAWN, VOID))
        if not (acting.any() or over.any() or cut.any() or void.any()):
            return
        own = np.ones(block.count, bool)
        if self._opponents is not None:
            own = self._opponents.own[block.lanes]
            self._opponents.act(0, block.observations, block.action_mask, starts, block.actions, acting & ~own)
        if columns is not None and withdrawn.any():
            lanes = np.flatnonzero(withdrawn & own)
            columns.withdraw(lanes, cut[lanes] & ~acting[lanes])
        asked = (acting | over | cut | void) & own & ~(withdrawn & ~acting)
        lanes = np.flatnonzero(asked)
        if not len(lanes):
            return
        observations = map_tree(lambda array: array[lanes], block.observations)
        mask = None if block.action_mask is None else block.action_mask[lanes]
        if columns is not None:
            columns.observe(
                lanes,
                observations,
                rewards[lanes],
                over[lanes],
                cut[lanes],
                void[lanes],
                acting[lanes],
                starts[lanes],
                mask,
            )
        decision = policy.act(
            observations,
            action_mask=mask,
            starts=starts[lanes],
            lanes=lanes,
            deterministic=self._deterministic,
            learning=columns is not None,
        )
        map_tree(lambda array, values: array.__setitem__(lanes, values), block.actions, decision.actions)
        if columns is None:
            self.steps += int(np.count_nonzero(acting & own))
        else:
            columns.decide(lanes, decision)
