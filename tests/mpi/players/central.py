"""PPO that stores what its first update learns from."""

import os
from pathlib import Path

import numpy as np

from arena.policies.on_policy.ppo import PPO
from arena.policies.on_policy.returns import advantages
from arena.policies.on_policy.settings import PPOSettings


class StoringSettings(PPOSettings):
    place: str


class Stores(PPO):
    Settings = StoringSettings

    def learn(self, rollout, group):
        if self.updates == 0:
            value = rollout.extras["value"]
            outcome = rollout.rewards, value, rollout.terminated, rollout.truncated, rollout.valid, rollout.next_slot
            target = advantages(*outcome, gamma=self.settings.gamma, gae_lambda=self.settings.gae_lambda) + value[:-1]
            path = Path(self.settings.place) / f"{os.getpid()}.npz"
            np.savez(path, observations=rollout.observations, states=rollout.global_state, targets=target)
        return super().learn(rollout, group)
