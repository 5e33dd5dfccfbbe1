"""Returns that algorithms reach by their defaults: ``python -m benchmarks.defaults ppo,dqn,sac,td3 --seeds 1-3``.

For each task and number of copies, over the seeds: the mean return of the last 100 training episodes, and that of ten
episodes with the likeliest actions afterwards, seed by seed; beside it Stable-Baselines3 with its own defaults and one
copy, as its documentation starts it. ``--set KEY=VALUE`` changes a setting of the policy: ``--set epochs=4`` is how two
defaults are compared. ``--normalized`` normalises observations and rewards, beside ``VecNormalize`` and as many copies
of the peer. ``--threshold 475`` adds the seconds until the last 100 episodes first returned as much on
average, counted from the start of the first rank (there: of ``learn``).
"""

import argparse
import sqlite3
import statistics
import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from benchmarks.learning import WINDOW, evaluated, read_curve, seeds, train, wall_seconds
from benchmarks.tools.measuring import MissingPeerError
from benchmarks.tools.running import run_peer

EPISODES = """
    SELECT e.ended_at - (SELECT min(started) FROM runs), avg(x.return)
    FROM episodes e JOIN episode_entities x ON x.episode = e.id
    WHERE e.cause IS NULL GROUP BY e.id ORDER BY e.ended_at
"""


class Task(NamedTuple):
    """An environment, and how long it is learned.

    Attributes:
      use: the environment.
      steps: budget.
      copies: numbers of copies to try.
      seat: entities of the one seat.
    """

    use: str
    steps: int
    copies: tuple[int, ...] = (8,)
    seat: int = 1


def _gymnasium(name: str, steps: int, copies: tuple[int, ...] = (8,)) -> Task:
    return Task(f"gymnasium:{name}", steps, copies)


TASKS: dict[str, dict[str, Task]] = {
    "ppo": {
        "CartPole 100k": _gymnasium("CartPole-v1", 100_000, (1, 8, 32)),
        "CartPole 400k": _gymnasium("CartPole-v1", 400_000),
        "Acrobot 100k": _gymnasium("Acrobot-v1", 100_000, (1, 8, 32)),
        "Pendulum 100k": _gymnasium("Pendulum-v1", 100_000),
        "LunarLander 300k": _gymnasium("LunarLander-v3", 300_000, (1, 8, 32)),
        "HalfCheetah 300k": _gymnasium("HalfCheetah-v5", 300_000, (1, 8, 32)),
        "Hopper 300k": _gymnasium("Hopper-v5", 300_000),
        "simple_spread 300k": Task("pettingzoo:mpe2.simple_spread_v3", 300_000, (8,), 3),
    },
    "dqn": {
        "CartPole 50k": _gymnasium("CartPole-v1", 50_000),
        "Acrobot 50k": _gymnasium("Acrobot-v1", 50_000),
        "LunarLander 100k": _gymnasium("LunarLander-v3", 100_000),
    },
    **{
        name: {
            "InvertedPendulum 20k": _gymnasium("InvertedPendulum-v5", 20_000, (1,)),
            "Pendulum 10k": _gymnasium("Pendulum-v1", 10_000, (1,)),
            "Hopper 30k": _gymnasium("Hopper-v5", 30_000, (1,)),
        }
        for name in ("sac", "td3")
    },
}
TASKS["sac"] |= {"CartPole 50k": _gymnasium("CartPole-v1", 50_000), "Acrobot 50k": _gymnasium("Acrobot-v1", 50_000)}
TASKS["ppo"] |= {"simple_spread 600k": Task("pettingzoo:mpe2.simple_spread_v3", 600_000, (8,), 3)}


class Outcome(NamedTuple):
    """Result of one run.

    Attributes:
      last: mean return of the last 100 training episodes.
      greedy: mean return with the likeliest actions.
      speed: steps per second, without the start of the ranks.
      reached: seconds to the threshold; infinite where it is not reached.
    """

    last: float
    greedy: float
    speed: float
    reached: float


