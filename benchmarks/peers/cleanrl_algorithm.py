"""CleanRL's algorithm: PPO in one loop of plain torch, as its single file publishes it, rewritten for these settings.

CleanRL is no library to call (its files pin interpreters and packages of their own). What defines its speed is kept: a
synchronous vector environment, one torch forward pass for each step, advantages by a Python loop over torch rows, and
for each minibatch its own normalised advantages, autograd, ``clip_grad_norm_`` and ``torch.optim.Adam``.
"""

from collections.abc import Callable

import gymnasium
import numpy as np
import torch
from torch import nn

from benchmarks.peers import settings


def _layer(inputs: int, outputs: int, gain: float = 2**0.5) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


class Agent(nn.Module):
    """Separate perceptrons for actor and critic."""

    def __init__(self, inputs: int, actions: int) -> None:
        super().__init__()
        self.critic, self.actor = (
            nn.Sequential(_layer(inputs, 64), nn.Tanh(), _layer(64, 64), nn.Tanh(), _layer(64, outputs, gain))
            for outputs, gain in ((1, 1.0), (actions, 0.01))
        )

    def decide(self, seen: torch.Tensor, action: torch.Tensor | None = None) -> tuple[torch.Tensor, ...]:
        """Return actions, their log probabilities, entropies and values."""
        choice = torch.distributions.Categorical(logits=self.actor(seen))
        if action is None:
            action = choice.sample()
        return action, choice.log_prob(action), choice.entropy(), self.critic(seen).flatten()


def train(make: Callable[[], gymnasium.Env], steps: int, seed: int) -> None:
    """Train an agent on a vector observed and discrete actions."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    envs = gymnasium.vector.SyncVectorEnv([make] * settings.COPIES)
    width = int(np.prod(envs.single_observation_space.shape))
    agent = Agent(width, int(envs.single_action_space.n))
    optimizer = torch.optim.Adam(agent.parameters(), lr=settings.RATE, eps=1e-5)
    shape = (settings.HORIZON, settings.COPIES)
    seen = torch.zeros(*shape, width)
    actions, log_probs, rewards, dones, values = (torch.zeros(shape) for _ in range(5))
    observation = torch.as_tensor(envs.reset(seed=seed)[0])
    done = torch.zeros(settings.COPIES)
    updates = -(-steps // (settings.HORIZON * settings.COPIES))
    for update in range(updates):
        optimizer.param_groups[0]["lr"] = settings.RATE * (1 - update / updates)
        for t in range(settings.HORIZON):
            seen[t], dones[t] = observation, done
            with torch.no_grad():
                action, log_probs[t], _, values[t] = agent.decide(observation)
            actions[t] = action
            following, reward, terminated, truncated, _ = envs.step(action.numpy())
            rewards[t] = torch.as_tensor(reward)
            observation, done = torch.as_tensor(following), torch.as_tensor(terminated | truncated).float()
        advantages = _advantages(agent, observation, done, rewards, dones, values)
        _learn(agent, optimizer, random, seen.flatten(0, 1), actions, log_probs, advantages, values)
    envs.close()


def _advantages(
    agent: Agent,
    observation: torch.Tensor,
    done: torch.Tensor,
    rewards: torch.Tensor,
    dones: torch.Tensor,
    values: torch.Tensor,
) -> torch.Tensor:
    """Return generalised advantage estimates; a truncated episode counts as terminated."""
    with torch.no_grad():
        following = agent.critic(observation).flatten()
        found, carried = torch.zeros_like(rewards), torch.zeros(rewards.shape[1])
        for t in reversed(range(len(rewards))):
            going = 1 - done
            delta = rewards[t] + settings.GAMMA * following * going - values[t]
            found[t] = carried = delta + settings.GAMMA * settings.LAMBDA * going * carried
            following, done = values[t], dones[t]
        return found


def _learn(
    agent: Agent,
    optimizer: torch.optim.Optimizer,
    random: np.random.Generator,
    seen: torch.Tensor,
    actions: torch.Tensor,
    log_probs: torch.Tensor,
    advantages: torch.Tensor,
    values: torch.Tensor,
) -> None:
    actions, log_probs, advantages = actions.flatten(), log_probs.flatten(), advantages.flatten()
    returns = advantages + values.flatten()
    everything = np.arange(len(seen))
    for _ in range(settings.EPOCHS):
        random.shuffle(everything)
        for start in range(0, len(seen), settings.BATCH):
            part = everything[start : start + settings.BATCH]
            _, log_prob, entropy, value = agent.decide(seen[part], actions[part])
            ratio = (log_prob - log_probs[part]).exp()
            advantage = advantages[part]
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
            policy = torch.max(
                -advantage * ratio, -advantage * ratio.clamp(1 - settings.CLIP, 1 + settings.CLIP)
            ).mean()
            loss = policy - 0.0 * entropy.mean() + settings.VALUE * ((value - returns[part]) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), settings.CUT)
            optimizer.step()
