"""Many ranks: start-up, memory and match steps on this machine, and what would give way first on larger ones.

``python -m benchmarks.scale``, ``--ranks 6,31,151`` for a part of it. Measured: matches of 4 seats that step without an
environment to speak of, each seat a worker of its own, beside the same messages in plain MPI. Modelled (``model``):
root messages, bytes and all-reduce time at 1,000, 10,000 and 100,000 ranks, from costs measured on one machine.
"""

import math
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.tools.measuring import ROOT, Contestant, Figures, Table, compete, conclude, options, parse
from benchmarks.tools.running import run_arena, run_mpi

SEATS = 4
PLAYERS = ROOT / "benchmarks" / "ours" / "players.py"
ENVIRONMENTS = ROOT / "benchmarks" / "ours" / "environments.py"
MARK = b"arena-benchmark-"
"""Part of the command line of every rank that a benchmark starts, by its configuration's temporary directory."""


class Memory:
    """Sum, sampled now and then, of the proportional share of memory of all ranks that a benchmark started.

    Attributes:
      peak: maximum of the samples, in GiB.
    """

    def __init__(self) -> None:
        self.peak = 0.0
        self._going = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "Memory":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._going.set()
        self._thread.join()

    def _watch(self) -> None:
        pause = 1.0
        while not self._going.wait(pause):
            began = time.monotonic()
            self.peak = max(self.peak, sum(map(_share, Path("/proc").glob("[0-9]*"))) / 2**20)
            # Looking takes a core from the ranks, and the longer the more of them there are.
            pause = max(1.0, 30 * (time.monotonic() - began))


def _share(process: Path) -> int:
    """Return a rank's proportional share in KiB; 0 for other processes, and for those that have ended."""
    try:
        if MARK not in (process / "cmdline").read_bytes():
            return 0
        lines = (process / "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def arena(matches: int, seconds: float) -> Contestant:
    """Return a turn of the arena."""
    # About 20,000 match steps per second on two cores, shared by all matches.
    exchanges = max(200, int(seconds * 20_000 / matches))
    config: dict[str, Any] = {
        "steps": int(exchanges * SEATS * matches * 1.3) + 1000,
        "env": {"use": f"{ENVIRONMENTS}:NoopMatch"},
        "policies": {"player": {"use": f"{PLAYERS}:DrivenSampler", "settings": {"exchanges": exchanges}}},
        "matches": [{"seats": ["player"] * SEATS, "replicas": matches}],
    }

    def turn() -> Figures:
        began = time.time()
        with Memory() as memory:
            figures = run_arena(config)
        return {
            "match steps/s": figures["steps/s"] / SEATS,
            "start-up s": figures["first at"] - began,
            "peak GiB": memory.peak,
        }

    return turn


def plain(matches: int, seconds: float) -> Contestant:
    """Return a turn of the same pattern without the arena."""
    ranks = 1 + matches * (1 + SEATS)

    def turn() -> Figures:
        began = time.time()
        figures = run_mpi(ranks, "benchmarks.ours.many_ranks", matches, SEATS, seconds)
        return {"match steps/s": figures["exchanges/s"], "start-up s": figures["first at"] - began}

    return turn


class Costs(NamedTuple):
    """Constants of the model; times in seconds.

    Attributes:
      report: the root's time for one report of a match or a group, its episodes recorded (measured by ``micro``).
      report_bytes: of such a message.
      latency: of one hop of an all-reduce between nodes: an InfiniBand figure, not measured here.
      bandwidth: bytes per second of a node's link: 100 Gbit/s, not measured here.
      update: time between two updates of a group: 1,024 transitions of each worker at 10,000 per second.
    """

    report: float = 150e-6
    report_bytes: int = 1_000
    latency: float = 2e-6
    bandwidth: float = 12.5e9
    update: float = 0.1


def model(ranks: int, costs: Costs, *, parameters: int = 70_000, groups: int = 4) -> dict[str, float]:
    """Return the load of a run of ``ranks`` on its root and on its groups.

    Assumptions: matches of 4 workers and an environment process; every match reports once a second, every group once
    per update through its first worker; nothing else reaches the root. All workers belong to ``groups`` players of
    equal size. An all-reduce is a rendezvous of 7 words (recursive doubling: log2 W hops) and then a ring or a
    recursive halving of the gradient, which moves twice its bytes over each link, in 2 log2 W hops.

    Returns:
      ``root messages/s``, ``root MB/s``, ``root busy`` (1 is a whole core), ``all-reduce ms``, and ``all-reduce share``
      of the time between two updates.
    """
    matches = (ranks - 1) // (1 + SEATS)
    workers = max(1, matches * SEATS // groups)
    messages = matches + groups / costs.update
    hops = math.ceil(math.log2(max(2, workers)))
    reduce = 3 * hops * costs.latency + 2 * 4 * parameters / costs.bandwidth
    return {
        "root messages/s": messages,
        "root MB/s": messages * costs.report_bytes / 1e6,
        "root busy": messages * costs.report,
        "all-reduce ms": reduce * 1e3,
        "all-reduce share": reduce / (costs.update + reduce),
    }


def show_model(costs: Costs) -> None:
    """Print the model's table."""
    print(f"\nA model of larger machines, from {costs}")
    names = list(model(1_000, costs))
    print(f"{'ranks':>9} " + " ".join(f"{name:>17}" for name in names))
    for ranks in (1_000, 10_000, 100_000):
        print(f"{ranks:>9,} " + " ".join(f"{value:>17,.4g}" for value in model(ranks, costs).values()))
    alone = next(n for n in (10**k * d for k in range(3, 9) for d in range(1, 10)) if model(n, costs)["root busy"] > 1)
    print(
        f"The first to give way is the root's core, at about {alone:,} ranks: reports of matches, once a second each."
    )


def root_report() -> float:
    """Measure the root's time for one report of a match."""
    from benchmarks.micro import recording, timed

    measure: Callable[[], Figures] = timed(recording().ours, "us", 0.3)
    return min(measure()["us"] for _ in range(3)) * 1e-6


def main(argv: Sequence[str] | None = None) -> int:
    """Run and return the exit code."""
    parser = options("scale", __doc__)
    parser.add_argument("--ranks", help="comma-separated (default 6,31,151)")
    args = parse(parser, argv)
    tables: list[Table] = []
    for ranks in (args.ranks or ("6" if args.quick else "6,31,151")).split(","):
        matches, rest = divmod(int(ranks) - 1, 1 + SEATS)
        if rest or not matches:
            parser.error(f"expected 1 + {1 + SEATS} n ranks, such as 6, 31 or 151; found {ranks}")
        seconds = 2.0 if args.quick else 6.0
        contestants = {"arena": arena(matches, seconds), "limit: the same messages, plain MPI": plain(matches, seconds)}
        tables.append(
            compete(
                f"{ranks} ranks: {matches} match{'es' if matches > 1 else ''} of {SEATS} seats, no environment",
                contestants,
                figure="match steps/s",
                unit="match steps per second, all together",
                turns=args.turns if matches < 30 else min(args.turns, 3),
                until=args.until,
            )
        )
    show_model(Costs(report=root_report()))
    return conclude("scale", args, tables)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
