"""An environment some of whose steps and resets take long, and a policy that records the consequences."""

import time
from pathlib import Path

import gymnasium
import numpy as np

from arena.policies.on_policy.ppo import PPO

PAUSE = 0.3


class Uneven(gymnasium.Env):
    """Shows how many steps it has taken, and pays as much; the first one that steps is slow now and then."""

    observation_space = gymnasium.spaces.Box(0, 1000, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, ticket: str):
        self._ticket, self._is_slow = Path(ticket), None

    def _observation(self):
        return np.array([self._steps], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._steps = 0
        if self._is_slow:
            time.sleep(PAUSE)
        return self._observation(), {}

    def step(self, action):
        self._steps += 1
        if self._is_slow is None:
            try:
                self._ticket.open("x").close()
                self._is_slow = True
            except FileExistsError:
                self._is_slow = False
        if self._is_slow and self._steps % 7 == 0:
            time.sleep(PAUSE)
        return self._observation(), float(self._steps), self._steps == 20, False, {}


class Looks(PPO):
    """A PPO that reports how often each lane rested, and whether every transition it learns from is whole."""

    rested = 0
    seen = 0

    def learn(self, rollout, group):
        observations, last = rollout.observations[..., 0], rollout.horizon
        slots, lanes = np.nonzero(rollout.valid)
        begun = observations[slots, lanes]
        assert (rollout.rewards[slots, lanes] == begun + 1).all(), "a reward that is another step's"
        continues = ~rollout.terminated[slots, lanes]
        after = observations[rollout.next_slot[slots, lanes], lanes]
        assert (after[continues] == begun[continues] + 1).all(), "an observation that does not follow"
        self.rested = self.rested + (~rollout.acting[:last]).sum(axis=0)
        self.seen += last
        print(f"rested {self.rested.tolist()} of {self.seen}", flush=True)
        return super().learn(rollout, group)
