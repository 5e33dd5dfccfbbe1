"""A policy that gets worse once, as a policy does that loses its entropy on the way to a bad answer."""

from pathlib import Path

from arena.policies.on_policy.ppo import PPO, PPOSettings


class WorseSettings(PPOSettings):
    """Settings of ``Worse``.

    Attributes:
      marker: file that one rank of the group writes when it gets worse; none does again while there is one.
      worse_after: updates after which it does.
    """

    marker: str
    worse_after: int


class Worse(PPO):
    """PPO whose weights are overwritten once, with those of a policy that runs aside."""

    Settings = WorseSettings

    def learn(self, rollout, group):
        """Learn, then get worse if it is time."""
        metrics = super().learn(rollout, group)
        marker = Path(f"{self.settings.marker}-{group.rank}")
        if self.updates == self.settings.worse_after and not marker.exists():
            marker.touch()
            weights = self.networks.state_dict()
            weights["policy_head.weight"].zero_()
            weights["policy_head.bias"].zero_()[2] = 1e3  # so far that no gradient brings it back
        return metrics
