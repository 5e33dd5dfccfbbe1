"""A policy that watches what becomes of episodes in which its environment failed."""

from typing import Any

import gymnasium
import numpy as np


class Watches:
    """Plays on, through both kinds of Gymnasium environments, and counts the episodes that a fault ended."""

    def __init__(self, env: Any, group: Any, faults: int) -> None:
        """Expect a number of faults."""
        self.env, self.expected, self.seen = env, faults, 0

    def run(self, steps: int) -> None:
        """Take so many steps.

        Raises:
          AssertionError: an episode ended in another way than it should, or too few did.
        """
        if isinstance(self.env, gymnasium.vector.VectorEnv):
            self._many(steps // self.env.num_envs)
        else:
            self._one(steps)
        assert self.seen == self.expected, f"saw {self.seen} faults"
        print(f"watched {self.seen} faults", flush=True)

    def _one(self, steps: int) -> None:
        self.env.reset(seed=1)
        for _ in range(steps):
            observation, reward, terminated, truncated, info = self.env.step(self.env.action_space.sample())
            assert np.isfinite(observation).all() and np.isfinite(reward)
            if "restarted" in info:
                self.seen += 1
                assert truncated and not terminated and reward == 0
            if terminated or truncated:
                self.env.reset()

    def _many(self, steps: int) -> None:
        self.env.reset(seed=1)
        for _ in range(steps):
            observations, rewards, terminated, truncated, infos = self.env.step(self.env.action_space.sample())
            assert np.isfinite(observations).all() and np.isfinite(rewards).all()
            told = infos.get("final_info", infos)
            for copy in np.flatnonzero(told.get("_restarted", np.zeros(0, bool))):
                self.seen += 1
                assert truncated[copy] and not terminated[copy] and rewards[copy] == 0
                if "final_obs" in infos:
                    assert np.isfinite(infos["final_obs"][copy]).all()
