"""No-op environments for whole matches."""

from typing import Any

import gymnasium
import numpy as np
from pettingzoo import ParallelEnv

from benchmarks.peers.games import make

SEATS = 4


def screen() -> gymnasium.Env:
    """Return a no-op environment with large observations."""
    return make("noop_screen")


def vector() -> gymnasium.Env:
    """Return a no-op environment with small ones."""
    return make("noop")


class NoopMatch(ParallelEnv):
    """Entities that see 8 floats each; nothing ever happens."""

    metadata = {"name": "noop_match"}  # noqa: RUF012 (PettingZoo's own interface)

    def __init__(self, entities: int = SEATS) -> None:
        self.possible_agents = [f"entity_{index}" for index in range(entities)]
        self.agents = self.possible_agents[:]
        self._observation = np.zeros(8, np.float32)
        self._space = gymnasium.spaces.Box(-1, 1, (8,), np.float32)
        self._actions = gymnasium.spaces.Discrete(4)

    def observation_space(self, agent: str) -> gymnasium.Space:
        """Return 8 floats."""
        return self._space

    def action_space(self, agent: str) -> gymnasium.Space:
        """Return four actions."""
        return self._actions

    def reset(self, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        """Return zeros."""
        return dict.fromkeys(self.agents, self._observation), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> tuple[dict, dict, dict, dict, dict]:
        """Return zeros."""
        no = dict.fromkeys(self.agents, False)
        return (
            dict.fromkeys(self.agents, self._observation),
            dict.fromkeys(self.agents, 0.0),
            no,
            no,
            {agent: {} for agent in self.agents},
        )
