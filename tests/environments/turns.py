"""A PettingZoo AEC environment with payments between turns and a player who drops out in the middle."""

from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv
from pettingzoo.utils import AgentSelector


class Tolls(AECEnv):
    """Three players in turn. A move pays the mover its action, and 0.25 to each of the others.

    Player ``b`` is out (terminated) after its second move. After twelve moves all who are left are truncated.
    """

    render_mode = None

    def __init__(self, farewell: bool = True) -> None:
        """Set up; without ``farewell`` the environment empties ``agents`` itself in the end, without steps of None."""
        super().__init__()
        self.metadata = {"name": "tolls", "is_parallelizable": False}
        self.farewell = farewell
        self.possible_agents = ["a", "b", "c"]
        self._spaces = {agent: spaces.Box(0, 100, (2,), np.float32) for agent in self.possible_agents}
        self._actions = {agent: spaces.Discrete(3) for agent in self.possible_agents}

    def observation_space(self, agent: str) -> spaces.Space:
        """All alike."""
        return self._spaces[agent]

    def action_space(self, agent: str) -> spaces.Space:
        """All alike."""
        return self._actions[agent]

    def reset(self, seed: int | None = None, options: dict | None = None) -> None:
        """Player ``a`` begins."""
        self.agents = self.possible_agents[:]
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, dict[str, Any]] = {agent: {} for agent in self.agents}
        self.moves = dict.fromkeys(self.agents, 0)
        self._selector = AgentSelector(self.agents)
        self.agent_selection = self._selector.reset()

    def observe(self, agent: str) -> np.ndarray:
        """Return own moves and all moves."""
        return np.array([self.moves[agent], sum(self.moves.values())], np.float32)

    def step(self, action: Any) -> None:
        """Make one move."""
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        self._cumulative_rewards[agent] = 0.0
        self.moves[agent] += 1
        for other in self.agents:
            self.rewards[other] = float(action) if other == agent else 0.25
        self.infos[agent] = {"moves": self.moves[agent]}
        self._accumulate_rewards()
        nobody_left = sum(self.moves.values()) == 12
        following = self._selector.next()
        if agent == "b" and self.moves["b"] == 2:
            self.terminations["b"] = True
            self._selector.reinit([other for other in self.agents if other != "b"])
            self._selector.reset()
            following = self._selector.next()
        if nobody_left:
            for other in self.agents:
                self.truncations[other] = not self.terminations[other]
        self.agent_selection = following
        if nobody_left and not self.farewell:
            self.agents = []
            return
        self._deads_step_first()


class TollsWithoutFarewell(Tolls):
    """Empties ``agents`` in the end instead of taking steps with None."""

    def __init__(self) -> None:
        """Set up."""
        super().__init__(farewell=False)
