"""DQN in one file, written for one process (run this file). configs/single_file_dqn.yaml distributes it."""

import copy

import gymnasium as gym
import numpy as np
import torch
from torch import nn


class DQN:
    """Learns the value of every action from a replay, and explores less and less."""

    n_step, gamma = 3, 0.99

    def __init__(self, observation_space, action_space, rate=2e-3, capacity=100_000, explore_until=10_000, seed=None):
        size, self.actions = observation_space.shape[0], int(action_space.n)
        layers = nn.Linear(size, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, self.actions)
        self.network = nn.Sequential(*layers)
        self.target = copy.deepcopy(self.network)
        self.rate, self.optimizer = rate, torch.optim.Adam(self.network.parameters(), rate)
        self.random = np.random.default_rng(seed)
        self.seen, self.next = np.zeros((2, capacity, size), np.float32)
        self.action, (self.reward, self.discount) = np.zeros(capacity, np.int64), np.zeros((2, capacity), np.float32)
        self.explore_until, self.stored, self.updates, self.epsilon = explore_until, 0, 0, 1.0

    def act(self, observations, explore=True):
        """Return an action for each observation ``[N, size]``."""
        with torch.no_grad():
            best = self.network(torch.as_tensor(observations)).argmax(1).numpy()
        drawn = self.random.random(len(best)) < (self.epsilon if explore else 0.0)
        return np.where(drawn, self.random.integers(self.actions, size=len(best)), best)

    def set_progress(self, done):
        """Lower the learning rate, down to zero at the end."""
        self.optimizer.param_groups[0]["lr"] = self.rate * (1 - done)

    def learn(self, transitions):
        """Store transitions, and take a gradient step for every two of them."""
        places = (self.stored + np.arange(len(transitions["rewards"]))) % len(self.reward)
        self.seen[places], self.next[places] = transitions["observations"], transitions["next_observations"]
        self.action[places], self.reward[places] = transitions["actions"], transitions["rewards"]
        self.discount[places] = transitions["discounts"]
        self.stored += len(places)
        self.epsilon = max(0.02, 1 - self.stored / self.explore_until)
        losses = [0.0]
        while self.stored > 1_000 and 2 * self.updates < self.stored - 1_000:
            losses.append(self.step(self.random.integers(min(self.stored, len(self.reward)), size=64)))
        return {"loss": losses[-1], "epsilon": self.epsilon}

    def step(self, rows):
        """Take a gradient step on some rows; the target follows every 250."""
        columns = self.seen, self.next, self.action, self.reward, self.discount
        seen, after, action, reward, discount = (torch.from_numpy(column[rows]) for column in columns)
        with torch.no_grad():
            best = self.network(after).argmax(1, keepdim=True)
            goal = reward + discount * self.target(after).gather(1, best).squeeze(1)
        loss = nn.functional.smooth_l1_loss(self.network(seen).gather(1, action[:, None]).squeeze(1), goal)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.network.parameters(), 10.0)
        self.optimizer.step()
        self.updates += 1
        if self.updates % 250 == 0:
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
            one = {"observations": seen[None], "actions": action, "rewards": [reward], "next_observations": after[None]}
            agent.learn({**one, "discounts": [0.0 if terminated else DQN.gamma]})  # one step each
            seen, done, total = after, terminated or truncated, total + reward
        print(f"episode {episode}: {total:.0f}")
