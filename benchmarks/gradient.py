"""Time of averaging a gradient over a group, compared with one bare Allreduce of the same bytes and with torch.

``python -m benchmarks.gradient``, ``--parameters 70000 --workers 2`` for a part of it.
"""

import sys
from collections.abc import Sequence
from typing import Any

from benchmarks.tools.measuring import Contestant, Table, compete, conclude, options, parse
from benchmarks.tools.running import run_mpi, run_peer

SIZES = (5_000, 70_000, 1_700_000, 25_000_000)
WORKERS = (2, 4, 8)


def averaging(parameters: int, workers: int, args: Any) -> Table:
    """Compare one number of parameters and of workers."""
    repeats = max(10, min(500, 50_000_000 // parameters // workers))
    if args.quick:
        repeats = min(repeats, 50)

    def mpi(way: str) -> Contestant:
        return lambda: run_mpi(workers, "benchmarks.ours.gradients", way, parameters, repeats)

    contestants: dict[str, Contestant] = {
        "arena: average_gradients": mpi("arena"),
        "limit: one Allreduce of all bytes": mpi("flat"),
        "one Allreduce for each tensor": mpi("tensors"),
        "torch DistributedDataParallel, gloo": lambda: run_peer(
            args.peer_python, "gradients", parameters, workers, repeats, timeout=args.patience
        ),
    }
    return compete(
        f"{parameters:,} parameters, {workers} workers",
        contestants,
        figure="us",
        unit="us per average",
        turns=args.turns,
        until=args.until,
        higher_is_better=False,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run and return the exit code."""
    parser = options("gradient", __doc__)
    parser.add_argument("--parameters", help="comma-separated (default " + ",".join(map(str, SIZES)) + ")")
    parser.add_argument("--workers", help="comma-separated (default " + ",".join(map(str, WORKERS)) + ")")
    args = parse(parser, argv)
    sizes = [
        int(size) for size in (args.parameters or ("70000" if args.quick else ",".join(map(str, SIZES)))).split(",")
    ]
    workers = [int(n) for n in (args.workers or ("2" if args.quick else ",".join(map(str, WORKERS)))).split(",")]
    return conclude("gradient", args, [averaging(size, count, args) for size in sizes for count in workers])


if __name__ == "__main__":
    sys.exit(main())
