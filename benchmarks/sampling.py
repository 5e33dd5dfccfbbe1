"""Transition steps per second with random actions, compared with every other library that steps many copies.

``python -m benchmarks.sampling``, ``--games CartPole-v1 --copies 1,8,64`` for a part of it. The arena's environment
process and the worker that samples are two processes on two cores; so are most peers and the environments behind them.
With two environment processes and two workers, which take turns, both cores step environments; so do two workers that
have their environments in them.
Steps that only reset are not counted, for any contestant.
"""

import sys
from collections.abc import Sequence
from typing import Any

from benchmarks.tools.measuring import ROOT, Contestant, Table, compete, conclude, options, parse
from benchmarks.tools.running import run_arena, run_peer

PLAYERS = ROOT / "benchmarks" / "ours" / "players.py"
PEERS = {
    "one process, no transport": "in_process",
    "Gymnasium SyncVectorEnv (one process)": "sync",
    "Gymnasium AsyncVectorEnv": "async",
    "Stable-Baselines3 SubprocVecEnv": "sb3_subproc",
    "PufferLib vector, one worker": "pufferlib",
    "EnvPool (C++ environments)": "envpool",
    "Ray actors": "ray",
}
# A guess at each game's steps per second in one process: how long a turn of ours has to be to last some seconds.
GAMES = {
    "CartPole-v1": 60_000,
    "Acrobot-v1": 20_000,
    "ALE/Pong-v5": 3_000,
    "HalfCheetah-v5": 8_000,
    "simple_tag": 2_000,
}


def arena(
    game: str,
    copies: int,
    player: str,
    seconds: float,
    *,
    batches: int | None = None,
    processes: int = 1,
    in_worker: bool = False,
) -> Contestant:
    """Return a turn of the arena."""
    entities = 4 if game == "simple_tag" else 1
    lanes = copies / (batches or 1)
    exchanges = max(20, int(seconds * GAMES[game] / lanes))
    env: dict[str, Any] = {"use": f"gymnasium:{game}", "num_envs": copies, "in_worker": in_worker}
    if game == "simple_tag":
        env["use"] = "pettingzoo:mpe2.simple_tag_v3"
    if batches is not None:
        env["batches"] = batches
    seat: Any = "player" if entities == 1 else ["player"] * entities
    config = {
        "steps": 10**9 if player == "ProxySampler" else int(exchanges * lanes * entities * processes * 1.3) + 1000,
        "env": env,
        "policies": {"player": {"use": f"{PLAYERS}:{player}", "settings": {"exchanges": exchanges}}},
        "matches": [{"seats": [seat], "replicas": processes}],
    }
    return lambda: run_arena(config)


def rates(game: str, copies: int, args: Any) -> Table:
    """Compare one game with one number of copies."""
    seconds = 1.0 if args.quick else 2.5
    contestants: dict[str, Contestant] = {}
    batches = 2 if copies > 1 else None
    contestants["arena: act-learn policy"] = arena(game, copies, "DrivenSampler", seconds, batches=batches)
    if game != "simple_tag" and copies > 1:
        for name, in_worker in (("two environment processes", False), ("environments in two workers", True)):
            contestants[f"arena: {name}"] = arena(
                game, copies // 2, "DrivenSampler", seconds, batches=1, processes=2, in_worker=in_worker
            )
    if game != "simple_tag":
        contestants["arena: proxy, policy's own loop"] = arena(game, copies, "ProxySampler", seconds, batches=1)
        for name, kind in PEERS.items():
            contestants[name] = lambda kind=kind: run_peer(
                args.peer_python, "sampling", kind, game, copies, seconds, timeout=args.patience
            )
    else:
        for name, kind in (("one process, no transport", "in_process"), ("Ray actors", "ray")):
            contestants[name] = lambda kind=kind: run_peer(
                args.peer_python, "sampling_many", kind, copies, seconds, timeout=args.patience
            )
    return compete(
        f"{game}, {copies} {'copy' if copies == 1 else 'copies'}",
        contestants,
        figure="steps/s",
        unit="transition steps per second",
        turns=args.turns,
        until=args.until,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run and return the exit code."""
    parser = options("sampling", __doc__)
    parser.add_argument("--games", help="comma-separated, of " + ", ".join(GAMES))
    parser.add_argument("--copies", help="comma-separated (default 1,8,64)")
    args = parse(parser, argv)
    games = (args.games or ("CartPole-v1" if args.quick else ",".join(GAMES))).split(",")
    copies = [int(count) for count in (args.copies or ("8" if args.quick else "1,8,64")).split(",")]
    return conclude("sampling", args, [rates(game, count, args) for game in games for count in copies])


if __name__ == "__main__":
    sys.exit(main())
