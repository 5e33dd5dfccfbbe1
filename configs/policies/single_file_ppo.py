"""PPO in one file, written for a plain ``gymnasium.vector.VectorEnv``: ``train`` imports nothing of the arena.

Schulman et al., 2017, https://arxiv.org/abs/1707.06347. An algorithm that was written like this runs behind the open
door as it stands; only the line with ``average_gradients`` is added where several workers are to learn together.
"""

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical


def layer(inputs: int, outputs: int, gain: float = 2**0.5) -> nn.Linear:
    """Return a linear layer with orthogonal weights and no bias at first."""
    linear = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(linear.weight, gain)
    nn.init.zeros_(linear.bias)
    return linear


class Agent(nn.Module):
    """Separate actor and critic."""

    def __init__(self, observations: int, actions: int) -> None:
        super().__init__()
        self.critic = nn.Sequential(
            layer(observations, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, 1, gain=1.0)
        )
        self.actor = nn.Sequential(
            layer(observations, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, actions, gain=0.01)
        )

    def decide(self, observation, action=None):
        """Return an action, its log probability, the distribution's entropy and the value."""
        choice = Categorical(logits=self.actor(observation))
        action = choice.sample() if action is None else action
        return action, choice.log_prob(action), choice.entropy(), self.critic(observation).squeeze(-1)


def train(
    envs, agent, optimizer, steps, average, *, length=128, gamma=0.98, lam=0.8, epochs=10, minibatches=4, clip=0.2
):
    """Train ``agent`` for ``steps`` environment steps on a vector environment with next-step autoreset."""
    shape = (length, envs.num_envs)
    observations = torch.zeros((*shape, *envs.single_observation_space.shape))
    actions, log_probs, rewards, values = (torch.zeros(shape) for _ in range(4))
    dones, resets = torch.zeros(shape), torch.zeros(shape)
    observation, _ = envs.reset()
    reset = torch.zeros(envs.num_envs)
    updates = max(1, steps // (length * envs.num_envs))
    rate = optimizer.param_groups[0]["lr"]
    for update in range(updates):
        optimizer.param_groups[0]["lr"] = rate * (1 - update / updates)
        for t in range(length):
            observations[t] = torch.as_tensor(observation)
            with torch.no_grad():
                actions[t], log_probs[t], _, values[t] = agent.decide(observations[t])
            observation, reward, terminated, truncated, _ = envs.step(actions[t].long().numpy())
            rewards[t] = torch.as_tensor(reward, dtype=torch.float32)
            # A step after the end of an episode only resets: it is no transition.
            resets[t], reset = reset, torch.as_tensor(terminated | truncated, dtype=torch.float32)
            dones[t] = torch.as_tensor(terminated, dtype=torch.float32)
        with torch.no_grad():
            following = agent.critic(torch.as_tensor(observation)).squeeze(-1)
        advantages, last = torch.zeros(shape), torch.zeros(envs.num_envs)
        for t in reversed(range(length)):
            after = following if t == length - 1 else values[t + 1]
            cut = 1 - (reset if t == length - 1 else resets[t + 1])
            last = rewards[t] + gamma * after * (1 - dones[t]) - values[t] + gamma * lam * cut * last
            advantages[t] = last
        returns = advantages + values
        real = (resets.flatten() == 0).nonzero().squeeze(-1).numpy()
        for _ in range(epochs):
            np.random.shuffle(real)  # noqa: NPY002
            for chosen in np.array_split(real, minibatches):
                _, log_prob, _, value = agent.decide(observations.flatten(0, 1)[chosen], actions.flatten()[chosen])
                advantage = advantages.flatten()[chosen]
                advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                ratio = (log_prob - log_probs.flatten()[chosen]).exp()
                policy_loss = -torch.min(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage).mean()
                value_loss = (value - returns.flatten()[chosen]).square().mean()
                optimizer.zero_grad()
                (policy_loss + 0.5 * value_loss).backward()
                average(agent, len(chosen))
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()


class SingleFilePPO:
    """Adapter of ``train`` to the arena."""

    def __init__(self, env, group, learning_rate=1e-3, **settings):
        """Build the agent; all workers start from the same weights."""
        self.env, self.group, self.settings = env, group, settings
        self.agent = Agent(env.single_observation_space.shape[0], int(env.single_action_space.n))
        group.broadcast(self.agent)
        self.optimizer = torch.optim.Adam(self.agent.parameters(), learning_rate, eps=1e-5)
        self.state_dict, self.load_state_dict = self.agent.state_dict, self.agent.load_state_dict

    def run(self, steps):
        """Train on the proxy as on any vector environment."""
        train(self.env, self.agent, self.optimizer, steps, self.group.average_gradients, **self.settings)

    def act(self, observations):
        """Return an action, after the budget is spent and in evaluations."""
        with torch.no_grad():
            return self.agent.decide(torch.as_tensor(observations))[0].numpy()
