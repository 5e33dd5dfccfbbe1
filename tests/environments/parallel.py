"""A PettingZoo Parallel environment in which agents come late, end at different times, and leave without a word."""

from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv


class Shift(ParallelEnv):
    """Four workers on a shift of eight steps.

    ``early`` ends (terminated) after step 3. ``late`` is not there at the reset and comes with step 2. ``silent``
    leaves with step 5 without a flag. ``steady`` is truncated with step 8. Each sees (time, own last action).
    """

    render_mode = None

    def __init__(self, masks: bool = False) -> None:
        """Build spaces; with ``masks``, action 0 is forbidden in odd steps, and infos have the mask."""
        self.possible_agents = ["early", "late", "silent", "steady"]
        self.agents: list[str] = []
        self.masks = masks
        self.metadata = {"name": "shift", "action_mask": masks}
        self._observation_spaces = {
            agent: spaces.Box(0, 20, (2 + i,), np.float32) for i, agent in enumerate(self.possible_agents)
        }
        self._action_spaces = {agent: spaces.Discrete(3 + i) for i, agent in enumerate(self.possible_agents)}

    def observation_space(self, agent: str) -> spaces.Space:
        """Each agent has its own."""
        return self._observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space:
        """Each agent has its own."""
        return self._action_spaces[agent]

    def _observe(self, agent: str, action: Any) -> np.ndarray:
        observation = np.zeros(self._observation_spaces[agent].shape, np.float32)
        observation[0], observation[1] = self.time, action
        return observation

    def _info(self, agent: str) -> dict:
        if not self.masks:
            return {"time": self.time}
        mask = np.ones(self._action_spaces[agent].n, np.int8)
        mask[0] = self.time % 2 == 0
        return {"action_mask": mask}

    def reset(self, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        """All agents but ``late`` are there."""
        self.time = 0
        self.agents = ["early", "silent", "steady"]
        return {a: self._observe(a, 0) for a in self.agents}, {a: self._info(a) for a in self.agents}

    def step(self, actions: dict) -> tuple[dict, dict, dict, dict, dict]:
        """Pay each agent its action plus one."""
        assert set(actions) == set(self.agents), (actions, self.agents)
        self.time += 1
        told = [a for a in self.agents if not (a == "silent" and self.time == 5)]
        observations = {a: self._observe(a, actions[a]) for a in told}
        rewards = {a: float(actions[a]) + 1 for a in self.agents}
        terminations = {a: a == "early" and self.time == 3 for a in told}
        truncations = dict.fromkeys(told, self.time == 8)
        self.agents = [a for a in told if not (terminations[a] or truncations[a])]
        if self.time == 2:
            self.agents.insert(1, "late")
            observations["late"] = self._observe("late", 0)
        return observations, rewards, terminations, truncations, {a: self._info(a) for a in observations}


class Doubled:
    """Result of a wrapper that is a plain function: the environment itself, with another reward."""

    @staticmethod
    def wrap(env: Shift, factor: float) -> Shift:
        """Multiply rewards by ``factor``."""
        inner = env.step

        def step(actions: dict) -> tuple:
            observations, rewards, *rest = inner(actions)
            return observations, {agent: reward * factor for agent, reward in rewards.items()}, *rest

        env.step = step  # type: ignore[method-assign]
        return env


wrap = Doubled.wrap
