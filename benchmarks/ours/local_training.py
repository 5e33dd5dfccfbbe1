"""The arena's PPO in one process, without MPI: ``python -m benchmarks.ours.local_training GAME STEPS SEED``."""

import time
from functools import partial

import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from arena.envs.interface import EntitySpaces
from arena.policies.loader import build
from arena.policies.local import train
from benchmarks.peers import training as equal
from benchmarks.peers.games import training_game
from benchmarks.peers.telling import run_as_program, tell

SETTINGS = {
    "learning_rate": equal.RATE,
    "learning_rate_schedule": "linear",
    "horizon": equal.HORIZON,
    "minibatches": equal.COPIES * equal.HORIZON // equal.BATCH,
    "epochs": equal.EPOCHS,
    "gamma": equal.GAMMA,
    "gae_lambda": equal.LAMBDA,
    "clip": equal.CLIP,
    "value_coefficient": equal.VALUE,
    "max_grad_norm": equal.CUT,
}
"""What the peers are given, in the words of ``ppo``."""


def main(game: str, steps: str, seed: str) -> None:
    """Train."""
    torch.set_num_threads(1)
    began = time.time()
    envs = SyncVectorEnv([partial(training_game, game)] * equal.COPIES, autoreset_mode=AutoresetMode.NEXT_STEP)
    spaces = EntitySpaces("entity", envs.single_observation_space, envs.single_action_space)
    train(build("ppo", spaces, SETTINGS, lanes=equal.COPIES, seed=int(seed)), envs, int(steps), seed=int(seed))
    tell(**{"seconds with start-up": time.time() - began})


if __name__ == "__main__":
    run_as_program(main)
