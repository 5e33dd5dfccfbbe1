"""Ranks that die one after the other while the others go on (``fault_tolerance: ulfm``): recovery time and losses.

``python -m benchmarks.survival``: two matches of two against two and a spare rank, 12 in all; workers compare their
weights after every update. A worker is killed, then an environment process, then a spare.
"""

import argparse
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.tools.observing import Observed, scratch

BOUND = 2.0
"""Seconds from a death to the next update of the others."""

UPDATES = 8
"""Updates that pass before the next death."""


class Loss(NamedTuple):
    """Consequence of a death.

    Attributes:
      who: the role and the rank that died.
      seconds: until the others' next update; None for never.
      ranks: number of ranks that were left.
    """

    who: str
    seconds: float | None
    ranks: int


def configuration(steps: int) -> dict[str, Any]:
    """Return a run of 12 ranks: two matches of two against two, and a spare."""
    ppo = {"use": "ppo", "settings": {"horizon": 64}}
    return {
        "steps": steps,
        "fault_tolerance": "ulfm",
        "spares": 1,
        "verify_replicas": True,
        "env": {"use": "touchdown", "settings": {"team_size": 2}, "num_envs": 4},
        "policies": {"red": ppo, "blue": ppo},
        "matches": [{"seats": ["red", "red", "blue", "blue"], "replicas": 2}],
    }


def _parts(run: Observed) -> dict[str, list[str]]:
    """Return the successive roles of each rank by its number at the start (``rank 3``), from the logs."""
    found = {}
    for path in sorted((run.directory / "log").glob("rank-*.log")):
        parts = [line.partition("round ")[2].partition(": ")[2] for line in path.read_text().splitlines()]
        found[f"rank {int(path.stem.removeprefix('rank-'))}"] = [part for part in parts if part]
    return found


def roles(run: Observed) -> Mapping[str, str]:
    """Return the role of each rank by its number at the start (``rank 3``), from the newest of its logs."""
    return {rank: parts[-1] if parts else "" for rank, parts in _parts(run).items()}


def lose(run: Observed, role: str, updates: int = UPDATES) -> Loss:
    """Kill the first rank that has a role (worker, environment or idle), and let some updates pass."""
    gone = {f"rank {row[0]}" for row in run.ask("SELECT rank FROM faults WHERE what = 'died'")}
    who = next(rank for rank, part in roles(run).items() if part.startswith(role) and rank not in gone)
    pid = run.pid_of(who)
    before, parts = run.updates(), _parts(run)
    others = parts.keys() - gone - {who, "rank 0"}  # the root has no part in a round
    killed = time.time()
    os.kill(pid, signal.SIGKILL)
    going_on, seconds = None, None
    while seconds is None and time.time() < killed + 60:
        time.sleep(0.02)
        # Updates that were reported before all have found their new parts were made before the death.
        now = _parts(run) if going_on is None else {}
        if going_on is None and all(len(now[rank]) > len(parts[rank]) for rank in others):
            going_on = time.time()
        found = run.ask(f"SELECT min(time) FROM metrics WHERE time > {going_on}") if going_on else []
        if found and found[0][0] is not None:
            seconds = found[0][0] - killed
            run.wait_for_updates(before + updates, 60)
    return Loss(f"{role} ({who})", seconds, 12 - len(gone) - 1)


def main(argv: Sequence[str] | None = None) -> int:
    """Kill, print, and return 1 if the run did not go on in time."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.survival", description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=150_000, help="of each policy")
    args = parser.parse_args(argv)
    with scratch("arena-survival-") as place:
        run = Observed(Path(place), configuration(args.steps))
        try:
            run.wait_for_updates(UPDATES)
            losses = [lose(run, role) for role in ("worker", "environment", "idle")]
            code = run.wait(600)
        finally:
            run.end()
        print("| killed | the others' next update after | ranks left |\n| --- | --- | --- |")
        for loss in losses:
            print(f"| {loss.who} | {'never' if loss.seconds is None else f'{loss.seconds:.2f} s'} | {loss.ranks} |")
        steps = run.ask("SELECT player, max(steps) FROM metrics GROUP BY player")
        print(f"exit code {code}; steps {dict(steps)}; processes left behind: {len(run.left_behind())}")
        done = code == 0 and all(count >= args.steps for _, count in steps)
        if not done:
            print(run.tail(40))
        return 0 if done and all(x.seconds is not None and x.seconds <= BOUND for x in losses) else 1


if __name__ == "__main__":
    sys.exit(main())
