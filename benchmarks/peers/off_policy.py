"""Off-policy peers: ``python -m benchmarks.peers.off_policy LIBRARY TASK STEPS SEED``; and what all are given.

LIBRARY is ``sb3`` (Stable-Baselines3), ``sbx`` (its port to JAX, an update at a time) or ``sbx8`` (eight updates in one
compiled call after each eight steps). One copy, one core, one gradient step for each transition (DQN: two for each
four), replay of 100,000, learning rates of the libraries; speed is that of the steps after ``SETTLED``.
"""

import os
import time
from typing import NamedTuple

from benchmarks.peers.output import run_as_program, write_figures

SETTLED = 1500
"""Steps after which speed is measured: the warm-up is over, and what is compiled has been."""

WARMUP = 1000


class Task(NamedTuple):
    """A task: algorithm, environment, widths of the hidden layers, rows of a gradient step, steps."""

    algorithm: str
    env: str
    hidden: tuple[int, int]
    batch_size: int
    steps: int


TASKS = {
    "dqn 64x64": Task("dqn", "CartPole-v1", (64, 64), 64, 20_000),
    "sac 64x64": Task("sac", "Pendulum-v1", (64, 64), 256, 6_000),
    "discrete sac 128x128": Task("sac", "CartPole-v1", (128, 128), 256, 5_000),
    "td3 64x64": Task("td3", "Pendulum-v1", (64, 64), 256, 8_000),
    "sac 256x256": Task("sac", "HalfCheetah-v5", (256, 256), 256, 3_500),
}


def keep_to_one_core() -> None:
    """Pin this process to one core, before it loads a library that starts threads."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def main(library: str, name: str, steps: str, seed: str) -> None:
    """Train."""
    keep_to_one_core()
    if library == "sb3":
        import stable_baselines3 as module
    else:
        os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
        import sbx as module
    import torch
    from stable_baselines3.common.callbacks import BaseCallback

    torch.set_num_threads(1)
    task = TASKS[name]

    class Clock(BaseCallback):
        """Records the time at which the settled part began."""

        began = 0.0

        def _on_step(self) -> bool:
            if self.num_timesteps == SETTLED:
                self.began = time.perf_counter()
            return True

    settings: dict[str, object] = {"learning_starts": WARMUP, "buffer_size": 100_000, "batch_size": task.batch_size}
    settings |= {"train_freq": 4, "gradient_steps": 2} if task.algorithm == "dqn" else {}
    if library == "sbx8":
        settings |= {"train_freq": 16 if task.algorithm == "dqn" else 8, "gradient_steps": 8}
    if library == "sb3":
        settings |= {"device": "cpu"}
    model = getattr(module, task.algorithm.upper())(
        "MlpPolicy", task.env, policy_kwargs={"net_arch": list(task.hidden)}, seed=int(seed), **settings
    )
    clock = Clock()
    model.learn(int(steps), callback=clock)
    write_figures(**{"steps/s": (int(steps) - SETTLED) / (time.perf_counter() - clock.began)})


if __name__ == "__main__":
    run_as_program(main)
