"""DQN in one file, written for one process: ``act`` and ``learn``, and no word of the arena.

python configs/policies/single_file_dqn.py        trains it on CartPole by itself; configs/single_file_dqn.yaml, apart
"""

import copy

import gymnasium as gym
import numpy as np
import torch
from torch import nn


class DQN:
    """Learns the value of every action from a replay, and explores less and less."""

    def __init__(self, observation_space, action_space, rate=1e-3, capacity=50_000, batch=128, explore_until=10_000):
        size, self.actions = observation_space.shape[0], int(action_space.n)
        self.network = nn.Sequential(
            nn.Linear(size, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, self.actions)
        )
        self.target = copy.deepcopy(self.network)
        self.optimizer = torch.optim.Adam(self.network.parameters(), rate)
        self.seen, self.next = np.zeros((2, capacity, size), np.float32)
        self.action, self.reward, self.over = (np.zeros(capacity, kind) for kind in (np.int64, np.float32, np.float32))
        self.rate, self.batch, self.explore_until = rate, batch, explore_until
        self.stored, self.updates, self.epsilon = 0, 0, 1.0

    def act(self, observations, explore=True):
        """Return an action for each observation ``[N, size]``."""
        with torch.no_grad():
            best = self.network(torch.as_tensor(observations)).argmax(1).numpy()
        drawn = np.random.rand(len(best)) < (self.epsilon if explore else 0.0)
        return np.where(drawn, np.random.randint(self.actions, size=len(best)), best)

    def set_progress(self, done):
        """Lower the learning rate, down to zero at the end."""
        self.optimizer.param_groups[0]["lr"] = self.rate * (1 - done)

    def learn(self, transitions):
        """Store transitions, and take a gradient step for every two of them."""
        count = len(transitions["rewards"])
        places = (self.stored + np.arange(count)) % len(self.reward)
        self.seen[places], self.next[places] = transitions["observations"], transitions["next_observations"]
        self.action[places], self.reward[places] = transitions["actions"], transitions["rewards"]
        self.over[places] = transitions["terminated"]
        before, self.stored = self.stored, self.stored + count
        self.epsilon = max(0.02, 1 - self.stored / self.explore_until)
        loss = 0.0
        for _ in range(self.stored // 2 - before // 2 if self.stored > 1_000 else 0):
            loss = self.step(np.random.randint(min(self.stored, len(self.reward)), size=self.batch))
        return {"loss": loss, "epsilon": self.epsilon}

    def step(self, rows):
        """Take a gradient step on some rows; the target follows every 100."""
        seen, after, action, reward, over = (
            torch.from_numpy(column[rows]) for column in (self.seen, self.next, self.action, self.reward, self.over)
        )
        with torch.no_grad():
            best = self.network(after).argmax(1, keepdim=True)
            goal = reward + 0.99 * (1 - over) * self.target(after).gather(1, best).squeeze(1)
        loss = nn.functional.smooth_l1_loss(self.network(seen).gather(1, action[:, None]).squeeze(1), goal)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.updates += 1
        if self.updates % 100 == 0:
            self.target.load_state_dict(self.network.state_dict())
        return loss.item()


if __name__ == "__main__":
    env = gym.make("CartPole-v1")
    agent = DQN(env.observation_space, env.action_space)
    for episode in range(300):
        (seen, _), done, total = env.reset(), False, 0.0
        while not done:
            action = agent.act(seen[None])
            after, reward, terminated, truncated, _ = env.step(action[0])
            agent.learn(
                dict(
                    observations=seen[None],
                    actions=action,
                    rewards=[reward],
                    next_observations=after[None],
                    terminated=[terminated],
                )
            )
            seen, done, total = after, terminated or truncated, total + reward
        print(f"episode {episode}: {total:.0f}")
