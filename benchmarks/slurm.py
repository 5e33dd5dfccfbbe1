"""The round robin example, 151 ranks, as a job of a real SLURM on this machine, to the end of a small budget.

``python -m benchmarks.slurm``, as root. The nodes claim more cores than there are. Prints how the job ended, where its
matches sat, its steps, how long it took to start, how long it played, and the memory of all its processes together.
"""

import argparse
import contextlib
import json
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.scale import MARK, Memory
from benchmarks.tools.measuring import ROOT
from tests.slurm.cluster import running, what_is_missing

RANKS = 151
CONFIG = ROOT / "configs" / "round_robin_2v2.yaml"


def scratch() -> tempfile.TemporaryDirectory:
    """Return a directory whose name ``Memory`` finds the ranks by."""
    return tempfile.TemporaryDirectory(prefix=MARK.decode())


def report(run: Path) -> Iterator[str]:
    """Describe a run by its plan and records."""
    plan = json.loads((run / "plan.json").read_text())
    nodes: dict[int, set[str]] = {}
    for one in plan["rounds"][0]["assignments"]:
        if one["match"] is not None:
            nodes.setdefault(one["match"], set()).add(plan["hosts"][one["rank"]])
    where = Counter(" and ".join(sorted(names)) for names in nodes.values())
    yield f"{len(plan['hosts'])} ranks; matches by node: {dict(where)}"
    with contextlib.closing(sqlite3.connect(f"file:{run / 'arena.sqlite'}?mode=ro", uri=True)) as records:
        for player, steps, updates in records.execute(
            "SELECT player, max(steps), max(updates) FROM metrics GROUP BY player"
        ):
            yield f"{player}: {steps} steps, {updates} updates"
        episodes, first, last = records.execute(
            "SELECT count(*), (SELECT started FROM rounds WHERE round = 0), max(ended_at) FROM episodes"
        ).fetchone()
        started, ended, exit_code = records.execute("SELECT started, ended, exit FROM runs").fetchone()
    yield f"{episodes} episodes, exit {exit_code}"
    yield (
        f"first round {first - started:.0f} s after the root's start, all in {ended - started:.0f} s, "
        f"last episode {ended - last:.0f} s before the end"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Submit the job, wait for it, print; return 1 if it failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.slurm", description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--steps", type=int, default=30_000, help="budget of each of the four policies")
    parser.add_argument("--patience", type=float, default=1200, help="seconds after which to give up")
    args = parser.parse_args(argv)
    if (missing := what_is_missing()) is not None:
        sys.exit(f"error: {missing}")
    tasks = -(-RANKS // args.nodes)
    with running(args.nodes, cpus=tasks, memory=24_000) as cluster, scratch() as place:
        began = time.monotonic()
        with Memory() as memory:
            number = cluster.submit(
                Path(place),
                *(f"--nodes={args.nodes}", f"--ntasks-per-node={tasks}", str(ROOT / "launch" / "slurm.sbatch")),
                *(str(CONFIG), "--set", f"run_root={place}", "--set", f"steps={args.steps}"),
            )
            job = cluster.wait(number, args.patience)
        seconds = time.monotonic() - began
        print("".join(path.read_text() for path in Path(place).glob("*.out")))
        run = Path(place) / "round_robin_2v2"
        print(f"job {number}: {job.state}, exit code {job.exit_code}, restarts {job.restarts}, {seconds:.0f} s")
        print(f"memory of all its processes: {memory.peak:.1f} GiB")
        for sentence in report(run):
            print(sentence)
    return 0 if job.state == "COMPLETED" else 1


if __name__ == "__main__":
    sys.exit(main())
