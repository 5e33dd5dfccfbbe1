"""Rewards divided by the running standard deviation of their discounted sum, so that values are of a size near 1.

Rewards are not shifted: a constant added to all of them changes which policy is best where episodes end by their rules.
Gymnasium's ``NormalizeReward`` and the ``VecNormalize`` of Stable-Baselines3 do the same; here the statistics are of
all workers, and belong to the policy.
"""

import numpy as np
import torch

from arena.experience.rollout import Rollout
from arena.policies.on_policy.returns import discounted_sums
from arena.tensors.moments import Moments
from arena.tensors.reducer import Reducer

TINY = 1e-8
"""Added to the variance: rewards of 0 stay 0."""


class RewardScale:
    """The running standard deviation of the discounted sums of rewards, each from the start of its episode.

    A lane's sum continues from rollout to rollout. In the rollouts of external games, it may begin with that of another
    episode.

    Attributes:
      sums: ``[L]`` float64, the sums of this worker's lanes after the last rollout.
    """

    def __init__(self, clip: float) -> None:
        """Start without rewards; ``clip`` bounds the results."""
        self._clip = clip
        self._moments = Moments(1, "rewards")
        self.sums = np.zeros(0)

    def scaled(self, rollout: Rollout, gamma: float, group: Reducer) -> np.ndarray:
        """Include a rollout, and return its rewards after the division, ``[T, L]`` float32.

        Args:
          rollout: of this worker; all workers of the group make this call.
          gamma: discount.
          group: all workers.

        Raises:
          FloatingPointError: a reward is not finite; raised by all workers together.
        """
        if len(self.sums) != rollout.lanes:
            self.sums = np.zeros(rollout.lanes)
        sums = discounted_sums(rollout.rewards, rollout.valid, rollout.starts, gamma, self.sums)
        self._moments.add(sums[rollout.valid][:, None], group)
        factor = 1 / np.sqrt(self._moments.deviation[0] ** 2 + TINY)
        return np.clip(rollout.rewards * np.float32(factor), -self._clip, self._clip)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the statistics: count, mean and squared distances, float64 ``[3]``."""
        moments = self._moments
        return {"rewards": torch.tensor([moments.count, moments.mean[0], moments.squares[0]], dtype=torch.float64)}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Load a state returned by ``state_dict``."""
        self._moments.count, self._moments.mean[0], self._moments.squares[0] = state["rewards"].tolist()
