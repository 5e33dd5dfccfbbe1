"""Policies whose learners are separate ranks."""

import time

import numpy as np
import torch

from arena.policies.on_policy.ppo import PPO


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
            outputs = self._path.act(rollout.observations[0], None, None, with_values=True)[0]
            newer = self.distribution.differentiate(
                outputs, self._path.distribution_parameters, rollout.extras["choice"][0], None
            ).log_prob
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


class Sends:
    """Sends batches of fifty steps, learns by counting, and looks at what it is given."""

    def __init__(self, env, group):
        self.env, self.group = env, group
        self.network = torch.nn.Linear(4, 2)
        self.network.register_buffer("updates", torch.zeros(1))

    def run(self, steps):
        self.env.reset()
        for _ in range(30 if self.group.rank == 0 else 10):
            self.group.pull_weights(self.network)
            pulled = int(self.network.updates)
            assert pulled == self.group.updates
            for _ in range(50):
                *_, terminated, truncated, _ = self.env.step(self.env.action_space.sample())
                if terminated or truncated:
                    self.env.reset()
            self.group.send_experience({"pulled": np.full(50, pulled), "worker": np.full(50, self.group.rank)})
        if self.group.rank == 0:
            while int(self.network.updates) < 30:
                self.group.pull_weights(self.network)
                time.sleep(0.01)
            print(f"worker 0 ended with weights of update {int(self.network.updates)}", flush=True)

    def learn(self, batch):
        assert (np.diff(batch["worker"]) >= 0).all(), "in the order of workers"
        assert (self.network.updates - torch.as_tensor(batch["pulled"]) <= 2).all()
        time.sleep(0.005)
        self.network.updates += 1
        return {"rows": len(batch["worker"])}

    def state_dict(self):
        return self.network.state_dict()

    def load_state_dict(self, state):
        self.network.load_state_dict(state)


class NeverPulls(Sends):
    """A Sends that never requests weights."""

    def run(self, steps):
        for _ in range(30):
            self.group.send_experience({"pulled": np.zeros(1), "worker": np.zeros(1)})


class SingleProcessAgent:
    """An agent for one process, which imports nothing of the arena."""

    horizon = 16

    def __init__(self, observation_space, action_space, size):
        self.network = torch.nn.Linear(observation_space.shape[0], size)
        self.actions, self.epsilon, self.told = action_space.n, 1.0, False

    def act(self, observations, explore=True):
        if explore and self.epsilon < 0.9 and not self.told:
            self.told = True
            assert torch.allclose(self.network.bias, torch.full_like(self.network.bias, self.epsilon), atol=1e-6)
            print("the learner's numbers have come", flush=True)
        return np.random.randint(self.actions, size=len(observations))  # noqa: NPY002

    def learn(self, transitions):
        count = len(transitions["rewards"])
        assert 0 < count <= 2 * 3 * 16
        assert transitions["observations"].shape == transitions["next_observations"].shape == (count, 4)
        assert transitions["actions"].shape == (count,) and (transitions["rewards"] == 1).all()
        assert ((transitions["discounts"] == 0) | (transitions["discounts"] == 1)).all()
        moved = np.abs(transitions["next_observations"] - transitions["observations"]).max(1)
        assert (moved > 0).all() and moved.max() < 1.5, "these do not follow each other"
        self.epsilon *= 0.99
        torch.nn.init.constant_(self.network.bias, self.epsilon)
        return {"epsilon": self.epsilon}
