"""The arena's off-policy algorithms in one process: ``python -m benchmarks.ours.off_policy TASK STEPS SEED``."""

import time

import gymnasium
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from benchmarks.peers.off_policy import SETTLED, TASKS, WARMUP, keep_to_one_core
from benchmarks.peers.output import run_as_program, write_figures


def main(name: str, steps: str, seed: str) -> None:
    """Train."""
    keep_to_one_core()
    import torch

    from arena.envs.interface import EntitySpaces
    from arena.policies.loader import build
    from arena.policies.local import train

    torch.set_num_threads(1)
    task = TASKS[name]
    settings = {"hidden": task.hidden, "batch_size": task.batch_size, "warmup": WARMUP, "capacity": 100_000}
    if task.algorithm == "dqn":
        settings |= {"ratio": 0.5, "n_step": 1, "target_every": 500}
    envs = SyncVectorEnv([lambda: gymnasium.make(task.env)], autoreset_mode=AutoresetMode.NEXT_STEP)
    spaces = EntitySpaces("entity", envs.single_observation_space, envs.single_action_space)
    marks: list[tuple[int, float]] = []

    def after_update(done: int, returns: list[float], metrics: dict[str, float]) -> bool:
        if done >= SETTLED:
            marks.append((done, time.perf_counter()))
        return False

    train(build(task.algorithm, spaces, settings, lanes=1, seed=int(seed)), envs, int(steps), seed=int(seed),
          after_update=after_update)  # fmt: skip
    (first, began), (last, ended) = marks[0], marks[-1]
    write_figures(**{"steps/s": (last - first) / (ended - began)})


if __name__ == "__main__":
    run_as_program(main)
