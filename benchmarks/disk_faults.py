"""Faults of policies, of ranks that hang, and of what a run writes to: more rows for ``benchmarks.faults``."""

import contextlib
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from arena.records.checkpoints import Checkpoints
from benchmarks.ours.failing import TICKET
from benchmarks.tools.measuring import ROOT
from benchmarks.tools.observing import Observed, cartpole, scratch

CUTS = 20
"""Offsets at which checkpoints are cut."""

ABORT_AFTER = 5.0


class Row(NamedTuple):
    """Outcome of one fault; ``seconds`` until it was noticed, None if it was not."""

    fault: str
    seconds: float | None
    bound: float
    lost: str
    code: int | None
    completed: bool
    left: str

    @property
    def good(self) -> bool:
        """Whether the outcome is as promised."""
        return self.seconds is not None and self.seconds <= self.bound and self.completed and self.left == "nothing"


def left_by(run: Observed) -> str:
    """Return a description of the processes and files that outlive a run, and remove them."""
    told = [f"process {pid} ({role})" for pid, role in run.left_behind().items()] + run.files_left()
    run.end()
    return ", ".join(sorted(told)) or "nothing"


def wait_for_checkpoint(run: Observed, number: int = 1) -> None:
    """Return when a run has so many checkpoints, or after a minute."""
    until = time.monotonic() + 60
    while len(list((run.directory / "checkpoints").glob("[0-9]*/manifest.json"))) < number and time.monotonic() < until:
        time.sleep(0.05)


def until_said(run: Observed, text: str, timeout: float = 30.0) -> float | None:
    """Return the seconds until a run has logged a text; None after the timeout."""
    began = time.monotonic()
    while text not in run.tail(200):
        if time.monotonic() - began > timeout or run.process.poll() is not None:
            return None
        time.sleep(0.02)
    return time.monotonic() - began


def missing_episodes(run: Observed) -> int:
    """Return the number of counted episodes that the records lack."""
    newest = Checkpoints(run.directory / "checkpoints").newest()
    counted = newest.manifest["statistics"]["players"]["p"]["episodes"] if newest else 0
    found = run.ask("SELECT count(*) FROM episodes WHERE cause IS NULL OR cause NOT LIKE 'fault%'")
    return counted - found[0][0] if found else counted


@contextlib.contextmanager
def small_disk(megabytes: int, *, writable: bool = True) -> Iterator[Path]:
    """Mount a disk of so many megabytes, in memory. Requires the rights to mount."""
    with scratch("disk") as name:
        options = f"size={megabytes}m,{'rw' if writable else 'ro'}"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", name], check=True)
        try:
            yield Path(name)
        finally:
            subprocess.run(["umount", "-l", name], check=True)


def policy_fault(called: str, cls: str) -> Row:
    """Make a policy fail once, then resume."""
    with scratch("faults") as name:
        place = Path(name)
        ticket = place / "ticket"
        os.environ[TICKET] = str(ticket)
        config = cartpole(30_000, manager="serial")
        config["policies"]["p"]["use"] = f"{ROOT / 'benchmarks' / 'ours' / 'failing.py'}:{cls}"
        config["checkpoint"] = {"every": 0.3}
        return _failed_and_resumed(called, place, config, lambda: float(ticket.read_text()), 5.0)


def hang(called: str = "environment process hangs") -> Row:
    """Make an environment process hang in the environment's code, then resume."""
    with scratch("faults") as name:
        place = Path(name)
        wrapper = {"tickets": str(place / "tickets"), "faults": [["hang", 300]]}
        config = cartpole(30_000, manager="serial", wrapper=wrapper)
        config |= {"checkpoint": {"every": 0.2}, "waits": {"warn_after": 1, "abort_after": ABORT_AFTER}}
        ticket = place / "tickets" / "0.json"
        return _failed_and_resumed(called, place, config, lambda: ticket.stat().st_mtime, ABORT_AFTER + 5.0)


def _failed_and_resumed(
    called: str, place: Path, config: dict[str, Any], moment: Callable[[], float], bound: float
) -> Row:
    run = Observed(place, config)
    code = run.wait(120)
    ended = time.time()
    made, left = run.updates(), left_by(run)
    again = Observed(place, config, "--resume-or-start")
    completed = again.wait(300) == 0 and code == 1
    rows = again.ask("SELECT min(updates) FROM metrics WHERE attempt = 2")
    kept = (rows[0][0] or 1) - 1 if rows and rows[0][0] else 0
    seconds = ended - moment() if code is not None else None
    return Row(called, seconds, bound, f"{max(0, made - kept)} of {made} updates", code, completed, left)


