"""Time of one step of a proxy, compared with bare messages and with other libraries' exchange between processes.

``python -m benchmarks.proxy_latency``. The environment does nothing. The limit is a round trip of the same bytes over
persistent requests of plain MPI.
"""

import sys
from collections.abc import Sequence
from typing import Any

from benchmarks.tools.measuring import ROOT, Contestant, Table, compete, conclude, options, parse
from benchmarks.tools.running import run_arena, run_mpi, run_peer

PLAYERS = ROOT / "benchmarks" / "ours" / "players.py"
ENVIRONMENTS = ROOT / "benchmarks" / "ours" / "environments.py"


def arena(environment: str, seats: int, exchanges: int) -> Contestant:
    """Return a turn of the arena: every seat steps a proxy, the figure is the first one's."""
    config: dict[str, Any] = {
        "steps": 10**9,
        "env": {"use": f"{ENVIRONMENTS}:{environment}"},
        "policies": {
            f"player_{seat}": {"use": f"{PLAYERS}:ProxySampler", "settings": {"exchanges": exchanges}}
            for seat in range(seats)
        },
        "matches": [{"seats": [f"player_{seat}" for seat in range(seats)]}],
    }
    return lambda: run_arena(config)


def latency(title: str, environment: str, peer: str, seats: int, args: Any, exchanges: int) -> Table:
    """Compare one kind of exchange."""
    pythons, seconds = args.peer_python, 1 if args.quick else 3
    contestants: dict[str, Contestant] = {
        "arena: EnvProxy.step": arena(environment, seats, exchanges),
        "limit: persistent round trip": lambda: run_mpi(
            1 + seats, "benchmarks.ours.raw_exchange", "persistent", peer, exchanges
        ),
        "pickled gather and broadcast": lambda: run_mpi(
            1 + seats, "benchmarks.ours.raw_exchange", "pickled", peer, exchanges // 4
        ),
    }
    if seats == 1:
        for name, kind in (("Gymnasium AsyncVectorEnv, 1 copy", "async"), ("Ray actor", "ray")):
            contestants[name] = lambda kind=kind: run_peer(
                pythons, "sampling", kind, peer, 1, seconds, timeout=args.patience
            )
    return compete(
        title,
        contestants,
        figure="us/call",
        unit="us per step",
        turns=args.turns,
        until=args.until,
        higher_is_better=False,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run and return the exit code."""
    args = parse(options("proxy_latency", __doc__), argv)
    count = 20_000 if args.quick else 100_000
    tables = [latency("A step with 8 floats", "vector", "noop", 1, args, count)]
    tables.append(latency("A step with 84 x 84 x 4 bytes", "screen", "noop_screen", 1, args, count // 4))
    tables.append(latency("A step of a match of 4 seats, 8 floats each", "NoopMatch", "noop", 4, args, count // 4))
    return conclude("proxy_latency", args, tables)


if __name__ == "__main__":
    sys.exit(main())
