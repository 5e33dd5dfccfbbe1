"""Steps per second with random actions: ``python -m benchmarks.peers.sampling PEER ENVIRONMENT COPIES SECONDS``."""

import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.peers.games import make
from benchmarks.peers.output import run_as_program, write_figures

Step = Callable[[Any], int]
"""Function of the copies' actions that steps all of them, and returns the number of resets among the steps."""


def _gymnasium(name: str, copies: int, kind: str) -> tuple[Step, Any]:
    from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

    makers = [lambda: make(name)] * copies
    envs = SyncVectorEnv(makers) if kind == "sync" else AsyncVectorEnv(makers, shared_memory=True)
    envs.reset(seed=0)

    def step(actions: np.ndarray) -> int:
        _, _, terminated, truncated, _ = envs.step(actions)
        return int(np.count_nonzero(terminated | truncated))  # each is followed by a step that only resets

    return step, envs.single_action_space


def _in_process(name: str, copies: int) -> tuple[Step, Any]:
    envs = [make(name) for _ in range(copies)]
    for seed, env in enumerate(envs):
        env.reset(seed=seed)

    def step(actions: np.ndarray) -> int:
        for env, action in zip(envs, actions, strict=True):
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
        return 0

    return step, envs[0].action_space


def _stable_baselines(name: str, copies: int) -> tuple[Step, Any]:
    from stable_baselines3.common.vec_env import SubprocVecEnv

    envs = SubprocVecEnv([lambda: make(name)] * copies, start_method="fork")
    envs.reset()

    def step(actions: np.ndarray) -> int:
        envs.step(actions)
        return 0

    return step, envs.action_space


def _pufferlib(name: str, copies: int) -> tuple[Step, Any]:
    import pufferlib.emulation
    import pufferlib.vector

    def create(**_: Any) -> Any:
        return pufferlib.emulation.GymnasiumPufferEnv(env_creator=make, env_args=[name])

    envs = pufferlib.vector.make(create, backend=pufferlib.vector.Multiprocessing, num_envs=copies, num_workers=1)
    envs.reset(seed=0)

    def step(actions: np.ndarray) -> int:
        _, _, terminated, truncated, *_ = envs.step(actions)
        return int(np.count_nonzero(terminated | truncated))

    return step, envs.single_action_space


def _envpool(name: str, copies: int) -> tuple[Step, Any]:
    import envpool

    known = {"HalfCheetah-v5": "HalfCheetah-v4", "ALE/Pong-v5": "Pong-v5"}
    envs = envpool.make(known.get(name, name), env_type="gymnasium", num_envs=copies, num_threads=2)
    envs.reset()

    def step(actions: np.ndarray) -> int:
        _, _, terminated, truncated, _ = envs.step(actions)
        return int(np.count_nonzero(terminated | truncated))

    return step, envs.action_space


def _ray(name: str, copies: int) -> tuple[Step, Any]:
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)

    @ray.remote(num_cpus=0)
    class Actor:
        def __init__(self) -> None:
            self.env = make(name)
            self.env.reset()

        def step(self, action: Any) -> Any:
            found = self.env.step(action)
            return (self.env.reset()[0], *found[1:]) if found[2] or found[3] else found

    actors = [Actor.remote() for _ in range(copies)]

    def step(actions: np.ndarray) -> int:
        ray.get([actor.step.remote(action) for actor, action in zip(actors, actions, strict=True)])
        return 0

    return step, make(name).action_space


PEERS: dict[str, Callable[[str, int], tuple[Step, Any]]] = {
    "in_process": _in_process,
    "sync": lambda name, copies: _gymnasium(name, copies, "sync"),
    "async": lambda name, copies: _gymnasium(name, copies, "async"),
    "sb3_subproc": _stable_baselines,
    "pufferlib": _pufferlib,
    "envpool": _envpool,
    "ray": _ray,
}


def main(peer: str, name: str, copies: str, seconds: str) -> None:
    """Step for a while, the first fifth of it to warm up."""
    count = int(copies)
    step, space = PEERS[peer](name, count)
    space.seed(0)
    actions = [np.array([space.sample() for _ in range(count)]) for _ in range(64)]
    warm_up, duration = float(seconds) * 0.2, float(seconds) * 0.8
    taken, began = 0, 0.0
    start = time.perf_counter()
    calls = 0
    while True:
        resets = step(actions[calls % len(actions)])
        calls += 1
        now = time.perf_counter()
        if began:
            taken += count - resets
            if now - began > duration:
                break
        elif now - start > warm_up:
            began = now
    write_figures(**{"steps/s": taken / (now - began), "us/call": (now - began) / max(1, taken) * count * 1e6})


if __name__ == "__main__":
    run_as_program(main)
    sys.stdout.flush()
    os._exit(0)  # the measuring process ends the workers: PufferLib's spin, and an ordinary exit would wait for them
