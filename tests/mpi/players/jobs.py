"""An environment that pays the values of a league's job, so that returns show what arrived."""

import gymnasium
import numpy as np
from gymnasium import spaces


class Pays(gymnasium.Env):
    """Four steps, each of which pays ``wage`` (a setting) plus ``bonus`` (an option of the reset)."""

    observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, wage=0.0):
        self.wage = wage

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.bonus = (options or {}).get("bonus", 0.0)
        self.left = 4
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.left -= 1
        return np.zeros(1, np.float32), self.wage + self.bonus, self.left == 0, False, {}
