"""A policy with a custom loop whose learner is another rank: REINFORCE (Williams, 1992) with a moving baseline."""

import numpy as np
import torch
from torch import nn


class Reinforce:
    """Plays episodes in ``run``, sends them, and learns from those of all workers in ``learn``."""

    def __init__(self, env, group, rate=5e-3, episodes=8):
        self.env, self.group, self.episodes = env, group, episodes
        size, actions = env.observation_space.shape[0], int(env.action_space.n)
        self.network = nn.Sequential(nn.Linear(size, 64), nn.Tanh(), nn.Linear(64, actions))
        self.optimizer = torch.optim.Adam(self.network.parameters(), rate)

    def run(self, steps):
        """Collect and send episodes (in a worker)."""
        done = 0
        while done < steps:
            self.group.pull_weights(self.network)
            batch = [self._episode() for _ in range(self.episodes)]
            self.group.send_experience({name: np.concatenate([one[name] for one in batch]) for name in batch[0]})
            done += sum(len(one["action"]) for one in batch)

    def _episode(self):
        (seen, _), over, rows = self.env.reset(), False, []
        while not over:
            action = int(self.act(seen[None])[0])
            after, reward, terminated, truncated, _ = self.env.step(action)
            rows.append((seen, action, reward))
            seen, over = after, terminated or truncated
        observation, action, reward = map(np.array, zip(*rows, strict=True))
        return {"observation": observation, "action": action, "return": np.cumsum(reward[::-1])[::-1]}

    def act(self, observations):
        """Draw an action for each observation."""
        with torch.no_grad():
            return torch.distributions.Categorical(logits=self.network(torch.as_tensor(observations))).sample().numpy()

    def learn(self, batch):
        """Take a gradient step on the episodes of all workers (in the learner)."""
        gain = torch.as_tensor(batch["return"].copy(), dtype=torch.float32)
        logits = self.network(torch.as_tensor(batch["observation"]))
        chosen = torch.distributions.Categorical(logits=logits).log_prob(torch.as_tensor(batch["action"]))
        loss = -(chosen * (gain - gain.mean()) / (gain.std() + 1e-6)).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return {"loss": loss.item()}

    def state_dict(self):
        """Return the tensors that checkpoints keep and that a learner publishes."""
        return self.network.state_dict()

    def load_state_dict(self, state):
        """Load the tensors of ``state_dict``."""
        self.network.load_state_dict(state)
