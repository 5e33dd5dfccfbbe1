"""PPO with equal settings: training speed, time until a good return, and final return.

``python -m benchmarks.training``, ``--games CartPole-v1 --steps 150000`` for a part of it. The nth run of each
contestant has the nth seed, and fast contestants run more often than slow ones. Speed, time and return are those that
the environments record (``peers.games.Noted``), from the first reset to the last episode's end. Start-up is left out
for every contestant; it stands in the notes.
"""

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.ours.local_training import SETTINGS
from benchmarks.peers.games import EPISODES
from benchmarks.peers.settings import COPIES, NAMED
from benchmarks.tools.measuring import (
    ROOT,
    Contestant,
    Figures,
    MissingPeerError,
    Table,
    compare,
    conclude,
    measure,
    options,
    parse,
)
from benchmarks.tools.running import run, run_arena, run_peer

WINDOW = 100
"""Episodes that a mean return is taken over."""

NEVER = float("inf")
GAMES = {
    "CartPole-v1": (150_000, 475.0),
    "LunarLander-v3": (150_000, 200.0),
    "HalfCheetah-v5": (150_000, 1000.0),
    "pong": (20_000, 0.0),
}
"""Steps and the mean return to reach; Pong's budget shows speed, not play."""

PEERS = {
    "Stable-Baselines3, in process": "sb3",
    "Stable-Baselines3, subprocesses": "sb3_subproc",
    "Stable-Baselines3, two threads": "sb3_threads",
    "CleanRL's algorithm": "cleanrl",
    "Sample Factory": "sample_factory",
    "RLlib": "rllib",
}


class Episode(NamedTuple):
    """An episode: when it ended, its steps and its return."""

    time: float
    steps: int
    reward: float


def figures(lines: Sequence[str], threshold: float) -> Figures:
    """Return the figures of a training run, from the notes of its environments."""
    words = [line.split() for line in lines]
    began = min(float(word[0]) for word in words if word[1] == "start")
    episodes = sorted(Episode(float(word[0]), int(word[1]), float(word[2])) for word in words if word[1] != "start")
    if not episodes:
        raise MissingPeerError("no episode was over")
    total, steps, reached, needed = 0.0, 0, NEVER, NEVER
    for index, episode in enumerate(episodes):
        steps += episode.steps
        total += episode.reward - (episodes[index - WINDOW].reward if index >= WINDOW else 0.0)
        if reached == NEVER and index >= WINDOW - 1 and total / WINDOW >= threshold:
            reached, needed = episode.time - began, steps
    return {
        "steps/s": steps / (episodes[-1].time - began),
        "seconds to threshold": reached,
        "steps to threshold": needed,
        "last return": statistics.fmean(episode.reward for episode in episodes[-WINDOW:]),
    }


def noted(work: Callable[[int], Any], threshold: float) -> Contestant:
    """Return a turn: ``work`` trains with the given seed, and the environments record their episodes."""
    seeds = count(1)

    def turn() -> Figures:
        with tempfile.TemporaryDirectory(prefix="arena-benchmark-") as place:
            notes = Path(place) / "episodes"
            os.environ[EPISODES] = str(notes)
            began = time.time()
            told = work(next(seeds))
            whole = time.time() - began
            if not notes.is_file():
                raise MissingPeerError("it never reset an environment")
            return {
                **figures(notes.read_text("utf-8").splitlines(), threshold),
                "seconds with start-up": whole,
                "versions": told.get("versions", ""),
            }

    return turn


def arena(game: str, steps: int, matches: int | str, *, in_worker: bool = False) -> Callable[[int], Any]:
    """Return what trains by the arena: a root and, for each match, a worker and its environment process, or its own.

    Workers share the copies and every minibatch: together they do what one does.
    """
    config = {
        "steps": steps,
        "env": {
            "use": f"{ROOT / 'benchmarks' / 'peers' / 'games.py'}:training_game",
            "settings": {"name": game},
            "copies": COPIES,
            "in_worker": in_worker,
        },
        "policies": {"learner": {"use": "ppo", "settings": SETTINGS}},
        "matches": [{"seats": ["learner"], "replicas": matches}],
    }
    return lambda seed: run_arena({**config, "seed": seed}, tells=False)


def training(game: str, steps: int, threshold: float, args: Any) -> list[Table]:
    """Compare speed, return, and time until the threshold; all come from the same runs."""
    works: dict[str, Callable[[int], Any]] = {
        "arena: replicas: cores, in_worker": arena(game, steps, "cores", in_worker=True),
        "arena: 1 environment process, 1 worker": arena(game, steps, 1),
        "arena: 2 environment processes, 2 workers": arena(game, steps, 2),
        "arena: one process": lambda seed: run(
            [sys.executable, "-m", "benchmarks.ours.local_training", game, str(steps), str(seed)]
        ),
    }
    for name, peer in PEERS.items():
        if args.defaults and not peer.startswith("sb3"):
            continue
        if peer == "sb3_threads" and game != "pong":
            continue  # small networks are faster with one thread
        if peer != "cleanrl" or game != "pong":  # its loop for screens is another file
            works[name] = lambda seed, peer=peer: run_peer(
                args.peer_python, "training", peer, game, steps, seed, timeout=args.patience
            )
    chosen = args.only.split(",") if args.only else []
    contestants = {
        name: noted(work, threshold)
        for name, work in works.items()
        if not chosen or any(part.strip() in name for part in chosen)
    }
    measured = measure(contestants, turns=args.turns, until=args.until, same_work=True)
    title = f"PPO on {game}, {steps:,} steps{', the defaults of Stable-Baselines3' if args.defaults else ''}"
    tables = [
        compare(f"{title}: speed", measured, figure="steps/s", unit="transition steps per second"),
        compare(f"{title}: mean return of the last {WINDOW} episodes", measured, figure="last return", unit="return"),
    ]
    if any(each["seconds to threshold"] < NEVER for found in measured.found.values() for each in found):
        until = f"until a mean return of {threshold:g} over {WINDOW} episodes"
        tables.append(
            compare(
                f"{title}: {until}", measured, figure="seconds to threshold", unit="seconds", higher_is_better=False
            )
        )
    return tables


def main(argv: Sequence[str] | None = None) -> int:
    """Run and return the exit code."""
    parser = options("training", __doc__)
    parser.add_argument("--games", help="comma-separated, of " + ", ".join(GAMES))
    parser.add_argument("--only", help="comma-separated parts of contestants' names (default: all)")
    parser.add_argument(
        "--defaults",
        action="store_true",
        help="train with the defaults of Stable-Baselines3: 2,048 steps of eight copies, minibatches of 64, ten epochs",
    )
    parser.add_argument("--steps", type=int, help="instead of each game's own budget")
    args = parse(parser, argv)
    if args.defaults and os.environ.get(NAMED) != "sb3":
        os.environ[NAMED] = "sb3"  # read when the settings are imported
        os.execv(sys.executable, [sys.executable, "-m", "benchmarks.training", *(argv or sys.argv[1:])])
    tables: list[Table] = []
    for game in (args.games or ("CartPole-v1" if args.quick else ",".join(GAMES))).split(","):
        steps, threshold = GAMES[game]
        tables += training(game, args.steps or (20_000 if args.quick else steps), threshold, args)
    return conclude("training", args, tables)


if __name__ == "__main__":
    sys.exit(main())
