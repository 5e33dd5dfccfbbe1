"""Separate learners: cost of sampling, of an experience and of weights, age of the weights, and effect of ``max_lag``.

python -m benchmarks.learners sampling      two workers and a learner that only receives, beside bare acting
python -m benchmarks.learners experience    what a rollout costs on its way, beside a copy of its bytes
python -m benchmarks.learners weights       1 and 25 million parameters to four workers, beside a broadcast
python -m benchmarks.learners lag           200,000 transitions with a learner that is slow on purpose
python -m benchmarks.learners max_lag       PPO in place and apart, by max_lag, with a picture
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from arena.comms.ring_buffer import RingBuffer, ring_bytes
from arena.envs.interface import EntitySpaces
from arena.experience.rollout import Rollout
from arena.launch import mpirun
from arena.policies.loader import build
from arena.report.plots import new_figure, save_figure
from benchmarks.tools.observing import Observed, scratch

RECEIVING = f"{Path(__file__).parent / 'ours' / 'receiving.py'}"
FIGURES = Path(__file__).parent / "figures"
CARTPOLE = "gymnasium:CartPole-v1"
COPIES, CORES = 8, 2


def run(config: dict[str, Any]) -> tuple[dict[str, Any], dict[str, float], float]:
    """Run a configuration to its end; return the player's summary, its last metrics and steps per second.

    The first half of the time does not count: processes start then, and every update is reported.
    """
    with scratch("arena-learners-") as place:
        run = Observed(Path(place), {"records": {"plots": False}, **config})
        try:
            code = run.wait(300)
            assert code == 0, run.tail(40)
            rows = np.array(run.ask("SELECT time, max(steps) FROM metrics GROUP BY updates ORDER BY time"))
            metrics = dict(run.ask("SELECT name, value FROM metrics ORDER BY rowid"))
            summary = json.loads((run.directory / "summary.json").read_text("utf-8"))["players"]["p"]
        finally:
            run.end()
    late = rows[rows[:, 0] >= rows[0, 0] + 0.5 * (rows[-1, 0] - rows[0, 0])]
    return summary, metrics, float((late[-1, 1] - late[0, 1]) / (late[-1, 0] - late[0, 0]))


def apart(use: str, steps: int, workers: int, game: str = CARTPOLE, **policy: Any) -> dict[str, Any]:
    """Return a configuration of workers that step their own environments."""
    return {
        "steps": steps,
        "threads_per_rank": 1,
        "env": {"use": game, "num_envs": COPIES, "in_worker": True},
        "policies": {"p": {"use": use, **policy}},
        "matches": [{"seats": ["p"], "replicas": workers}],
    }


def bare(game: str, steps: int) -> float:
    """Return the transitions per second of a loop that only acts and steps."""
    envs = [gymnasium.make(game) for _ in range(COPIES)]
    entity = EntitySpaces("a", envs[0].observation_space, envs[0].action_space)
    policy = build(f"{RECEIVING}:OnlyReceives", entity, {}, lanes=COPIES, seed=0)
    seen = np.array([env.reset()[0] for env in envs], np.float32)
    began = time.perf_counter()
    for _ in range(steps // COPIES):
        actions = policy.act(seen, lanes=slice(0, COPIES), learning=True).actions
        for number, env in enumerate(envs):
            seen[number], _, terminated, truncated, _ = env.step(actions[number])
            if terminated or truncated:
                seen[number] = env.reset()[0]
    return steps / (time.perf_counter() - began)


def sampling() -> None:
    """Print the share of the cores that two workers use for acting: in a cheap and in an expensive environment."""
    for game, steps in (("MountainCar-v0", 3_000_000), ("Acrobot-v1", 500_000)):
        alone = max(bare(game, 100_000) for _ in range(3))
        use, settings = f"{RECEIVING}:OnlyReceives", {"horizon": 128}
        _, _, inside = run(apart(use, steps // 2, 1, f"gymnasium:{game}", settings=settings))
        _, metrics, speed = run(apart(use, steps, 2, f"gymnasium:{game}", learners=1, max_lag=4, settings=settings))
        print(f"{game}: a loop that acts and steps: {alone:,.0f} transitions/s; a worker in place: {inside:,.0f}")
        print(f"  two workers and a learner that only receives: {speed:,.0f} transitions/s")
        shares = f"{speed / alone / CORES:.2f} of the loop, {speed / inside / CORES:.2f} of the worker"
        print(f"  share of {CORES} cores: {shares}")
        print(f"  workers wait {metrics['wait/workers']:.1%} of the time")


def median(what: Callable[[], None]) -> float:
    """Return the microseconds of a call, the median of many."""
    turns = []
    for _ in range(40):
        began = time.perf_counter()
        what()
        turns.append(time.perf_counter() - began)
    return float(np.median(turns) * 1e6)


def travel(links: Sequence[RingBuffer], sent: Sequence[Rollout], joined: Rollout) -> None:
    """Send the rollouts of some workers, and join them side by side."""
    lane = 0
    for link, rollout in zip(links, sent, strict=True):
        link.post(0)
        assert link.posted() == 1
        joined.take_lanes(rollout, lane)
        lane += rollout.lanes


def copy(sent: Sequence[Rollout], places: Sequence[np.ndarray]) -> None:
    """Copy the bytes of rollouts."""
    for rollout, place in zip(sent, places, strict=True):
        np.copyto(place, rollout.buffer)


def experience() -> None:
    """Print the cost of a rollout between two processes of a machine, without the collecting."""
    extras = {"value": ((), np.float32), "log_prob": ((), np.float32)}
    vectors, images = spaces.Box(0, 1, (4,)), spaces.Box(0, 255, (84, 84, 4), np.uint8)
    for name, space, slots in (("vectors of 4", vectors, 16), ("images of 84x84x4", images, 64)):
        entity = EntitySpaces("a", space, spaces.Discrete(4))
        for workers in (1, 2):
            lanes = COPIES // workers
            size = Rollout(entity, extras, horizon=slots, lanes=lanes).buffer.nbytes
            links = [RingBuffer(size, 2, memoryview(bytearray(ring_bytes(size, 2) + 64))) for _ in range(workers)]
            sent = [Rollout(entity, extras, horizon=slots, lanes=lanes, memory=link.buffers[0]) for link in links]
            joined = Rollout(entity, extras, horizon=slots, lanes=COPIES)
            places = [np.empty_like(rollout.buffer) for rollout in sent]
            for _ in range(2):  # the first time, pages are touched
                ours, raw = median(partial(travel, links, sent, joined)), median(partial(copy, sent, places))
            told = f"{name}, {size * workers:,} bytes of {workers}: {ours:,.1f} us, a copy {raw:,.1f} us"
            print(f"{told}: {ours / raw:.2f}x")


def weights() -> None:
    """Print the time until four workers have loaded a published version."""
    for count in ("1e6", "25e6"):
        path = mpirun.find_mpirun()
        *line, _, _ = mpirun.command(path, 5, [])
        done = subprocess.run(
            [*line, "-m", "benchmarks.ours.publishing", count],
            env=mpirun.environment(path),
            capture_output=True,
            text=True,
            check=True,
        )
        ours, theirs = done.stdout.split()
        print(f"{float(count):,.0f} parameters to four workers: {ours} ms, a broadcast {theirs} ms")


def lag() -> None:
    """Print the maximum age of weights."""
    config = apart(f"{RECEIVING}:SlowLearner", 200_000, 2, learners=1, max_lag=4)
    summary, metrics, _ = run(config)
    counts = {name: int(metrics[f"experience/{name}"]) for name in ("sent", "learned", "dropped")}
    print(f"{summary['steps']:,} transitions, max_lag 4: greatest lag {metrics['lag/greatest']:.0f}, {counts}")


def max_lag() -> None:
    """Print and plot the speed of PPO in place and apart, and its returns."""
    steps, settings = 400_000, {"horizon": 128, "minibatches": 4, "epochs": 4}
    rows = [("in place", {})]
    rows += [(f"max_lag {k}", {"learners": 1, "max_lag": k}) for k in (0, 1, 2, 4)]
    found = []
    for name, policy in rows:
        summary, metrics, speed = run(apart("ppo", steps, 2, settings=settings, **policy))
        found.append((name, speed, float(metrics.get("lag/mean", 0.0)), summary["mean_return"]))
        print(f"{name}: {speed:,.0f} transitions/s, mean lag {found[-1][2]:.1f}, return {found[-1][3]:.0f}", flush=True)
    figure, (axes,) = new_figure(1, 1, (7.0, 2.6))
    axes.barh([row[0] for row in found][::-1], [row[1] / 1000 for row in found][::-1], color="steelblue")
    axes.set_xlabel("thousand transitions per second")
    axes.set_title("PPO on CartPole, two workers on two cores, in place and with a learner", loc="left")
    save_figure(figure, FIGURES / "learners_max_lag.png")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the requested measurement."""
    parts = {part.__name__: part for part in (sampling, experience, weights, lag, max_lag)}
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learners", description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="*", choices=[*parts], help="default: all of them")
    for name in parser.parse_args(argv).parts or parts:
        print(f"{name}:", flush=True)
        parts[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main())
