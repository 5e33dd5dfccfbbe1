"""Outcomes of injected faults: ``python -m benchmarks.faults`` injects each one and prints a table.

Each row is a run of PPO on CartPole. *Noticed* is the time from the fault to the end of the episode or of the job;
*bound* is what it may take. Nothing may be left behind, no process and no file in shared memory, and the run, or its
resumption, completes.
"""

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import disk_faults
from benchmarks.disk_faults import Row, left_by
from benchmarks.tools.observing import Observed, cartpole, scratch

STEPS = 30_000
"""Transition steps of a run: some seconds, in which a fault can be injected."""

STEP_TIMEOUT, MEMORY_LIMIT = 2.0, 400

REPORTING = 1.5
"""Seconds, beyond the fault's own bound, in which it must be noticed."""


# Environments ---------------------------------------------------------------------------------------------------------

IN_PLACE = ("raise", "exit", "shape", "nan", "nan_reward")
APART = (*IN_PLACE, "segfault", "kill", "hang", "leak")
BOUNDS = {"hang": STEP_TIMEOUT + REPORTING, "leak": STEP_TIMEOUT + REPORTING}


def environment_fault(kind: str, manager: str) -> Row:
    """Make a copy fail."""
    with scratch("faults") as name:
        place = Path(name)
        limits = {"step_timeout": STEP_TIMEOUT, "memory_limit": MEMORY_LIMIT} if manager == "subprocess" else {}
        wrapper = {"tickets": str(place / "tickets"), "faults": [[kind, 300]]}
        run = Observed(place, cartpole(STEPS, manager=manager, wrapper=wrapper, **limits))
        code = run.wait(300)
        left = left_by(run)
        ticket = place / "tickets" / "0.json"
        at = json.loads(ticket.read_text())["time"] if ticket.exists() else None
        episodes = run.ask("SELECT ended_at, length FROM episodes WHERE cause LIKE 'fault:%'")
        seconds = max(0.0, episodes[0][0] - at) if at is not None and len(episodes) == 1 else None
        lost = f"{len(episodes)} episode" + (f" of {episodes[0][1]} steps" if episodes else "s")
        called = f"environment, {manager}: {kind.replace('_', ' of a ')}"
        return Row(called, seconds, BOUNDS.get(kind, REPORTING), lost, code, code == 0, left)


# Processes ------------------------------------------------------------------------------------------------------------

KILLED = {"root": "rank 0", "environment process": "rank 1", "worker": "rank 2", "mpirun": "mpirun"}
KILL_BOUND = 10.0


def process_fault(who: str, number: signal.Signals = signal.SIGKILL) -> Row:
    """Kill a process of a run, then resume."""
    return _interrupted(
        f"{who}: {number.name}", lambda run: os.kill(run.pid_of(KILLED[who]), number), KILL_BOUND, nonzero=True
    )


def asked_to_end(number: signal.Signals, times: int = 1) -> Row:
    """Send the launcher a signal, or two, then resume."""

    def ask(run: Observed) -> None:
        for turn in range(times):
            if turn:
                time.sleep(0.2)
            run.process.send_signal(number)

    called = f"launcher: {number.name}" + (" twice" if times > 1 else "")
    return _interrupted(called, ask, 30.0 if times == 1 else KILL_BOUND, nonzero=times > 1)


def _interrupted(called: str, interrupt: Callable[[Observed], None], bound: float, *, nonzero: bool) -> Row:
    with scratch("faults") as name:
        place = Path(name)
        config = cartpole(STEPS, manager="subprocess")
        run = Observed(place, config)
        try:
            run.wait_for_updates(5)
            until = time.monotonic() + 60
            while not list((run.directory / "checkpoints").glob("*/manifest.json")) and time.monotonic() < until:
                time.sleep(0.1)
            run.look_at_files()
            made = run.updates()
            began = time.monotonic()
            interrupt(run)
            code = run.wait(60)
            seconds = None if code is None else time.monotonic() - began
        finally:
            run.end()
        left = left_by(run)
        again = Observed(place, config, "--resume")
        completed = again.wait(300) == 0 and (code != 0) is nonzero
        resumed = again.ask("SELECT checkpoint, resumed FROM runs WHERE attempt = 2")
        rows = again.ask("SELECT min(updates) FROM metrics WHERE attempt = 2")
        kept = (rows[0][0] or 1) - 1 if resumed and rows else 0
        return Row(called, seconds, bound, f"{max(0, made - kept)} of {made} updates", code, completed, left)


# The table ------------------------------------------------------------------------------------------------------------


def cases() -> dict[str, Callable[[], Row]]:
    """Return the function of each row, by the row's name on the command line."""
    found: dict[str, Callable[[], Row]] = {}
    for manager, kinds in (("serial", IN_PLACE), ("subprocess", APART)):
        for kind in kinds:
            found[f"{manager}-{kind}"] = lambda kind=kind, manager=manager: environment_fault(kind, manager)
    for who in KILLED:
        found[f"kill-{who.split()[0]}"] = lambda who=who: process_fault(who)
    found["segfault-worker"] = lambda: process_fault("worker", signal.SIGSEGV)
    found["sigterm"] = lambda: asked_to_end(signal.SIGTERM)
    found["sigint"] = lambda: asked_to_end(signal.SIGINT)
    found["sigint-twice"] = lambda: asked_to_end(signal.SIGINT, 2)
    return {**found, **disk_faults.cases()}


def main(argv: Sequence[str] | None = None) -> int:
    """Inject the faults, print the table, and return 1 if a row is not as promised."""
    known = cases()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which faults (all): {', '.join(known)}")
    chosen = parser.parse_args(argv).names or list(known)
    unknown = [name for name in chosen if name not in known]
    if unknown:
        parser.error(f"unknown fault {unknown[0]!r}; expected {', '.join(known)}")
    print("| fault | noticed after | bound | lost | exit code | run or resumption completed | left behind |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    failed = 0
    for name in chosen:
        row = known[name]()
        failed += not row.good
        seconds = "never" if row.seconds is None else f"{row.seconds:.2f} s"
        completed = "yes" if row.completed else "NO"
        print(
            f"| {row.fault} | {seconds} | {row.bound:g} s | {row.lost} | {row.code} | {completed} | {row.left} |",
            flush=True,
        )
    print(f"{len(chosen) - failed} of {len(chosen)} as promised")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