def disk_full() -> Row:
    """Fill the disk in the middle of a run, and free it again."""
    with small_disk(8) as place:
        run = Observed(place, cartpole(150_000, manager="serial"))
        wait_for_checkpoint(run)
        filler = place / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        seconds = until_said(run, "is left out")
        stands = Checkpoints(run.directory / "checkpoints").newest() is not None
        filler.unlink()
        code = run.wait(300)
        lost = missing_episodes(run)
        return Row(
            "disk full", seconds, 10.0, f"{lost} episodes", code, code == 0 and stands and not lost, left_by(run)
        )


def read_only() -> Row:
    """Start a run where nothing can be written."""
    with small_disk(8, writable=False) as place, scratch("faults") as elsewhere:
        config = cartpole(5_000, manager="serial") | {"run_root": str(place / "runs")}
        began = time.monotonic()
        run = Observed(Path(elsewhere), config)
        code = run.wait(60)
        seconds = time.monotonic() - began
        clear = "expected a directory that can be written" in run.tail(50)
        left = left_by(run)
        subprocess.run(["mount", "-o", "remount,rw", str(place)], check=True)
        completed = Observed(Path(elsewhere), config).wait(120) == 0
        return Row("run directory read-only", seconds if clear else None, 10.0, "nothing", code, completed, left)


def checkpoints_cut() -> Row:
    """Cut the newest checkpoint at random offsets of random files, and resume from it; repeat with each offset."""
    with scratch("faults") as name:
        place = Path(name)
        config = cartpole(30_000, manager="serial") | {"checkpoint": {"every": 0.5}}
        run = Observed(place, config)
        wait_for_checkpoint(run, 2)
        run.stop()
        left, made = left_by(run), run.updates()
        checkpoints = Checkpoints(run.directory / "checkpoints")
        chance, slowest, passed = random.Random(1), 0.0, 0
        whole = checkpoints.newest()
        assert whole is not None, run.tail()
        spare = place / "spare"
        shutil.copytree(whole.path, spare)
        for _ in range(CUTS):
            shutil.rmtree(whole.path)
            shutil.copytree(spare, whole.path)
            victim = chance.choice(sorted(whole.path.iterdir()))
            os.truncate(victim, chance.randrange(victim.stat().st_size))
            began = time.monotonic()
            found = checkpoints.newest()
            slowest = max(slowest, time.monotonic() - began)
            passed += found is not None and found.path != whole.path and len(found.warnings) == 1
        again = Observed(place, config, "--resume")
        completed = again.wait(300) == 0 and passed == CUTS
        kept = (again.ask("SELECT min(updates) FROM metrics WHERE attempt = 2")[0][0] or 1) - 1
        called = f"checkpoint cut at {CUTS} random offsets"
        return Row(called, slowest, 5.0, f"{made - kept} of {made} updates", 0, completed, left)


def records_locked() -> Row:
    """Lock the records in the middle of a run for some seconds."""
    with scratch("faults") as name:
        run = Observed(Path(name), cartpole(60_000, manager="serial"))
        run.wait_for_updates(5)
        with contextlib.closing(sqlite3.connect(run.directory / "arena.sqlite", isolation_level=None)) as reader:
            reader.execute("BEGIN EXCLUSIVE")
            seconds = until_said(run, "cannot be written, training goes on")
            time.sleep(2.0)
            reader.execute("ROLLBACK")
        code = run.wait(300)
        lost = missing_episodes(run)
        return Row("records locked", seconds, 10.0, f"{lost} episodes", code, code == 0 and not lost, left_by(run))


def records_torn() -> Row:
    """Kill a run, cut its records in half, and resume."""
    with scratch("faults") as name:
        place = Path(name)
        config = cartpole(60_000, manager="serial") | {"checkpoint": {"every": 0.5}}
        run = Observed(place, config)
        run.wait_for_updates(40)
        time.sleep(1.2)  # for a checkpoint that knows of episodes
        os.kill(run.pid_of("rank 0"), signal.SIGKILL)
        code = run.wait(60)
        left = left_by(run)
        database = run.directory / "arena.sqlite"
        os.truncate(database, database.stat().st_size // 2)
        again = Observed(place, config, "--resume")
        seconds = until_said(again, "episodes before the checkpoint are not on record", 60.0)
        completed = again.wait(300) == 0
        lost = sum(1 for _ in run.directory.glob("arena.damaged-*.sqlite"))
        return Row("records torn", seconds, 30.0, f"{lost} file moved aside", code, completed, left)


def cases() -> dict[str, Callable[[], Row]]:
    """Return the function of each row, by the row's name on the command line."""
    return {
        "policy-raises": lambda: policy_fault("policy raises", "Raises"),
        "policy-nan": lambda: policy_fault("policy turns NaN", "TurnsNaN"),
        "hang": hang,
        "disk-full": disk_full,
        "read-only": read_only,
        "checkpoint-cut": checkpoints_cut,
        "records-locked": records_locked,
        "records-torn": records_torn,
    }