def config_of(algorithm: str, task: Task, copies: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration that leaves all but the task at its default."""
    return {
        "steps": task.steps,
        "env": {"use": task.use, "num_envs": copies},
        "policies": {"p": {"use": algorithm, "settings": settings}},
        "matches": [{"seats": ["p" if task.seat == 1 else ["p"] * task.seat]}],
        "records": {"tensorboard": False},
    }


def seconds_to(threshold: float, episodes: Iterable[tuple[float, float]]) -> float:
    """Return the time at which the last ``WINDOW`` episodes first reached a mean return; infinity if never."""
    returns: list[float] = []
    for time, value in episodes:
        returns.append(value)
        if len(returns) >= WINDOW and statistics.fmean(returns[-WINDOW:]) >= threshold:
            return time
    return float("inf")


def train_arena(config: dict[str, Any], seed: int, episodes: int, threshold: float) -> Outcome:
    """Train by the arena, and evaluate."""
    with tempfile.TemporaryDirectory(prefix="arena-defaults-") as scratch:
        place = Path(scratch)
        path = place / "config.yaml"
        path.write_text(yaml.safe_dump({**config, "seed": seed, "name": "run", "run_root": scratch}), encoding="utf-8")
        train(path, (), place / "log")
        records = place / "run" / "arena.sqlite"
        last = read_curve(records, "p").last()
        assert last is not None
        with closing(sqlite3.connect(f"file:{records}?mode=ro", uri=True)) as connection:
            reached = seconds_to(threshold, connection.execute(EPISODES))
        speed = config["steps"] / wall_seconds(records)
        return Outcome(last, evaluated(place / "run", "p", episodes), speed, reached)


def train_peer(
    algorithm: str, task: Task, seed: int, episodes: int, threshold: float, *, copies: int = 1, normalized: bool = False
) -> Outcome:
    """Train by Stable-Baselines3.

    Raises:
      MissingPeerError: it is not installed.
    """
    name = task.use.removeprefix("gymnasium:")
    form = ["normalized"] if normalized else []
    arguments = algorithm, name, task.steps, seed, episodes, copies, *form
    figures = run_peer([sys.executable], "defaults", *arguments, timeout=3600)
    reached = seconds_to(threshold, zip(figures["times"], figures["returns"], strict=True))
    return Outcome(statistics.fmean(figures["returns"][-WINDOW:]), figures["greedy"], figures["steps/s"], reached)


def _line(title: str, outcomes: Sequence[Outcome]) -> str:
    last, greedy, speed, reached = zip(*outcomes, strict=True)
    of_seeds = ", ".join(f"{value:,.0f}" for value in greedy)
    seconds = statistics.median(reached)
    return (
        f"{title:<42} {statistics.fmean(last):>10,.1f} {statistics.fmean(greedy):>10,.1f}  {of_seeds:<28}"
        f"{statistics.median(speed):>9,.0f}{f'{seconds:>9.1f} s' if seconds < float('inf') else ''}"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print a line for each task and number of copies, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.defaults", description=__doc__.partition("\n")[0])
    parser.add_argument("algorithms", help="comma-separated, of " + ", ".join(TASKS))
    parser.add_argument("--tasks", help="beginnings of tasks' names, comma-separated")
    parser.add_argument("--copies", help="comma-separated; default: those of the task")
    parser.add_argument("--seeds", type=seeds, default=[1, 2, 3], metavar="1-3")
    parser.add_argument("--steps", type=int, help="budget in place of the tasks' own")
    parser.add_argument("--episodes", type=int, default=10, help="to evaluate with likeliest actions")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the policy")
    parser.add_argument("--normalized", action="store_true", help="normalise observations, and ppo's rewards")
    parser.add_argument("--threshold", type=float, default=float("inf"), help="mean return to time")
    parser.add_argument("--only", choices=("arena", "peer"), help="the arena alone, or Stable-Baselines3 alone")
    args = parser.parse_args(argv)
    settings = {name: yaml.safe_load(value) for name, _, value in (word.partition("=") for word in args.set)}
    if args.normalized:
        settings["normalize_observations"] = True
    print(f"{'task, copies':<42} {'last 100':>10} {'greedy':>10}  {'greedy of each seed':<28}{'steps/s':>9}")
    for algorithm in args.algorithms.split(","):
        own = {**settings, "normalize_rewards": True} if args.normalized and algorithm == "ppo" else settings
        for name, task in TASKS[algorithm].items():
            if args.tasks and not name.lower().startswith(tuple(args.tasks.lower().split(","))):
                continue
            task = task if args.steps is None else task._replace(steps=args.steps)
            numbers = task.copies if args.copies is None else [int(word) for word in args.copies.split(",")]
            for copies in () if args.only == "peer" else numbers:
                config = config_of(algorithm, task, copies, own)
                outcomes = [train_arena(config, seed, args.episodes, args.threshold) for seed in args.seeds]
                print(_line(f"{algorithm} {name}, {copies}", outcomes), flush=True)
            if args.only == "arena" or not task.use.startswith("gymnasium:"):
                continue
            try:
                for copies in numbers if args.normalized else [1]:
                    form = {"copies": copies, "normalized": args.normalized}
                    outcomes = [
                        train_peer(algorithm, task, seed, args.episodes, args.threshold, **form) for seed in args.seeds
                    ]
                    print(_line(f"Stable-Baselines3 {algorithm} {name}, {copies}", outcomes), flush=True)
            except MissingPeerError as reason:
                print(f"Stable-Baselines3 {algorithm} {name}: {reason}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
