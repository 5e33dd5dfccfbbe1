"""simple_tag with random actions: ``python -m benchmarks.peers.sampling_many PEER COPIES SECONDS``."""

import time
from collections.abc import Callable
from typing import Any

from benchmarks.peers.output import run_as_program, write_figures


class _Copy:
    """One copy of the game, restarted when it is over; a step is given as the number of prepared actions."""

    def __init__(self) -> None:
        from mpe2 import simple_tag_v3

        self.env = simple_tag_v3.parallel_env()
        self.env.reset(seed=0)
        self.actions = [{a: self.env.action_space(a).sample() for a in self.env.agents} for _ in range(64)]

    def step(self, number: int) -> Any:
        found = self.env.step(self.actions[number % 64])
        if not self.env.agents:
            self.env.reset()
        return found


def _in_process(copies: int) -> Callable[[int], Any]:
    envs = [_Copy() for _ in range(copies)]
    return lambda number: [env.step(number) for env in envs]


def _ray(copies: int) -> Callable[[int], Any]:
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    actors = [ray.remote(num_cpus=0)(_Copy).remote() for _ in range(copies)]
    return lambda number: ray.get([actor.step.remote(number) for actor in actors])


def main(peer: str, copies: str, seconds: str) -> None:
    """Warm up, then step for a while; four entities step at once."""
    step = {"in_process": _in_process, "ray": _ray}[peer](int(copies))
    for number in range(5):
        step(number)
    began, calls = time.perf_counter(), 0
    while time.perf_counter() - began < float(seconds):
        step(calls)
        calls += 1
    elapsed = time.perf_counter() - began
    write_figures(**{"steps/s": 4 * calls * int(copies) / elapsed, "us/call": elapsed / calls * 1e6})


if __name__ == "__main__":
    run_as_program(main)
