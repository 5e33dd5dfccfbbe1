"""Policies for ``benchmarks.learners``: one whose learner only receives, and one with slow updates."""

import time
from typing import Any

from arena.policies.off_policy.dqn import DQN


class OnlyReceives(DQN):
    """A DQN that acts with its network from the start, and learns nothing."""

    def act(self, observations: Any, **options: Any) -> Any:
        """Act as after the warm-up."""
        self.feed.pace.collected = 1  # of which 0 paid for nothing
        return super().act(observations, **options)

    def learn(self, rollout: Any, group: Any) -> dict[str, float]:
        """Learn nothing."""
        return {"received": 1.0}


class SlowLearner(OnlyReceives):
    """The same policy, with updates that take longer than its workers' rollouts."""

    def learn(self, rollout: Any, group: Any) -> dict[str, float]:
        """Sleep for two milliseconds."""
        time.sleep(0.002)
        return {"received": 1.0}
