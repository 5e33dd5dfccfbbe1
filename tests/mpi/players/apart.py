"""Policies that learn apart from those who act."""

import time

import numpy as np

from arena.policies.ppo import PPO


class Slow(PPO):
    """A PPO whose updates take longer than its workers' rollouts."""

    def learn(self, rollout, group):
        time.sleep(0.02)
        return super().learn(rollout, group)


class Checks(PPO):
    """A PPO that looks at what its learners get: whole transitions, and probabilities of the weights that acted."""

    def learn(self, rollout, group):
        assert rollout.lanes == (3 if group.rank == 0 else 5) * 2, "two seats of a match to each learner"
        following = rollout.observations[1:][~rollout.starts[1:] & rollout.valid]
        assert np.isfinite(following).all()
        if self.updates > 3:
            outputs, _ = self._fast.forward(rollout.observations[0])
            newer = self.distribution.differentiate(outputs, self._free, rollout.extras["choice"][0], None).log_prob
            assert (newer != rollout.extras["log_prob"][0]).any(), "acting was not behind"
        assert (rollout.extras["log_prob"][:-1] < 0).all(), "the worker has not completed its rollout"
        return super().learn(rollout, group)


class NeverActs:
    """No policy of the arena."""


class HangsInAct(PPO):
    """A PPO that stops in the middle of a rollout."""

    def act(self, *observations, **options):
        self.asked = getattr(self, "asked", 0) + 1
        while self.asked > 40:
            time.sleep(0.1)
        return super().act(*observations, **options)


class HangsInLearn(PPO):
    """A PPO that stops in its third update."""

    def learn(self, rollout, group):
        while self.updates == 2:
            time.sleep(0.1)
        return super().learn(rollout, group)
