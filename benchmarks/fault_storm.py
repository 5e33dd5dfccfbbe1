"""A thousand environment faults at random copies in ten minutes: ``python -m benchmarks.fault_storm``.

Two matches of eight copies each in processes of their own, all kinds of faults in turn. Before and after, the same run
without faults, for a fifth of the time each. The run must complete, count no episode that a fault touched, and keep 80%
of the throughput.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.tools.observing import Observed, cartpole, scratch

KINDS = ("raise", "exit", "segfault", "nan", "kill", "shape", "nan_reward", "raise", "hang", "leak")
LEAST = 0.8


def play(
    place: Path, name: str, seconds: float, manager: str, wrapper: dict[str, Any] | None
) -> tuple[Observed, float]:
    """Run for so long; return the run, which has finished, and its steps per second.

    Raises:
      RuntimeError: the run failed.
    """
    limits: dict[str, Any] = {"max_retry": 50}
    if manager == "subprocess":
        limits |= {"step_timeout": 0.5, "wait_timeout": 0.02, "memory_limit": 300}
    config = cartpole(10**9, manager=manager, wrapper=wrapper, **limits)
    config["matches"][0]["replicas"] = 2
    run = Observed(place, config, name=name)
    try:
        run.wait_for_updates(2)
        (began, first), end = _progress(run), time.monotonic() + seconds
        while time.monotonic() < end and run.process.poll() is None:
            time.sleep(min(0.5, max(0.0, end - time.monotonic())))
        ended, last = _progress(run)
        code = run.stop()
    finally:
        run.end()
    if code != 0:
        raise RuntimeError(f"exit code {code}: {run.tail()}")
    return run, (last - first) / (ended - began)


def _progress(run: Observed) -> tuple[float, int]:
    return run.ask("SELECT max(time), max(steps) FROM metrics")[0]  # type: ignore[return-value]


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print the figures, and return 1 if one is not as promised."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fault_storm", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--faults", type=int, default=1000)
    parser.add_argument("--manager", choices=["subprocess", "serial"], default="subprocess")
    args = parser.parse_args(argv)
    seconds = 60.0 * args.minutes
    kinds = KINDS if args.manager == "subprocess" else ("raise", "exit", "nan", "shape", "nan_reward")
    with scratch("storm") as name:
        place = Path(name)
        wrapper = {
            "tickets": str(place / "tickets"),
            "period": 0.97 * seconds / args.faults,  # all of them before the end
            "count": args.faults,
            "kinds": list(kinds),
        }
        _, before = play(place, "calm", seconds / 5, args.manager, None)
        run, speed = play(place, "storm", seconds, args.manager, wrapper)
        _, after = play(place, "calm-again", seconds / 5, args.manager, None)
        injected = len(list((place / "tickets").glob("turn-*.json")))
        causes = run.ask("SELECT cause, count(*) FROM episodes WHERE cause LIKE 'fault:%' GROUP BY 1 ORDER BY 2 DESC")
        copies = run.ask("SELECT count(*) FROM (SELECT DISTINCT match, copy FROM episodes WHERE cause LIKE 'fault:%')")
        good = run.ask("SELECT count(*) FROM episodes WHERE cause IS NULL")[0][0]
        counted = _counted(run.directory)
    recorded, share = sum(number for _, number in causes), speed / ((before + after) / 2)
    print(f"injected {injected} faults in {args.minutes:g} minutes; recorded {recorded} at {copies[0][0]} copies of 16")
    print("  " + ", ".join(f"{cause.removeprefix('fault:')} {number}" for cause, number in causes))
    print(f"episodes that ended well {good}, episodes in the statistics {counted}")
    print(
        f"steps per second {speed:,.0f}, without faults {before:,.0f} before and {after:,.0f} after: {100 * share:.0f}%"
    )
    promised = recorded == injected >= 0.98 * args.faults and counted == good and share >= LEAST
    print("as promised" if promised else "NOT as promised")
    return 0 if promised else 1


def _counted(directory: Path) -> int:
    """Return the number of episodes in the statistics of the last checkpoint."""
    newest = max((directory / "checkpoints").glob("*/manifest.json"), key=lambda path: int(path.parent.name))
    return json.loads(newest.read_text())["statistics"]["players"]["p"]["episodes"]


if __name__ == "__main__":
    sys.exit(main())
