"""Minibatches from a replay buffer that is filled by rollouts."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

import numpy as np

from arena.experience.replay import Replay
from arena.experience.rollout import Rollout
from arena.experience.update_ratio import UpdateRatio
from arena.tensors.reducer import Reducer

DRAWN_AT_ONCE = 1024  # gradient steps with rows drawn in one call


class FeedSettings(Protocol):
    """Settings of the replay buffer and the update ratio; see ``ReplaySettings``."""

    capacity: int
    batch_size: int
    ratio: float
    warmup: int


class RowMaker(Protocol):
    """Conversion of consecutive rollouts to rows: ``Transitions`` or ``JointTransitions``.

    Attributes:
      dtype: of a row, structured.
    """

    dtype: np.dtype

    def rows(self, rollout: Rollout) -> np.ndarray:
        """Return the rows ``[N]`` that end in a rollout."""

    def count_begun(self, rollout: Rollout) -> int:
        """Return the number of transitions that begin in a rollout."""


class Minibatch(NamedTuple):
    """This worker's part of the rows of one gradient step.

    Attributes:
      rows: ``[B]``, structured as in ``Transitions``; valid until the next minibatch.
      weights: ``[B]`` float32, importance weights of at most about 1; None for equal ones.
    """

    rows: np.ndarray
    weights: np.ndarray | None


class ReplayFeed:
    """The replay buffer of one worker, filled from its rollouts and sampled at its group's update ratio.

    Attributes:
      pace: update ratio of the group.
      weight_exponent: beta of the importance weights that correct for priorities: 0 for no correction, 1 for a full
        one.
    """

    def __init__(
        self,
        transitions: RowMaker,
        settings: FeedSettings,
        *,
        random: np.random.Generator,
        priority: float | None = None,
    ) -> None:
        """Create the buffer.

        Args:
          transitions: converts rollouts to rows.
          settings: of the replay buffer and the update ratio.
          random: source of the sampled places.
          priority: exponent of priorities, see ``Replay``.
        """
        self._settings, self._random, self._priority = settings, random, priority
        self._transitions = transitions
        self.pace = UpdateRatio(ratio=settings.ratio, batch_size=settings.batch_size, warmup=settings.warmup)
        self._replay: Replay | None = None
        self._stored: Mapping[str, np.ndarray] = {}
        self._begun = 0
        self._batch = np.zeros(0, self._transitions.dtype)
        self._places = np.zeros(0, np.int64)
        self.weight_exponent = 1.0

    def __len__(self) -> int:
        """Return the number of rows that this worker holds."""
        return 0 if self._replay is None else len(self._replay)

    def store(self, rollout: Rollout, group: Reducer) -> np.ndarray:
        """Store the rows ``[N]`` that end in a rollout, and return them."""
        rows = self._transitions.rows(rollout)
        self._replay_of(group).append(rows)
        self._begun = self._transitions.count_begun(rollout)
        return rows

    def minibatches(self, group: Reducer) -> Iterator[Minibatch]:
        """Yield a minibatch, this worker's part of it, for each gradient step of the last rollout's update budget.

        All workers get the same number of them; a worker without rows gets empty ones.
        """
        replay = self._replay_of(group)
        steps, count, least = self.pace.burst(group, self._begun, len(replay), replay.least_share)
        if len(self._batch) != count:
            self._batch = np.zeros(count, self._transitions.dtype)
        for first in range(0, steps, DRAWN_AT_ONCE):
            burst = min(DRAWN_AT_ONCE, steps - first)
            if not count:
                yield from [Minibatch(self._batch, None)] * burst
            elif replay.priorities is not None:
                for _ in range(burst):
                    yield self._by_priority(replay, count, least)
            else:
                for places in replay.draw(burst, count, self._random):
                    replay.take(places, self._batch)
                    yield Minibatch(self._batch, None)

    def _by_priority(self, replay: Replay, count: int, least_share: float) -> Minibatch:
        """Sample rows by their priorities, with importance weights."""
        self._places = places = replay.draw_by_priority(count, self._random)
        replay.take(places, self._batch)
        # (N P(i))^-beta over that of the group's least probable row: each worker draws the same number, so that P
        # differs from its own probabilities by a common factor.
        weights = (least_share / replay.shares(places)) ** self.weight_exponent
        return Minibatch(self._batch, weights.astype(np.float32))

    def set_errors(self, errors: np.ndarray) -> None:
        """Set the TD errors ``[B]`` of the last minibatch's rows: rows with greater errors are sampled more often."""
        if self._replay is not None and self._replay.priorities is not None and len(errors):
            self._replay.set_errors(self._places, errors)

    def _replay_of(self, group: Reducer) -> Replay:
        """Return this worker's replay buffer, created with its share of the group's capacity."""
        if self._replay is None:
            self._replay = Replay(self._transitions.dtype, -(-self._settings.capacity // group.size), self._priority)
            if self._stored:
                self._replay.load_state(self._stored)
                self._stored = {}
        return self._replay

    def state(self) -> dict[str, np.ndarray]:
        """Return the rows that this worker holds, as a flat dict of arrays (views), for a checkpoint."""
        return dict(self._stored) if self._replay is None else self._replay.state()

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Load a state returned by ``state``."""
        self._stored, self._replay = dict(state), None
