"""Microseconds of ``Player.act`` beside Stable-Baselines3's ``predict``, and what ``evaluate`` costs a training.

python -m benchmarks.from_python act
python -m benchmarks.from_python evaluate
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium

import arena
from arena.records.readers.run import open_records
from benchmarks.tools.trained import POLE, give_weights, make_run

ENVIRONMENTS = {"CartPole-v1": (300_000, 20_000, 10), "HalfCheetah-v5": (100_000, 10_000, 5)}
"""Environment -> steps of a training, steps between two evaluations, episodes of each."""


def microseconds(call: Callable[[], Any], calls: int) -> float:
    """Return the median duration of a call, over seven series of ``calls`` each."""
    for _ in range(200):
        call()
    series = []
    for _ in range(7):
        began = time.perf_counter()
        for _ in range(calls):
            call()
        series.append((time.perf_counter() - began) / calls * 1e6)
    return statistics.median(series)


def compare_act() -> None:
    """Print the duration of one action for one observation, with networks of two layers of 64, on one thread."""
    import torch
    from stable_baselines3 import PPO

    torch.set_num_threads(1)
    for name in ("CartPole-v1", "Pendulum-v1"):
        with tempfile.TemporaryDirectory() as root, closing(gymnasium.make(name)) as env:
            text = POLE.replace("CartPole-v1", name).replace("hidden: [8]", "hidden: [64, 64]")
            run = make_run(Path(root), text)
            give_weights(run, "blue", 1000)
            player, peer = arena.load(run.path), PPO("MlpPolicy", env, device="cpu")
            observation, _ = env.reset(seed=1)
            ours = microseconds(partial(player.act, observation), 3000)
            theirs = microseconds(partial(peer.predict, observation, deterministic=True), 1000)
            print(f"{name}: Player.act {ours:.1f} us, predict {theirs:.1f} us, {theirs / ours:.1f} times")


def compare_evaluate() -> None:
    """Print the speed of trainings of one worker with and without evaluations, on the cores of this machine."""
    for name, (steps, every, episodes) in ENVIRONMENTS.items():
        for label, section in (("without", None), ("with", {"every": every, "episodes": episodes})):
            with tempfile.TemporaryDirectory() as root:
                run = arena.train(
                    {
                        "name": label,
                        "run_root": root,
                        "steps": steps,
                        "env": {"use": f"gymnasium:{name}", "num_envs": 8},
                        "policies": {"learner": {"use": "ppo"}},
                        "matches": [{"seats": ["learner"]}],
                        "records": {"plots": False},
                        "evaluate": section,
                    },
                    progress=False,
                )
                with open_records(run.path / "arena.sqlite") as connection:
                    began, ended, first, last = connection.execute(
                        "SELECT min(time), max(time), min(steps), max(steps) FROM metrics"
                    ).fetchone()
                speed = (last - first) / (ended - began)
                print(
                    f"{name} {label} evaluate: {speed:,.0f} steps/s, {run.evaluations().rows} evaluations", flush=True
                )


def main() -> None:
    """Run the comparison that the command line names."""
    parser = argparse.ArgumentParser("python -m benchmarks.from_python", description=__doc__)
    parser.add_argument("comparison", choices=("act", "evaluate"))
    {"act": compare_act, "evaluate": compare_evaluate}[parser.parse_args().comparison]()


if __name__ == "__main__":
    main()
