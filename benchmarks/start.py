"""The start of a run: wall time, processor time and memory of a trivial run, with ranks forked and spawned.

``python -m benchmarks.start --ranks 3 61 --turns 3`` alternates both ways of starting. A run is PPO on CartPole in
matches of two ranks, for one rollout: what it costs is its start and its end. The first step is that of the match that
is last. Memory is the largest drop of the machine's available memory, so the machine should be otherwise idle.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

import yaml
from gymnasium.envs.classic_control import CartPoleEnv


class FirstStep(CartPoleEnv):
    """CartPole that leaves the time of its first step in a folder."""

    def __init__(self, place: str) -> None:
        super().__init__()
        self._place: Path | None = Path(place)

    def step(self, action):  # noqa: D102
        if self._place is not None:
            (self._place / f"first-{os.getpid()}").write_text(repr(time.time()), encoding="ascii")
            self._place = None
        return super().step(action)


class Figures(NamedTuple):
    """Cost of one run.

    Attributes:
      first_step: seconds from the command to the first step of the last match.
      wall: seconds from the command to the end of the run.
      processor: seconds of processor time of all processes.
      memory: peak in gigabytes, of all processes.
    """

    first_step: float
    wall: float
    processor: float
    memory: float


def available() -> float:
    """Return the available memory of the machine in gigabytes."""
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024 / 1e9
    raise RuntimeError("/proc/meminfo: expected a line MemAvailable")


def measure(ranks: int, start: str, timeout: float) -> Figures:
    """Start and end a trivial run.

    Raises:
      subprocess.CalledProcessError, subprocess.TimeoutExpired: it failed, or took longer than ``timeout`` seconds.
    """
    matches = (ranks - 1) // 2
    with tempfile.TemporaryDirectory(prefix="arena-benchmark-") as place:
        path = Path(place) / "config.yaml"
        config = {
            "name": "start",
            "run_root": place,
            "steps": 8 * matches,
            "records": {"plots": False, "tensorboard": False},
            "env": {"use": f"{Path(__file__).resolve()}:FirstStep", "settings": {"place": place}},
            "policies": {"learner": {"use": "ppo", "settings": {"horizon": 8, "minibatches": 1, "epochs": 1}}},
            "matches": [{"seats": ["learner"], "replicas": matches}],
        }
        path.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
        lowest, ended = [before := available()], threading.Event()

        def watch() -> None:
            while not ended.wait(0.1):
                lowest[0] = min(lowest[0], available())

        watcher = threading.Thread(target=watch)
        watcher.start()
        usage, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.time()
        try:
            line = [sys.executable, "-m", "arena.launch", str(path), "--start", start]
            subprocess.run(line, stdout=subprocess.DEVNULL, check=True, timeout=timeout)
        finally:
            wall = time.time() - began
            ended.set()
            watcher.join()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        processor = after.ru_utime + after.ru_stime - usage.ru_utime - usage.ru_stime
        first_steps = [float(file.read_text(encoding="ascii")) for file in Path(place).glob("first-*")]
        return Figures(max(first_steps) - began, wall, processor, before - lowest[0])


def main() -> None:
    """Print a table with the medians, and all wall times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[3, 11, 61, 151], help="odd numbers")
    parser.add_argument("--start", nargs="+", default=["spawn", "fork"])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds of one run, at most")
    args = parser.parse_args()
    print("| ranks | start | first step, s | wall, s | processor time, s | memory at the peak, GB | wall of each, s |")
    print("| ---: | --- | ---: | ---: | ---: | ---: | --- |")
    for ranks in args.ranks:
        figures: dict[str, list[Figures]] = {start: [] for start in args.start}
        for _ in range(args.turns):
            for start in args.start:
                figures[start].append(measure(ranks, start, args.timeout))
        for start, turns in figures.items():
            medians = [statistics.median(column) for column in zip(*turns, strict=True)]
            each = " ".join(f"{turn.wall:.1f}" for turn in turns)
            print(f"| {ranks} | {start} | {' | '.join(f'{median:.1f}' for median in medians)} | {each} |", flush=True)


if __name__ == "__main__":
    main()
