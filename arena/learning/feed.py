"""Turns each rollout into the minibatches that it pays for."""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np

from arena.envs.interface import EntitySpaces
from arena.learning.pace import Pace
from arena.learning.reducer import Reducer
from arena.learning.replay import Replay
from arena.learning.rollout import Rollout
from arena.learning.rows import Transitions

DRAWN_AT_ONCE = 1024  # gradient steps whose rows are drawn by one call


class FeedSettings(Protocol):
    """The settings that say what is kept and how often it is learned from; see ``ReplaySettings``."""

    gamma: float
    n_step: int
    capacity: int
    batch_size: int
    ratio: float
    warmup: int


class ReplayFeed:
    """The replay of one worker, filled from its rollouts and drawn from at the pace of its group.

    Attributes:
      pace: how many transitions were collected, and how many gradient steps they have paid for.
    """

    def __init__(
        self,
        spaces: EntitySpaces,
        extras: Mapping[str, tuple[tuple[int, ...], Any]],
        settings: FeedSettings,
        *,
        lanes: int,
        random: np.random.Generator,
    ) -> None:
        """Prepare; see ``Transitions`` for the first three. ``random`` draws rows."""
        self._settings, self._random = settings, random
        self._transitions = Transitions(spaces, extras, lanes=lanes, gamma=settings.gamma, n_step=settings.n_step)
        self.pace = Pace(ratio=settings.ratio, batch_size=settings.batch_size, warmup=settings.warmup)
        self._replay: Replay | None = None
        self._stored: Mapping[str, np.ndarray] = {}
        self._batch = np.zeros(0, self._transitions.dtype)

    def __len__(self) -> int:
        """Return the rows that this worker holds."""
        return 0 if self._replay is None else len(self._replay)

    def minibatches(self, rollout: Rollout, group: Reducer) -> Iterator[np.ndarray]:
        """Yield rows ``[B]`` for each gradient step that a rollout pays for: this worker's part of a minibatch.

        All workers get the same number of them, and one that holds no rows gets empty ones. They are structured as
        ``Transitions`` says, and valid until the next ones.
        """
        replay = self._replay_of(group)
        replay.append(self._transitions.rows(rollout))
        fresh = int(np.count_nonzero(rollout.acting[: rollout.horizon]))
        steps, count = self.pace.burst(group, fresh, len(replay))
        if len(self._batch) != count:
            self._batch = np.zeros(count, self._transitions.dtype)
        for first in range(0, steps, DRAWN_AT_ONCE):
            for places in self._draw(replay, min(DRAWN_AT_ONCE, steps - first), count):
                if count:
                    replay.take(places, self._batch)
                yield self._batch

    def _draw(self, replay: Replay, steps: int, count: int) -> np.ndarray:
        return replay.draw(steps, count, self._random) if count else np.zeros((steps, 0), np.int64)

    def _replay_of(self, group: Reducer) -> Replay:
        """Return this worker's replay: its part of the capacity, which is the group's."""
        if self._replay is None:
            self._replay = Replay(self._transitions.dtype, -(-self._settings.capacity // group.size))
            if self._stored:
                self._replay.load_state(self._stored)
                self._stored = {}
        return self._replay

    def state(self) -> dict[str, np.ndarray]:
        """Return rows and what is open, as a flat dict of arrays (views): what a checkpoint keeps of this worker."""
        if self._replay is None:
            return dict(self._stored)
        return {**self._replay.state(), **self._transitions.state()}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Load what ``state`` returned."""
        self._transitions.load_state(state)
        self._stored, self._replay = dict(state), None
