"""Policies that compare what learning does on several workers with what it does on one."""

import numpy as np
from gymnasium import spaces

from arena.envs.interface import EntitySpaces
from arena.experience.rollout import Rollout
from arena.policies.on_policy.ppo import PPO

SPACES = EntitySpaces("x", spaces.Box(-1, 1, (5,), np.float32), spaces.Discrete(3))
LANES, HORIZON = 4, 16
SETTINGS = PPO.Settings(horizon=HORIZON, minibatches=1, epochs=1, target_kl=None, hidden=(160, 160))


class Solo:
    """A group of one."""

    rank, size = 0, 1

    def sum_in_place(self, array):
        """Leave it: it is the sum already."""


def make(lanes):
    """Return a policy whose weights depend on nothing but the seed."""
    return PPO(SPACES, SETTINGS, lanes=lanes, seed=3)


def fill(policy, workers):
    """Return a rollout with the synthetic experience of these workers, side by side."""
    lanes = LANES * len(workers)
    rollout = Rollout(SPACES, policy.extras, horizon=HORIZON, lanes=lanes)
    data = [np.random.default_rng(100 + worker) for worker in workers]
    draw = lambda shape: np.concatenate([g.standard_normal((LANES, *shape)) for g in data])  # noqa: E731
    everything = slice(0, lanes)
    starts = np.ones(lanes, bool)
    for slot in range(HORIZON + 1):
        observations = draw((5,)).astype(np.float32)
        ended = draw(()) > 1.5
        outcome = np.zeros(lanes), np.zeros(lanes, bool), np.zeros(lanes, bool)
        if slot:
            outcome = draw(()), ended & ~starts, np.zeros(lanes, bool)
        acting = ~outcome[1]
        rollout.observe(slot, everything, observations, *outcome, acting, starts)
        starts = outcome[1]
        if slot == HORIZON:
            rollout.finish(everything, policy.bootstrap(observations, lanes=everything))
        else:
            # Actions come from the data, so that they do not depend on how many lanes are decided at once.
            actions = (draw(()) * 10).astype(np.int64) % 3
            decision = policy.act(observations, lanes=everything, learning=True)
            decision.extras["choice"][...] = actions.reshape(decision.extras["choice"].shape)
            rollout.decide(slot, everything, decision._replace(actions=actions))
    return rollout


class OneUpdate:
    """One update by W workers equals one update by one worker on all the data, to 1e-6."""

    def __init__(self, env, group):
        self.group = group

    def run(self, steps):
        group = self.group
        together = make(LANES)
        together.learn(fill(together, [group.rank]), group)
        alone = make(LANES * group.size)
        alone.learn(fill(alone, list(range(group.size))), Solo())
        ours, theirs = together.weights(), alone.weights()
        before = make(LANES).weights()
        worst = max(float((ours[name] - theirs[name]).abs().max()) for name in ours)
        moved = max(float((ours[name] - before[name]).abs().max()) for name in ours)
        assert moved > 1e-4, "the update changed nothing"
        assert worst <= 1e-6, worst
        print(f"one update of {group.size} workers differs by {worst:.1e}", flush=True)


class Diverges(PPO):
    """A PPO whose second worker drifts away, which `verify_replicas` must notice."""

    def learn(self, rollout, group):
        """Learn, then spoil one bit on worker 1."""
        metrics = super().learn(rollout, group)
        if group.rank == 1:
            weights = self.weights()
            name = min(weights)
            weights[name] = weights[name] + 1e-7
            self.load_weights(weights)
        return metrics
