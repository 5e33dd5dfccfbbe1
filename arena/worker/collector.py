"""Collector of a built-in policy: acts for one batch of copies while the environment process steps another."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from arena.common.trees import Tree, map_tree
from arena.experience.rollout import Decision
from arena.protocol.wire import STEADY, ObservationMessage
from arena.worker.opponents import Opponents
from arena.worker.seat import Seat

if TYPE_CHECKING:  # imports Numba, which only learning ranks need
    from arena.experience.rollout import Rollout


def _lanes(tree: Tree) -> Tree:
    """Return views in which copies and entities are one axis: ``[copies, k, ...]`` as ``[copies * k, ...]``."""
    return map_tree(lambda array: array.reshape(-1, *array.shape[2:]), tree)


class _LaneViews:
    """The entities of one block in one batch: flat views of observation and action message, by lane."""

    def __init__(self, seat: Seat, batch: int, block: int, record: ObservationMessage) -> None:
        positions = list(seat.blocks[block].positions)
        k, copies = len(positions), seat.slices[batch].stop - seat.slices[batch].start
        self.lanes = slice(seat.slices[batch].start * k, seat.slices[batch].stop * k)
        self.count = copies * k
        self.observations = _lanes(record.observations[block])
        mask = record.action_masks[block]
        self.action_mask = None if mask is None else mask.reshape(copies * k, -1)
        self.actions = _lanes(seat.messages[batch].actions[block])
        self._record = record
        self._k = k
        # With one entity the message's copies are its lanes already.
        self._shared_state = None if k == 1 else record.global_state
        self._own_state = None if k > 1 else record.global_state
        self._outcome = record.rewards.reshape(-1), record.terminated.reshape(-1), record.truncated.reshape(-1)
        self._acting = record.acting.reshape(-1)
        # With a single block the message's columns are its lanes already.
        self._columns = None if len(seat.blocks) == 1 else positions

    def _column(self, array: np.ndarray) -> np.ndarray:
        return array[:, self._columns].reshape(-1)

    def is_steady(self) -> bool:
        """Return whether the message is steady: every lane acts as before, and no episode begins or ends."""
        return bool(self._record.header[0] & STEADY)

    def starts(self) -> np.ndarray:
        started = self._record.started
        return started if self._k == 1 else np.repeat(started, self._k)

    def void(self) -> np.ndarray:
        void = self._record.void
        return void if self._k == 1 else np.repeat(void, self._k)

    def global_state(self) -> Tree | None:
        """Return the global state ``[lanes, ...]``, equal for the lanes of one copy; None if the seat receives none."""
        if self._shared_state is None:
            return self._own_state
        return map_tree(lambda array: np.repeat(array, self._k, 0), self._shared_state)

    def acting(self) -> np.ndarray:
        return self._acting if self._columns is None else self._column(self._record.acting)

    def outcome(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return rewards, terminations and truncations."""
        if self._columns is None:
            return self._outcome
        record = self._record
        return self._column(record.rewards), self._column(record.terminated), self._column(record.truncated)

    def marks(self) -> np.ndarray:
        """Return the marks of an external game, see ``arena.protocol.wire``."""
        marks = self._record.marks
        return marks.reshape(-1) if self._columns is None else self._column(marks)

    def put(self, actions: Tree) -> None:
        if isinstance(self.actions, np.ndarray):  # the most frequent case
            np.copyto(self.actions, actions, casting="same_kind")
        else:
            map_tree(lambda array, values: np.copyto(array, values, casting="same_kind"), self.actions, actions)


