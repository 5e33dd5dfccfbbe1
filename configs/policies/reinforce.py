"""REINFORCE (Williams, 1992): a policy with a custom loop, in under 30 lines."""

import numpy as np
import torch
from torch.distributions import Categorical
from torch.nn import Linear, Sequential, Tanh
from torch.nn.functional import layer_norm


class Reinforce:  # noqa: D101
    def __init__(self, env, group, learning_rate=1e-2, gamma=0.99, batch=500):
        self.env, self.group, self.gamma, self.batch = env, group, gamma, batch
        self.net = Sequential(Linear(*env.observation_space.shape, 64), Tanh(), Linear(64, env.action_space.n))
        self.adam = torch.optim.Adam(self.net.parameters(), learning_rate)
        group.broadcast(self.net)  # all workers start from the same weights
        self.state_dict, self.load_state_dict = self.net.state_dict, self.net.load_state_dict

    def act(self, observation):  # noqa: D102
        return Categorical(logits=self.net(torch.as_tensor(observation))).sample().numpy()

    def run(self, steps):  # noqa: D102
        while steps > 0:
            observations, actions, returns = [], [], []
            while len(returns) < self.batch:
                (observation, _), rewards, over = self.env.reset(), [], []
                while not any(over):
                    observations.append(observation)
                    actions.append(self.act(observation))
                    observation, reward, *over, _ = self.env.step(actions[-1])  # over: terminated, truncated
                    rewards.append(reward)
                for i in reversed(range(len(rewards) - 1)):
                    rewards[i] += self.gamma * rewards[i + 1]
                returns += rewards
            likely = Categorical(logits=self.net(torch.tensor(np.array(observations))))
            advantages = layer_norm(torch.tensor(returns), [len(returns)])
            self.adam.zero_grad()
            (-likely.log_prob(torch.tensor(np.array(actions))) * advantages).mean().backward()
            self.group.average_gradients(self.net, weight=len(returns))  # and so all workers learn together
            self.adam.step()
            steps -= len(returns)
