"""Environments with a global state, one for each way to declare it."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from arena.envs.interface import EntitySpaces, Timestep

STATE = spaces.Box(0, 100, (2,), np.float64)


class Corridor(gymnasium.Env):
    """Two cells; the state, which the observation does not show, has the cell and the time, in ``info``."""

    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)
    state_space = STATE

    def __init__(self, forgets: bool = False) -> None:
        """With ``forgets``, infos have no state."""
        self.forgets = forgets

    def _info(self) -> dict:
        return {} if self.forgets else {"state": np.array([self.cell, self.time], np.float64)}

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        """Begin in cell 0."""
        super().reset(seed=seed)
        self.cell = self.time = 0
        return np.zeros(1, np.float32), self._info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        """Move to the cell with the number of the action; an episode has 5 steps."""
        self.cell, self.time = int(action), self.time + 1
        return np.zeros(1, np.float32), float(self.cell), False, self.time == 5, self._info()


class Pair:
    """A list environment of two entities, in episodes of 5 steps."""

    observation_spaces = [spaces.Discrete(7), spaces.Discrete(7)]  # noqa: RUF012
    action_spaces = [spaces.Discrete(2), spaces.Discrete(2)]  # noqa: RUF012
    state_space = STATE

    def reset(self) -> list:
        """Begin at time 0."""
        self.time, self.last = 0, 0
        return [0, 0]

    def step(self, actions: list) -> tuple:
        """Pay the sum of the actions."""
        self.time, self.last = self.time + 1, int(actions[0] + actions[1])
        return [self.time, self.time], [float(self.last)] * 2, self.time == 5, {}

    def state(self) -> list:
        """Return time and last sum, as a plain list."""
        return [self.last, self.time]


class Own:
    """The arena's own interface, with the state that ``kind`` names: ``wrong`` has another shape than its space,
    ``raises`` fails, ``text`` has a space that is not supported."""

    turn_based = False

    def __init__(self, kind: str = "good", entities: int = 1) -> None:
        """See the class."""
        self.kind, self.count = kind, entities
        self.state_space = spaces.Text(5) if kind == "text" else STATE
        self.entities = tuple(
            EntitySpaces(f"entity_{i}", spaces.Box(0, 100, (2,), np.float32), spaces.Discrete(2))
            for i in range(entities)
        )

    def _timestep(self, paid: float, over: bool) -> Timestep:
        yes, no, count = (True,) * self.count, (False,) * self.count, self.count
        seen = [np.array([i, self.time], np.float32) for i in range(count)]
        return Timestep(
            seen, [paid] * count, no, yes if over else no, [{}] * count, no if over else yes, [None] * count, over
        )

    def reset(self, seed: int | None = None, options: dict | None = None) -> Timestep:
        """Begin at time 0."""
        self.time, self.last = 0, 0
        return self._timestep(0.0, False)

    def step(self, actions: Any) -> Timestep:
        """An episode has 5 steps."""
        self.time, self.last = self.time + 1, int(actions[0])
        return self._timestep(float(self.last), self.time == 5)

    def state(self) -> Any:
        """Return last action and time."""
        if self.kind == "raises":
            raise RuntimeError("this state is a secret")
        return np.array([self.last, self.time, 0][: 3 if self.kind == "wrong" else 2], np.float64)

    def render(self) -> None:
        """Nothing to see."""

    def close(self) -> None:
        """Nothing to free."""