class Collector:
    """Acts on a seat with built-in policies, one per block of its entities.

    Attributes:
      steps: transition steps so far.
    """

    def __init__(
        self, seat: Seat, policies: Sequence[Any], *, deterministic: bool, opponents: Opponents | None = None
    ) -> None:
        """Prepare the views; ``opponents`` assigns lanes to players if these change (one block of entities only)."""
        self._seat, self._policies, self._deterministic = seat, policies, deterministic
        self._opponents = opponents
        self._blocks = [
            [_LaneViews(seat, batch, block, record) for block in range(len(seat.blocks))]
            for batch, record in enumerate(seat.records)
        ]
        self._batches = range(seat.offer.batches)
        self._fresh = True  # no rollout has been collected yet
        self.steps = 0

    def _receive(self, batch: int) -> None:
        """Receive the batch's next message; the very first exchange makes the environment reset."""
        seat = self._seat
        if not seat.in_hand[batch]:
            if not seat.is_pending(batch):
                seat.send(batch)
            record = seat.receive(batch)
            # infos for a policy that has returned: a side message that is never received may block its sender
            if record.header[1]:
                seat.side(batch, record)
            if self._opponents is not None:
                self._opponents.read(batch, seat.slices[batch], record)

    def begin(self, rollout: "Rollout") -> None:
        """Begin the next rollout after one that was learned from."""
        rollout.begin()

    def prefetch(self) -> None:
        """Receive the first message of every batch, and with them the first line-ups of a league."""
        for batch in self._batches:
            self._receive(batch)

    def _put(self, batch: int, block: _LaneViews, decision: Decision) -> None:
        """Write the actions of a batch: the policy's own, then those of the opponents."""
        block.put(decision.actions)
        if self._opponents is not None:
            self._opponents.act(batch, block.observations, block.action_mask, block.starts(), block.actions)

    def _acting(self, block: _LaneViews) -> np.ndarray:
        """Return whether the policy itself acts, by lane."""
        acting = block.acting()
        return acting if self._opponents is None else acting & self._opponents.own[block.lanes]

    def play(self, after_exchange: Callable[[], None] = lambda: None) -> None:
        """Act without learning until the match is over.

        Raises:
          MatchOver: always, at the end of the match.
        """
        while True:
            for batch in self._batches:
                self._receive(batch)
                for block, policy in zip(self._blocks[batch], self._policies, strict=True):
                    decision = policy.act(
                        block.observations,
                        action_mask=block.action_mask,
                        starts=block.starts(),
                        lanes=block.lanes,
                        deterministic=self._deterministic,
                    )
                    self._put(batch, block, decision)
                    plain = self._opponents is None and block.is_steady()
                    self.steps += block.count if plain else int(np.count_nonzero(self._acting(block)))
                self._seat.send(batch)
            after_exchange()

    def collect(self, rollout: Any) -> int:
        """Fill a rollout, or a ``JointRollout``, with T exchanges per batch; return the transition steps in it.

        While the policies decide for one batch, the environment process steps another.

        Raises:
          MatchOver: the match ended before the rollout was full.
        """
        first, self._fresh = self._fresh, False
        parts = list(zip(self._policies, rollout.blocks, strict=True))
        for slot in range(rollout.horizon + 1):
            for batch in self._batches:
                self._receive(batch)
                for block, (policy, part) in zip(self._blocks[batch], parts, strict=True):
                    self._decide(batch, block, policy, part, slot, observe=slot > 0 or first)
                if slot < rollout.horizon:
                    self._seat.send(batch)
        if self._opponents is not None:
            self._opponents.check(rollout.valid)
        steps = int(rollout.acting[: rollout.horizon].sum())
        self.steps += steps
        return steps

    def _decide(
        self, batch: int, block: _LaneViews, policy: Any, rollout: "Rollout", slot: int, *, observe: bool
    ) -> None:
        """Store what a block of entities observes in a time step, and decide for it; in step T, value it only.

        Args:
          batch: index of the batch.
          block: its entities.
          policy: their policy.
          rollout: their rollout.
          slot: the time step.
          observe: whether the rollout does not hold the observations yet.
        """
        lanes, starts = block.lanes, block.starts()
        if observe:
            rollout.observe(
                slot,
                lanes,
                block.observations,
                *block.outcome(),
                self._acting(block),
                starts,
                block.action_mask,
                block.void(),
                block.global_state(),
            )
        if slot == rollout.horizon:
            if "value" in policy.extras:
                values = policy.bootstrap(block.observations, action_mask=block.action_mask, starts=starts, lanes=lanes)
                rollout.finish(lanes, values)
            return
        decision: Decision = policy.act(
            block.observations,
            action_mask=block.action_mask,
            starts=starts,
            lanes=lanes,
            deterministic=self._deterministic,
            learning=True,
        )
        self._put(batch, block, decision)
        rollout.decide(slot, lanes, decision)
        if self._opponents is not None:
            self._opponents.tag(slot, lanes)
