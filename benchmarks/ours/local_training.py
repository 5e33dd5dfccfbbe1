"""The arena's PPO in one process, without MPI: ``python -m benchmarks.ours.local_training GAME STEPS SEED``."""

import time
from functools import partial

import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from arena.envs.interface import EntitySpaces
from arena.policies.loader import build
from arena.policies.local import train
from benchmarks.peers import settings
from benchmarks.peers.games import training_game
from benchmarks.peers.output import run_as_program, write_figures

SETTINGS = {
    "learning_rate": settings.RATE,
    "learning_rate_schedule": "linear" if settings.FALLING else "constant",
    "horizon": settings.HORIZON,
    "minibatches": settings.COPIES * settings.HORIZON // settings.BATCH,
    "epochs": settings.EPOCHS,
    "gamma": settings.GAMMA,
    "gae_lambda": settings.LAMBDA,
    "clip": settings.CLIP,
    "value_coefficient": settings.VALUE,
    "max_grad_norm": settings.CUT,
    "normalize_observations": False,
    "normalize_rewards": False,
}
"""Settings of ``ppo`` that equal those of the peers."""


def main(game: str, steps: str, seed: str) -> None:
    """Train."""
    torch.set_num_threads(1)
    began = time.time()
    envs = SyncVectorEnv([partial(training_game, game)] * settings.COPIES, autoreset_mode=AutoresetMode.NEXT_STEP)
    spaces = EntitySpaces("entity", envs.single_observation_space, envs.single_action_space)
    train(build("ppo", spaces, SETTINGS, lanes=settings.COPIES, seed=int(seed)), envs, int(steps), seed=int(seed))
    write_figures(**{"seconds with start-up": time.time() - began})


if __name__ == "__main__":
    run_as_program(main)
