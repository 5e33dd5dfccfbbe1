"""PPO with an LSTM by sb3-contrib: ``python -m benchmarks.peers.recurrent GAME STEPS SEED``; and what both are given.

8 copies, 128 steps, minibatches of 256, 4 epochs, Adam at 1e-3 (epsilon 1e-5), clip 0.2, value coefficient 0.5,
gradients cut at 0.5; an LSTM of 64 for the policy and one for the value, each on the observation, with two layers of 64
tanh units behind it. Discounts, entropy bonus and whether the learning rate stays are the game's. For
the tasks, the arena must be installed in the peer's interpreter too.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import gymnasium

from arena.envs.partially_observed import KeepElements, TMaze
from benchmarks.peers.games import Noted, make
from benchmarks.peers.output import run_as_program, write_figures

COPIES, HORIZON, BATCH, EPOCHS, WIDTH = 8, 128, 256, 4, 64
RATE, CLIP, VALUE, CUT = 1e-3, 0.2, 0.5, 0.5


class Game(NamedTuple):
    """A task: how to make it, discounts, steps, weight of the entropy bonus, whether the learning rate falls to 0."""

    make: Callable[[], gymnasium.Env]
    gamma: float
    gae_lambda: float
    steps: int
    entropy: float = 0.0
    falling: bool = False


GAMES = {
    "cartpole": Game(lambda: make("CartPole-v1"), 0.98, 0.9, 150_000),
    "masked_cartpole": Game(lambda: KeepElements(make("CartPole-v1"), [0, 2]), 0.98, 0.9, 150_000),
    "masked_lander": Game(lambda: KeepElements(make("LunarLander-v3"), [0, 1, 4, 6, 7]), 0.99, 0.95, 300_000),
    "t_maze": Game(lambda: TMaze(50), 0.98, 0.9, 300_000, entropy=0.03, falling=True),
}


def noted_game(name: str) -> gymnasium.Env:
    """Return a task that records its episodes."""
    return Noted(GAMES[name].make())


def main(name: str, steps: str, seed: str) -> None:
    """Train."""
    import torch
    from sb3_contrib import RecurrentPPO
    from stable_baselines3.common.vec_env import DummyVecEnv

    torch.set_num_threads(1)
    began = time.time()
    game = GAMES[name]
    RecurrentPPO(
        "MlpLstmPolicy",
        DummyVecEnv([partial(noted_game, name)] * COPIES),
        learning_rate=lambda left: RATE * left if game.falling else RATE,
        n_steps=HORIZON,
        batch_size=BATCH,
        n_epochs=EPOCHS,
        gamma=game.gamma,
        gae_lambda=game.gae_lambda,
        clip_range=CLIP,
        ent_coef=game.entropy,
        vf_coef=VALUE,
        max_grad_norm=CUT,
        policy_kwargs={"lstm_hidden_size": WIDTH, "net_arch": [WIDTH, WIDTH]},
        seed=int(seed),
        device="cpu",
    ).learn(int(steps) or game.steps)
    write_figures(**{"seconds with start-up": time.time() - began})


if __name__ == "__main__":
    run_as_program(main)
