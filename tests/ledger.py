"""Cost of the tests: seconds for each tier and folder and the dearest tests, beside those of the last such run.

The seconds are those of the tests' clock, summed over the processes that run them; a fixture's count for the test that
is the first to need it. A run is compared with the last one of the same choice (a tier, a ``--room``) in the same
checkout; a run that chooses tests by path or name, or that fails, is not recorded.
"""

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from arena.common.text import count_of
from tests.choice import TIERS, id_without_group

DEAREST = 20
"""Tests that are listed by name."""

LEFT_OUT = "left_out"
"""Key of what a process that runs tests sends at its end: the number of tests that it has left out, by tier."""

LEFT_OUT_HERE = pytest.StashKey[Mapping[str, int]]()
"""The same in this process."""


class Run(NamedTuple):
    """Cost of the tests of one run."""

    day: str
    wall: float
    """Seconds from the first test to the last one's end."""
    tests: Mapping[str, float]
    """Seconds by node id."""
    tiers: Mapping[str, str]
    """Tier by node id."""


def folder(test: str) -> str:
    """Return the folder of a test by its node id; the file's name for one that lies directly in ``tests/``."""
    return str(Path(*Path(test.partition("::")[0]).parts[:2]))


def lines(now: Run, last: Run | None) -> Iterator[str]:
    """Yield the ledger's text."""
    before = {} if last is None else dict(last.tests)
    since = "" if last is None else f"; since the last run, {last.day}"
    yield f"seconds by tier and folder, of all test processes together{since}"
    yield _line(
        sum(now.tests.values()), sum(before.values()) if last else None, f"all {count_of(len(now.tests), 'test')}"
    )
    yield _line(now.wall, last.wall if last else None, "by the clock")
    for tier in TIERS:
        of_tier = [seconds for test, seconds in now.tests.items() if now.tiers[test] == tier]
        was = [seconds for test, seconds in before.items() if last is not None and last.tiers[test] == tier]
        if of_tier:
            yield _line(sum(of_tier), sum(was) if last else None, f"tier {tier}: {count_of(len(of_tier), 'test')}")
    totals, were = _by_folder(now.tests), _by_folder(before)
    for name in sorted({**were, **totals}, key=lambda name: -totals[name]):
        yield _line(totals[name], were[name] if last else None, name)
    yield f"the {DEAREST} dearest tests"
    for name in sorted(now.tests, key=lambda name: -now.tests[name])[:DEAREST]:
        yield _line(now.tests[name], before.get(name, 0.0) if last else None, name)


def left_out_lines(left_out: Mapping[str, int]) -> Iterator[str]:
    """Yield what a run of a tier has not run and the command for it.

    Args:
      left_out: number of tests by tier.
    """
    ways = {"default": "launch/test.sh runs {} more, which show each capability, most of them under mpirun"}
    ways["all"] = "launch/test.sh --all runs all, {} more"
    if sum(left_out.values()):
        yield "not all tests have run:"
    more = 0
    for tier in TIERS:
        more += left_out.get(tier, 0)
        if left_out.get(tier):
            yield "  " + ways[tier].format(count_of(more, "test"))


def _by_folder(tests: Mapping[str, float]) -> defaultdict[str, float]:
    found: defaultdict[str, float] = defaultdict(float)
    for name, seconds in tests.items():
        found[folder(name)] += seconds
    return found


def _line(seconds: float, before: float | None, name: str) -> str:
    if before is None:
        return f"{seconds:8,.1f} s           {name}"
    return f"{seconds:8,.1f} s {seconds - before:+8,.1f}  {name}"


def keep_left_out(config: pytest.Config, left_out: Mapping[str, int]) -> None:
    """Keep the number of tests that this process leaves out, by tier, for the process with the ledger."""
    config.stash[LEFT_OUT_HERE] = left_out
    if hasattr(config, "workeroutput"):
        config.workeroutput[LEFT_OUT] = dict(left_out)


class Ledger:
    """The plugin that adds the ledger to a run's end and keeps its figures in pytest's cache."""

    def __init__(self, chosen: str) -> None:
        self._chosen = chosen
        self._key = f"arena/ledger/{chosen.replace(' ', '_')}"
        self._tests: defaultdict[str, float] = defaultdict(float)
        self._tiers: dict[str, str] = {}
        self._left_out: Mapping[str, int] = {}
        self._began = time.monotonic()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add what setting a test up, running it or tearing it down took."""
        test = id_without_group(report.nodeid)
        self._tests[test] += report.duration
        # The report on a process that has crashed has no properties.
        self._tiers.setdefault(test, dict(report.user_properties).get("tier", TIERS[-1]))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take from a process that runs tests how many it has left out: each leaves out the same."""
        self._left_out = getattr(node, "workeroutput", {}).get(LEFT_OUT, self._left_out)

    def pytest_unconfigure(self, config: pytest.Config) -> None:
        """Print what has not run, as the last lines."""
        reporter = config.pluginmanager.get_plugin("terminalreporter")
        if self._chosen in TIERS and self._tests and reporter is not None:
            for line in left_out_lines(self._left_out or config.stash.get(LEFT_OUT_HERE, {})):
                reporter.write_line(line)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
        """Print the ledger beside the last one, and keep it where all tests passed."""
        cache = terminalreporter.config.cache
        if cache is None or not self._tests:
            return
        now = Run(time.strftime("%Y-%m-%d %H:%M"), time.monotonic() - self._began, self._tests, self._tiers)
        kept = cache.get(self._key, None)
        is_comparable = kept is not None and len(kept) == len(Run._fields)  # older checkouts kept less
        terminalreporter.section("ledger")
        for line in lines(now, Run(*kept) if is_comparable else None):
            terminalreporter.write_line(line)
        if exitstatus == 0:
            cache.set(self._key, now)
