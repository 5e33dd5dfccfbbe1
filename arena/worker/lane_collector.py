"""Collector of a seat with external games, in which lanes act on request."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from arena.common.trees import map_tree
from arena.protocol.wire import BEGINS, VOID, WITHDRAWN
from arena.worker.collector import Collector, _LaneViews
from arena.worker.opponents import Opponents
from arena.worker.seat import Seat

if TYPE_CHECKING:  # imports Numba, which only learning ranks need
    from arena.experience.lanes import LaneColumns
    from arena.experience.rollout import Rollout


class LaneCollector(Collector):
    """Acts on a seat with messages that mark, lane by lane, which entities act.

    There is one batch, and the policy acts for the lanes that act or end their episode in the exchange: the value of a
    final observation is needed, too.
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
        """Prepare the views; ``is_called`` returns whether to stop collecting before a rollout is full."""
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

        It gets as many time steps as a rollout with a lane for each lane of the seat; fewer once this worker is called.

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
            # message arrives before this worker has taken part.
            is_called = not self._wait()
            if not is_called:
                self._exchange(columns)
                is_called = self._takes_part()
        moved += columns.move_all(rollout, moved)
        steps = int(rollout.acting[: rollout.horizon, :moved].sum())
        self.steps += steps
        return steps

    def _wait(self) -> bool:
        """Wait for the next message; return False if this worker is called first."""
        if self._seat.in_hand[0]:
            return True
        if not self._seat.is_pending(0):
            self._seat.send(0)
        return self._seat.wait(0, self._takes_part)

    def _exchange(self, columns: "LaneColumns | None") -> None:
        """Process an observation message and send the actions."""
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
        acts = (acting | over | cut | void) & own & ~(withdrawn & ~acting)
        lanes = np.flatnonzero(acts)
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
