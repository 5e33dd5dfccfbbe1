"""The missing runs of a grid, in order."""

import time
from collections.abc import Callable, Sequence

from arena.common.text import duration, number
from arena.report.run_groups import ComparedRun, read_run
from arena.sweeps.children import HELD_FOR, Ended
from arena.sweeps.planned import PlannedRun


class Grid:
    """A list of runs, without those that are finished.

    Attributes:
      failed: runs that have failed, with their last lines.
      finished: number of finished runs, those of earlier starts included.
    """

    def __init__(self, runs: Sequence[PlannedRun], log: Callable[[str], None]) -> None:
        """Determine which runs are finished; ``log`` receives a line about each event."""
        self._log, self._total = log, len(runs)
        self._missing = [run for run in runs if not run.is_finished]
        self._held: list[tuple[float, PlannedRun]] = []
        self._named_held: set[str] = set()
        self.finished = self._total - len(self._missing)
        self.failed: dict[str, str] = {}

    def next_run(self) -> PlannedRun | None:
        """Return a run to start now; None if there is none."""
        while self._missing or (self._held and self._held[0][0] < time.monotonic()):
            run = self._missing.pop(0) if self._missing else self._held.pop(0)[1]
            if not run.is_finished:  # by another process meanwhile
                self._log(f"{run.name}: {'starts' if run.state == 'missing' else 'continues'}")
                return run
            self.finished += 1
            self._log(f"{run.name}: finished by another process")
        return None

    def postpone(self, run: PlannedRun, holder: str) -> None:
        """Defer a run that another process writes."""
        if run.name not in self._named_held:
            self._named_held.add(run.name)
            self._log(f"{run.name}: written by {holder}; waiting for it")
        self._held.append((time.monotonic() + HELD_FOR, run))

    def continues(self, run: PlannedRun) -> bool:
        """Return True: its budget ends a run of a grid."""
        return True

    def ended(self, run: PlannedRun, end: Ended) -> None:
        """Count a run that has ended, and log how."""
        if end.finished:
            self.finished += 1
            self._log(f"{run.name}: finished in {duration(end.seconds)}{describe_scores(run)} ({self._count()})")
        else:
            self.failed[run.name] = end.last_line
            what = "stopped before its budget was spent" if end.code == 0 else f"failed with exit code {end.code}"
            self._log(f"{run.name}: {what}: {end.last_line or 'no output'} ({self._count()})")

    def _count(self) -> str:
        return f"{self.finished + len(self.failed)} of {self._total}"

    @property
    def waits(self) -> bool:
        """Whether runs remain that another process writes."""
        return bool(self._held)


def describe_scores(run: PlannedRun) -> str:
    """Return the last score of each learning player, for a line about the end of a run."""
    read = read_run(run.directory)
    scores = [f"{player} {number(value)}" for player, value in last_scores(read).items()]
    what = "last evaluation" if read.evaluations else "mean return"
    return f", {what} {', '.join(scores)}" if scores else ""


def last_scores(run: ComparedRun) -> dict[str, float]:
    """Return the last score of each learning player: of its evaluations, else of its episodes."""
    curves = run.evaluations or run.returns
    return {player: float(curves[player].scores[-1]) for player in run.learning if player in curves}
