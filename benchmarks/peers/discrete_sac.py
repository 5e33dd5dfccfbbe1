"""SAC on discrete actions in eager torch: ``python -m benchmarks.peers.discrete_sac eager TASK STEPS SEED``.

The losses, optimizers and order of computation are those of CleanRL's ``sac_atari.py``, with perceptrons in place of
convolutions: no library that is measured elsewhere has this algorithm. One copy, one core, one gradient step for each
transition. As in the arena, targets follow in each gradient step; CleanRL copies them every 8,000 steps, which makes no
difference to the speed that can be measured.
"""

import time

import gymnasium
import numpy as np

from benchmarks.peers.off_policy import SETTLED, TASKS, WARMUP, keep_to_one_core
from benchmarks.peers.output import run_as_program, write_figures

CAPACITY, GAMMA, FOLLOWS, RATE = 100_000, 0.99, 0.005, 3e-4


def main(library: str, name: str, steps: str, seed: str) -> None:
    """Train."""
    keep_to_one_core()
    import torch
    from torch import nn
    from torch.nn import functional

    torch.set_num_threads(1)
    torch.manual_seed(int(seed))
    task = TASKS[name]
    env = gymnasium.make(task.env)
    inputs, actions = int(np.prod(env.observation_space.shape)), int(env.action_space.n)

    def network() -> nn.Module:
        first, second = task.hidden
        layers = nn.Linear(inputs, first), nn.ReLU(), nn.Linear(first, second), nn.ReLU(), nn.Linear(second, actions)
        return nn.Sequential(*layers)

    actor, critics, targets = network(), [network(), network()], [network(), network()]
    for critic, target in zip(critics, targets, strict=True):
        target.load_state_dict(critic.state_dict())
    of_critics = torch.optim.Adam([p for critic in critics for p in critic.parameters()], lr=RATE, eps=1e-4)
    of_actor = torch.optim.Adam(actor.parameters(), lr=RATE, eps=1e-4)
    log_alpha = torch.zeros(1, requires_grad=True)
    of_alpha = torch.optim.Adam([log_alpha], lr=RATE, eps=1e-4)
    goal = 0.5 * float(np.log(actions))

    seen, following = (np.empty((CAPACITY, inputs), np.float32) for _ in range(2))
    taken, paid, ended = np.empty(CAPACITY, np.int64), np.empty(CAPACITY, np.float32), np.empty(CAPACITY, np.float32)
    draws = np.random.default_rng(int(seed))

    def learn(held: int) -> None:
        rows = draws.integers(0, held, task.batch_size)
        before, after = torch.from_numpy(seen[rows]), torch.from_numpy(following[rows])
        with torch.no_grad():
            log_p = functional.log_softmax(actor(after), 1)
            lower = torch.min(*(target(after) for target in targets))
            value = (log_p.exp() * (lower - log_alpha.exp() * log_p)).sum(1)
            y = torch.from_numpy(paid[rows]) + (1 - torch.from_numpy(ended[rows])) * GAMMA * value
        choice = torch.from_numpy(taken[rows])[:, None]
        losses = [functional.mse_loss(critic(before).gather(1, choice).view(-1), y) for critic in critics]
        of_critics.zero_grad()
        sum(losses).backward()
        of_critics.step()
        log_p = functional.log_softmax(actor(before), 1)
        with torch.no_grad():
            lower = torch.min(*(critic(before) for critic in critics))
        of_actor.zero_grad()
        (log_p.exp() * (log_alpha.exp().detach() * log_p - lower)).sum(1).mean().backward()
        of_actor.step()
        of_alpha.zero_grad()
        (log_p.exp().detach() * (-log_alpha.exp() * (log_p.detach() + goal))).sum(1).mean().backward()
        of_alpha.step()
        with torch.no_grad():
            for critic, target in zip(critics, targets, strict=True):
                for own, behind in zip(critic.parameters(), target.parameters(), strict=True):
                    behind.copy_(FOLLOWS * own + (1 - FOLLOWS) * behind)

    observation, _ = env.reset(seed=int(seed))
    began = 0.0
    for step in range(int(steps)):
        if step == SETTLED:
            began = time.perf_counter()
        if step < WARMUP:
            action = int(draws.integers(actions))
        else:
            with torch.no_grad():
                logits = actor(torch.from_numpy(observation)[None])
                action = int(torch.distributions.Categorical(logits=logits).sample())
        after, reward, terminated, truncated, _ = env.step(action)
        seen[step], following[step], taken[step], paid[step], ended[step] = (
            observation,
            after,
            action,
            reward,
            terminated,
        )
        observation = env.reset()[0] if terminated or truncated else after
        if step >= WARMUP:
            learn(step + 1)
    write_figures(**{"steps/s": (int(steps) - SETTLED) / (time.perf_counter() - began)})


if __name__ == "__main__":
    run_as_program(main)
