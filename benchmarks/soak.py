"""Growth of memory in long runs: ``python -m benchmarks.soak`` runs ten minutes with each environment manager.

Once a second it reads the memory and the open descriptors of all processes of the run, by role, while environments fail
now and then. After a warm-up of a third of the time it fits a line to each curve and prints the slopes.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.tools.observing import Held, Observed, cartpole, scratch

ROLES = {"rank 0": "root", "rank 1": "environment process", "rank 2": "worker", "copy": "fork server and copies"}
FAULT_EVERY = 3.0

GROWS_MB, GROWS_DESCRIPTORS = 1.0, 0.5
"""Slopes per minute beyond which a curve counts as growing; statistics of a run may take some kilobytes."""


def sample(manager: str, seconds: float) -> list[tuple[float, dict[str, Held]]]:
    """Run for so long; return (second, resources of each role) once a second.

    Raises:
      RuntimeError: the run did not end well.
    """
    with scratch("soak") as name:
        place = Path(name)
        kinds = ["raise", "nan", "kill", "segfault"] if manager == "subprocess" else ["raise", "nan"]
        wrapper = {"tickets": str(place / "tickets"), "period": FAULT_EVERY, "count": 10**6, "kinds": kinds}
        config = cartpole(10**9, manager=manager, wrapper=wrapper, max_retry=50)
        config["checkpoint"]["every"] = 10.0
        run = Observed(place, config)
        found = []
        try:
            run.wait_for_updates(2)
            began = time.monotonic()
            while (now := time.monotonic() - began) < seconds and run.process.poll() is None:
                found.append((now, run.held()))
                time.sleep(1.0)
            code = run.stop()
        finally:
            run.end()
        if code != 0:
            raise RuntimeError(f"exit code {code}: {run.tail()}")
        return found


def slope(curve: Sequence[tuple[float, float]]) -> float:
    """Return the growth per minute of a curve of (second, value)."""
    seconds, values = np.array(curve).T
    return float(60.0 * np.polyfit(seconds, values, 1)[0]) if len(curve) > 2 else 0.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print the slopes, and return 1 if a curve grows."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0, help="of each manager")
    parser.add_argument("--managers", nargs="+", choices=["serial", "subprocess"], default=["serial", "subprocess"])
    args = parser.parse_args(argv)
    print("| manager | role | MB, mean | MB per minute | descriptors, mean | descriptors per minute |")
    print("| --- | --- | --- | --- | --- | --- |")
    grows = False
    for manager in args.managers:
        samples = sample(manager, 60.0 * args.minutes)
        steady = [(at, held) for at, held in samples if at > 20.0 * args.minutes]
        for role, called in ROLES.items():
            curve = [(at, held[role]) for at, held in steady if role in held]
            if not curve:
                continue
            memory = [(at, held.megabytes) for at, held in curve]
            descriptors = [(at, float(held.descriptors)) for at, held in curve]
            slopes = slope(memory), slope(descriptors)
            grows |= slopes[0] > GROWS_MB or slopes[1] > GROWS_DESCRIPTORS
            means = np.mean([held[:2] for _, held in curve], axis=0)
            print(
                f"| {manager} | {called} | {means[0]:.1f} | {slopes[0]:+.3f} | {means[1]:.1f} | {slopes[1]:+.3f} |",
                flush=True,
            )
    print("a curve grows" if grows else "no curve grows")
    return 1 if grows else 0


if __name__ == "__main__":
    sys.exit(main())
