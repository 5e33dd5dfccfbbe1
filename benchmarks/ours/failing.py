"""PPO that fails once: it raises, or its weights turn into NaN, after a few updates."""

import os
import time
from pathlib import Path
from typing import Any

import torch

from arena.policies.on_policy.ppo import PPO

TICKET = "ARENA_BENCHMARK_TICKET"
"""Environment variable: a file that exists once the failure has happened."""

AFTER = 12
"""Updates before the failure."""


def _due(updates: int) -> bool:
    ticket = Path(os.environ[TICKET])
    if updates != AFTER or ticket.exists():
        return False
    ticket.write_text(repr(time.time()))
    return True


class Raises(PPO):
    """A mistake in the policy's own code."""

    def learn(self, rollout: Any, group: Any) -> dict[str, float]:
        """Learn, once too often."""
        if _due(self.updates):
            raise ValueError("a planted mistake")
        return super().learn(rollout, group)


class TurnsNaN(PPO):
    """A training that diverges."""

    def learn(self, rollout: Any, group: Any) -> dict[str, float]:
        """Learn, and lose the weights once."""
        metrics = super().learn(rollout, group)
        if _due(self.updates):
            with torch.no_grad():
                next(self.networks.parameters()).fill_(float("nan"))
        return metrics
