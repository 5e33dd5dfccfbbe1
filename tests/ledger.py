"""Cost of the tests: seconds for each folder and the dearest tests, beside those of the last such run.

The seconds are those of the tests' clock, summed over the processes that run them; a fixture's count for the test that
is the first to need it. A run is compared with the last one of the same selection (everything, ``--quick``, one
``--room``) in the same checkout; a run that chooses tests by path or name, or that fails, is not recorded.
"""

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

DEAREST = 20
"""Tests that are listed by name."""


class Run(NamedTuple):
    """Cost of the tests of one run."""

    day: str
    wall: float
    """Seconds from the first test to the last one's end."""
    tests: Mapping[str, float]
    """Seconds by node id."""


def selection(config: pytest.Config) -> str | None:
    """Return the name of what a run chooses, or None for a choice of files or names, which no later run is like."""
    option = config.option
    choices = ("keyword", "markexpr", "deselect", "ignore", "ignore_glob", "lf", "stepwise")
    if config.args_source != config.ArgsSource.TESTPATHS or any(getattr(option, name, None) for name in choices):
        return None
    chosen = [f"--room {room}" for room in sorted(option.room)]
    return " ".join(chosen or ["everything"]) + (" --quick" if option.quick else "")


def folder(test: str) -> str:
    """Return the folder of a test by its node id; the file's name for one that lies directly in ``tests/``."""
    return str(Path(*Path(test.partition("::")[0]).parts[:2]))


def lines(now: Run, last: Run | None) -> Iterator[str]:
    """Yield the ledger's text."""
    before = {} if last is None else dict(last.tests)
    since = "" if last is None else f"; since the last run, {last.day}"
    yield f"seconds by folder, of all test processes together{since}"
    yield _line(sum(now.tests.values()), sum(before.values()) if last else None, f"all {len(now.tests):,} tests")
    yield _line(now.wall, last.wall if last else None, "by the clock")
    totals, were = _by_folder(now.tests), _by_folder(before)
    for name in sorted({**were, **totals}, key=lambda name: -totals[name]):
        yield _line(totals[name], were[name] if last else None, name)
    yield f"the {DEAREST} dearest tests"
    for name in sorted(now.tests, key=lambda name: -now.tests[name])[:DEAREST]:
        yield _line(now.tests[name], before.get(name, 0.0) if last else None, name)


def _by_folder(tests: Mapping[str, float]) -> defaultdict[str, float]:
    found: defaultdict[str, float] = defaultdict(float)
    for name, seconds in tests.items():
        found[folder(name)] += seconds
    return found


def _line(seconds: float, before: float | None, name: str) -> str:
    if before is None:
        return f"{seconds:8,.1f} s           {name}"
    return f"{seconds:8,.1f} s {seconds - before:+8,.1f}  {name}"


class Ledger:
    """The plugin that adds the ledger to a run's end and keeps its figures in pytest's cache."""

    def __init__(self, chosen: str) -> None:
        self._key = f"arena/ledger/{chosen.replace(' ', '_')}"
        self._tests: defaultdict[str, float] = defaultdict(float)
        self._began = time.monotonic()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add what setting a test up, running it or tearing it down took."""
        test = report.nodeid
        if test.rfind("@") > test.rfind("]"):  # pytest-xdist has put the test's group behind it
            test = test[: test.rfind("@")]
        self._tests[test] += report.duration

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
        """Print the ledger beside the last one, and keep it where all tests passed."""
        cache = terminalreporter.config.cache
        if cache is None or not self._tests:
            return
        now = Run(time.strftime("%Y-%m-%d %H:%M"), time.monotonic() - self._began, self._tests)
        kept = cache.get(self._key, None)
        terminalreporter.section("ledger")
        for line in lines(now, None if kept is None else Run(*kept)):
            terminalreporter.write_line(line)
        if exitstatus == 0:
            cache.set(self._key, now)
