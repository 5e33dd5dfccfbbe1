"""A list environment: lists with one item per entity, and a single ``done``."""

import random
from typing import Any

import numpy as np
from gymnasium import spaces


class Line:
    """Two runners and an umpire on a line, each with spaces of its own. Whoever gets past the end ends it for all."""

    def __init__(self, length: int = 12, truncated_key: str = "TimeLimit.truncated", infos: str = "one") -> None:
        """Build spaces.

        Args:
          length: steps until the race is stopped.
          truncated_key: how the info says so.
          infos: ``one`` for all, or ``each`` its own; from ``reset`` as well with ``each``.
        """
        self.length = length
        self.truncated_key = truncated_key
        self.infos = infos
        self.observation_spaces = [
            spaces.Box(-10, 10, (2,), np.float32),
            spaces.Box(-10, 10, (1,), np.float64),
            spaces.Dict({"both": spaces.Box(-10, 10, (2,), np.float32), "late": spaces.Discrete(2)}),
        ]
        self.action_spaces = [spaces.Discrete(3), spaces.Box(-1, 1, (1,), np.float32), spaces.MultiDiscrete([2, 2])]
        self.random = random.Random(0)

    def seed(self, seed: int) -> None:
        """Seed in the old way: ``reset`` takes no seed."""
        self.random.seed(seed)

    def _observations(self) -> list[Any]:
        a, b = self.places
        return [[a, b], np.array([b]), {"both": np.array([a, b]), "late": int(self.time * 2 > self.length)}]

    def reset(self) -> Any:
        """Start near the middle."""
        self.time = 0
        self.places = [self.random.uniform(-1, 1), self.random.uniform(-1, 1)]
        self.kept: Any = None
        if self.infos == "each":
            return self._observations(), [{"entity": i} for i in range(3)]
        return self._observations()

    def step(self, actions: list[Any]) -> tuple[list[Any], list[float], bool, Any]:
        """Move the runners; the umpire is paid for the other runner's last move, which it kept by reference."""
        self.time += 1
        if self.kept is not None:
            self.places[1] += float(self.kept[0]) * 0.1
        self.places[0] += int(actions[0]) - 1
        self.places[1] += float(actions[1][0])
        self.kept = actions[1]
        self.places = [float(np.clip(place, -10, 10)) for place in self.places]
        crossed = max(self.places) > 3
        late = self.time >= self.length
        info: Any = {self.truncated_key: True} if late and not crossed else {}
        if self.infos == "each":
            info = [{"entity": 0}, {"entity": 1}, {"entity": 2, **info}]
        return self._observations(), [self.places[0], self.places[1], int(crossed)], crossed or late, info


class DonePerEntity(Line):
    """Returns a done flag for each entity, which is not the convention."""

    def step(self, actions: list[Any]) -> Any:
        """Return a list of done."""
        observations, rewards, done, info = super().step(actions)
        return observations, rewards, [done] * 3, info


class FiveItems(Line):
    """Returns what Gymnasium's step does, which is not the convention."""

    def step(self, actions: list[Any]) -> Any:
        """Return terminated and truncated."""
        observations, rewards, done, info = super().step(actions)
        return observations, rewards, done, False, info
