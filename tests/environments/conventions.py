"""Environments of several agents in conventions other than PettingZoo's."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Team(gymnasium.Env):
    """Agents by Tuple spaces and lists, as in lbforaging, rware and EPyMARL, with spaces of their own.

    Agent i sees (time, own last action, ...) and may not take action 0 in odd steps. With ``early``, the first one is
    done after three steps; the others after eight. ``team`` pays one reward for all.
    """

    def __init__(self, n_agents: int = 3, early: bool = False, team: bool = False) -> None:
        """Build the spaces."""
        self.n_agents, self.early, self.team = n_agents, early, team
        self.observation_space = spaces.Tuple([spaces.Box(0, 20, (2 + i,), np.float32) for i in range(n_agents)])
        self.action_space = spaces.Tuple([spaces.Discrete(3)] * n_agents)
        self.state_space = spaces.Box(0, 20, (1,), np.float32)

    def state(self) -> np.ndarray:
        """Return the time."""
        return np.array([self.time], np.float32)

    def _observe(self, actions: Any) -> list[np.ndarray]:
        seen = [np.zeros(2 + i, np.float32) for i in range(self.n_agents)]
        for observation, action in zip(seen, actions, strict=True):
            observation[:2] = self.time, action
        return seen

    def _info(self) -> dict[str, Any]:
        return {"avail_actions": [[int(self.time % 2 == 0), 1, 1]] * self.n_agents}

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict[str, Any]]:
        """Start."""
        super().reset(seed=seed)
        self.time = 0
        return self._observe([0] * self.n_agents), self._info()

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Pay each its action, or all of them together."""
        self.time += 1
        over = self.time == 8
        rewards: Any = sum(map(int, action)) if self.team else [float(each) for each in action]
        done: Any = [over or (i == 0 and self.time >= 3) for i in range(self.n_agents)] if self.early else over
        return self._observe(action), rewards, done, False, self._info()


class Cars:
    """RLlib's ``MultiAgentEnv`` by its methods.

    ``a`` acts in even steps; ``b`` appears in step 2 and acts in every step until it is done in step 6; ``c`` is done
    before it acts; in step 4 nobody is observed. The episode ends in step 9, without a last observation.
    Each sees the time and is paid 1 in every step, from the start.
    """

    possible_agents = ("a", "b", "c")

    def __init__(self) -> None:
        """Build the spaces."""
        self.observation_spaces = {agent: spaces.Box(0, 20, (1,), np.float32) for agent in self.possible_agents}
        self.action_spaces = {agent: spaces.Discrete(2) for agent in self.possible_agents}

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        """Start with ``a`` alone."""
        self.time = 0
        self.acted: list[dict] = []
        return {"a": np.zeros(1, np.float32)}, {}

    def step(self, action_dict: dict) -> tuple[dict, dict, dict, dict, dict]:
        """Keep the actions."""
        self.acted.append(dict(action_dict))
        self.time += 1
        seen = ["a"] * (self.time % 2 == 0) + ["b"] * (2 <= self.time <= 6)
        if self.time in (4, 9):
            seen = []
        terminateds = {"b": self.time == 6, "c": self.time == 3, "__all__": self.time == 9}
        infos = {"__common__": {"time": self.time}, "a": {"own": self.time}}
        observations = {agent: np.array([self.time], np.float32) for agent in seen}
        rewards = {"a": 1.0} | ({"b": 1.0} if 2 < self.time <= 6 else {})
        return observations, rewards, terminateds, {"__all__": False}, infos


class OldCars:
    """A ``MultiAgentEnv`` of RLlib's older form: ``get_agent_ids``, and one space that each agent has."""

    observation_space = spaces.Box(0, 20, (1,), np.float32)
    action_space = spaces.Discrete(2)
    stranger = ""

    def get_agent_ids(self) -> set[int]:
        """Return numbers, as older examples do."""
        return {1, 0}

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        """Start with both."""
        self.time = 0
        return {i: np.zeros(1, np.float32) for i in range(2)}, {}

    def step(self, action_dict: dict) -> tuple[dict, dict, dict, dict, dict]:
        """Pay each its action; truncate after five steps."""
        self.time += 1
        seen: dict[Any, np.ndarray] = {i: np.array([self.time], np.float32) for i in range(2)}
        if self.stranger:
            seen[self.stranger] = seen[0]
        cut = self.time == 5
        return seen, {i: float(a) for i, a in action_dict.items()}, {"__all__": False}, {"__all__": cut}, {}


class Battle:
    """pymarl's ``MultiAgentEnv`` by its methods: two agents, of whom the second is dead from step 3 on.

    Action 0 does nothing, and is all that a dead agent has; others may not take it. The team is paid the sum of
    actions. The episode ends in step 5, won with ``fight``, at its limit without.
    """

    def __init__(self, fight: bool = True, five: bool = False) -> None:
        """Choose the end, and whether ``step`` returns the five parts of EPyMARL."""
        self.fight, self.five = fight, five

    def get_env_info(self) -> dict[str, Any]:
        """Return the sizes."""
        return {"n_agents": 2, "n_actions": 3, "obs_shape": 4, "state_shape": (2,), "episode_limit": 5}

    def reset(self) -> tuple[Any, Any]:
        """Start."""
        self.time = 0
        return self.get_obs(), self.get_state()

    def get_obs(self) -> list[np.ndarray]:
        """Return agent and time."""
        return [np.array([i, self.time, 0, 0], np.float64) for i in range(2)]

    def get_state(self) -> np.ndarray:
        """Return the time."""
        return np.array([self.time, 1.0])

    def get_avail_actions(self) -> list[list[int]]:
        """Return flags."""
        return [[0, 1, 1], [1, 0, 0] if self.time >= 3 else [0, 1, 1]]

    def step(self, actions: Any) -> tuple[Any, ...]:
        """Step."""
        assert all(self.get_avail_actions()[i][action] for i, action in enumerate(actions))
        self.time += 1
        over = self.time == 5
        info = {"battle_won": over and self.fight, "dead_allies": int(self.time >= 3)}
        if self.five:
            return self.get_obs(), float(sum(actions)), over and self.fight, over and not self.fight, info
        return float(sum(actions)), over, info | ({"episode_limit": not self.fight} if over else {})

    def close(self) -> None:
        """Close."""
