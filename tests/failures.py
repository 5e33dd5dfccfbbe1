"""Tests that failed: kept for ``--failed``, which runs them once more, and told apart from those that fail by chance.

A test that fails among others and passes alone is unstable. It does not fail the run of ``.ci/tests``, which lists it
with the output of its failure, unless it was unstable before within the last ``RUNS`` runs: then its cause has to be
mended. The list of these runs is the file that ``ARENA_TEST_HISTORY`` names; without it, nothing is listed.
"""

import json
import os
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.choice import id_without_group

HISTORY = "ARENA_TEST_HISTORY"
"""Environment variable: file with the last runs, which outlives the checkout."""

RUNS = 10
"""Number of runs within which a test may be unstable once."""

MOST = 10
"""Largest number of failures that are run once more in search of unstable ones: more are no chance."""

LONGEST = 20_000
"""Characters of the output that is kept of a failure: its end."""

_KEY = "arena/failed"


class PastRun(NamedTuple):
    """Run of all tests.

    Attributes:
      day: date and time.
      commit: abbreviated hash.
      unstable: ids of the tests that failed among others and passed alone.
    """

    day: str
    commit: str
    unstable: Sequence[str]


def check_failed(config: pytest.Config) -> None:
    """Check that there are failed tests to run once more, and that they may be judged.

    Raises:
      UsageError: there are none, or too many.
    """
    failed = _kept(config)
    if not failed:
        raise pytest.UsageError("--failed: expected tests that failed in the last run of a tier, found none")
    if history_file() is not None and len(failed) > MOST:
        raise pytest.UsageError(f"--failed: {len(failed)} tests have failed; up to {MOST} are run once more")


def failed_last_time(config: pytest.Config, items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return the tests that failed in the last run of a tier."""
    failed = _kept(config)
    return [item for item in items if item.nodeid in failed]


def history_file() -> Path | None:
    """Return the file with the last runs, None where there is none."""
    name = os.environ.get(HISTORY)
    return Path(name) if name else None


def read_history(path: Path) -> list[PastRun]:
    """Return the last runs, oldest first; none where the file cannot be read."""
    try:
        return [PastRun(*run) for run in json.loads(path.read_text("utf-8"))]
    except (OSError, ValueError, TypeError):
        return []


def unstable_before(tests: Iterable[str], history: Sequence[PastRun]) -> dict[str, PastRun]:
    """Return those of some unstable tests that were unstable in one of the runs before, with the last such run."""
    runs = {test: run for run in history[-(RUNS - 1) :] for test in run.unstable}
    return {test: runs[test] for test in tests if test in runs}


class Failures:
    """The plugin that keeps what fails, and judges it when it has run once more."""

    def __init__(self, again: bool) -> None:
        """Begin.

        Args:
          again: whether this run is of tests that failed in the one before.
        """
        self._again = again
        self._failed: dict[str, str] = {}
        self._run: set[str] = set()
        self._lines: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the output of what fails."""
        test = id_without_group(report.nodeid)
        self._run.add(test)
        if report.failed:
            parts = [report.longreprtext, *(f"{name}\n{text}" for name, text in report.sections)]
            self._failed[test] = "\n".join(parts)[-LONGEST:]

    @pytest.hookimpl(tryfirst=True)  # before the terminal's summary
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Keep the failures, or judge them; a test that was unstable before fails the run."""
        if not self._again:
            session.config.cache.set(_KEY, self._failed)
        path = history_file()
        if path is None or exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            return
        if not self._again and self._failed:
            return  # to be judged by the next run
        before = _kept(session.config) if self._again else {}
        unstable = {test: output for test, output in before.items() if test in self._run and test not in self._failed}
        history = read_history(path)
        repeated = unstable_before(unstable, history)
        self._lines = list(_lines(unstable, repeated, history))
        history.append(PastRun(time.strftime("%Y-%m-%d %H:%M"), _commit(session.config.rootpath), list(unstable)))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(history[-RUNS:], indent=1) + "\n", "utf-8")
        except OSError as error:
            self._lines.append(f"{path}: this run is not listed: {error.strerror}; name another file with {HISTORY}")
        if repeated:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the unstable tests of this run and of those before."""
        if self._lines:
            terminalreporter.section("unstable tests")
            for line in self._lines:
                terminalreporter.write_line(line)


def _kept(config: pytest.Config) -> dict[str, str]:
    """Return the output of each test that failed in the last run of a tier."""
    return config.cache.get(_KEY, None) or {}


def _lines(unstable: dict[str, str], repeated: dict[str, PastRun], history: Sequence[PastRun]) -> Iterator[str]:
    for test, output in unstable.items():
        yield f"UNSTABLE {test}: failed among others, passed alone; its output when it failed:"
        yield from (f"    {line}" for line in output.splitlines())
    for test, run in repeated.items():
        yield f"FAILED {test}: unstable before, on {run.day} at {run.commit}: its cause has to be mended"
    for run in history:
        for test in run.unstable:
            yield f"before: {run.day} {run.commit} {test}"


def _commit(root: Path) -> str:
    line = ["git", "-C", str(root), "rev-parse", "--short", "HEAD"]
    try:
        return subprocess.run(line, capture_output=True, text=True, check=False).stdout.strip() or "?"
    except OSError:  # no git here
        return "?"
