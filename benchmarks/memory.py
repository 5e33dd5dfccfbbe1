"""PPO with a memory beside sb3-contrib's RecurrentPPO, at equal settings: how well it plays in the end, and how fast.

``python -m benchmarks.memory --turns 3 --games masked_cartpole``; the nth turn of each has the nth seed. Tasks and
settings are in ``benchmarks.peers.recurrent``; returns and speed are read as in ``benchmarks.training``. The contestant
without memory shows whether a task needs one.
"""

import statistics
import sys
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.peers import recurrent as equal_settings
from benchmarks.tools.measuring import ROOT, Table, compare, conclude, measure, options, parse
from benchmarks.tools.running import run_arena, run_peer
from benchmarks.training import NEVER, WINDOW, noted

MEMORIES: dict[str, dict[str, int]] = {
    "arena: LSTM": {"lstm": equal_settings.WIDTH},
    "arena: GRU": {"gru": equal_settings.WIDTH},
    "arena: no memory": {},
}
PEER = "sb3-contrib: RecurrentPPO"


def arena(name: str, steps: int, memory: dict[str, int]) -> Callable[[int], Any]:
    """Return what trains by the arena on a root, an environment process and a worker."""
    game = equal_settings.GAMES[name]
    settings = {
        "hidden": [equal_settings.WIDTH, equal_settings.WIDTH],
        "learning_rate": equal_settings.RATE,
        "learning_rate_schedule": "linear" if game.falling else "constant",
        "horizon": equal_settings.HORIZON,
        "minibatches": equal_settings.COPIES * equal_settings.HORIZON // equal_settings.BATCH,
        "epochs": equal_settings.EPOCHS,
        "gamma": game.gamma,
        "gae_lambda": game.gae_lambda,
        "clip": equal_settings.CLIP,
        "value_coefficient": equal_settings.VALUE,
        "entropy_coefficient": game.entropy,
        "max_grad_norm": equal_settings.CUT,
        "normalize_observations": False,
        "normalize_rewards": False,
        **memory,
    }
    config = {
        "steps": steps,
        "env": {
            "use": f"{ROOT / 'benchmarks' / 'peers' / 'recurrent.py'}:noted_game",
            "settings": {"name": name},
            "num_envs": equal_settings.COPIES,
        },
        "policies": {"learner": {"use": "ppo", "settings": settings}},
        "matches": [{"seats": ["learner"]}],
    }
    return lambda seed: run_arena({**config, "seed": seed}, tells=False)


def compared(name: str, steps: int, only: Sequence[str], args: Any) -> Table:
    """Print what each came to on a task, with the returns of all seeds; compare speed."""
    works = {contestant: arena(name, steps, memory) for contestant, memory in MEMORIES.items()}
    works[PEER] = lambda seed: run_peer(args.peer_python, "recurrent", name, steps, seed, timeout=args.patience)
    contestants = {
        contestant: noted(work, NEVER)
        for contestant, work in works.items()
        if not only or any(word in contestant for word in only)
    }
    measured = measure(contestants, turns=args.turns, until=args.until)
    print(f"\n{name}, {steps:,} steps: mean return of the last {WINDOW} episodes")
    for contestant, found in measured.found.items():
        returns = [each["last return"] for each in found]
        if returns:
            told = "  ".join(f"{each:8.2f}" for each in returns)
            print(f"{contestant:<28} mean {statistics.fmean(returns):8.2f}   seeds: {told}")
    return compare(f"{name}: speed", measured, figure="steps/s", unit="transition steps per second")


def main(argv: Sequence[str] | None = None) -> int:
    """Run and return the exit code."""
    parser = options("memory", __doc__)
    parser.add_argument("--games", help="comma-separated, of " + ", ".join(equal_settings.GAMES))
    parser.add_argument("--steps", type=int, help="instead of each game's own budget")
    parser.add_argument("--only", help="comma-separated words: contestants whose name has one of them")
    args = parse(parser, argv)
    tables: list[Table] = []
    for name in (args.games or ("masked_cartpole" if args.quick else ",".join(equal_settings.GAMES))).split(","):
        steps = args.steps or (10_000 if args.quick else equal_settings.GAMES[name].steps)
        tables.append(compared(name, steps, args.only.split(",") if args.only else (), args))
    return conclude("memory", args, tables)


if __name__ == "__main__":
    sys.exit(main())
