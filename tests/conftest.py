"""Fixtures of all tests, and the order in which they run; ``choice.py`` has which of them do.

Several processes run the tests (pytest-xdist). What tests share goes to one of them, as a group: a fixture of a module
that costs something, a cluster of which a machine can have only one.
"""

import contextlib
import heapq
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from hypothesis import settings

from arena.launch.parent.client import SOCKET
from arena.launch.parent.started import parent_process
from tests import choice
from tests.failures import Failures, check_failed, failed_last_time
from tests.ledger import Ledger, keep_left_out

# Hypothesis does not judge speed, for machines are busy.
settings.register_profile("arena", deadline=None)
settings.load_profile("arena")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that choose tests."""
    choice.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Check the options; keep the ledger and the list of what failed in the one process that all results come to."""
    choice.check_options(config)
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        _handle_signals_in_children()
    if not hasattr(config, "workerinput"):
        if config.getoption("failed"):
            check_failed(config)
        name = choice.name_of(config)
        if name is not None:
            config.pluginmanager.register(Ledger(name))
        if name in choice.TIERS or config.getoption("failed"):
            config.pluginmanager.register(Failures(again=config.getoption("failed")))


@pytest.hookimpl(wrapper=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Choose the tests, and put them in order.

    What takes long comes first, so that no process is left with it at the end. Between tests under mpirun are others:
    their ranks wait for each other, and take longer the more of them are there at the same time.
    """
    choice.mark(items)
    chosen = failed_last_time(config, items) if config.getoption("failed") else choice.chosen(config, items)
    kept = set(chosen)
    left_out = [item for item in items if item not in kept]
    config.hook.pytest_deselected(items=left_out)
    keep_left_out(config, Counter(choice.tier_of(item) for item in left_out))
    under_mpirun = [item for item in chosen if item.get_closest_marker("mpirun")]
    others = [item for item in chosen if not item.get_closest_marker("mpirun")]
    under_mpirun.sort(key=lambda item: item.get_closest_marker("slow") is None)
    # One process runs the whole of a group.
    others.sort(key=lambda item: item.get_closest_marker("xdist_group") is None)
    items[:] = _evenly(under_mpirun, others)
    yield
    if getattr(config.option, "loadgroup", False):  # in a process of pytest-xdist, which names the group in the id
        for item in items:
            marker = item.get_closest_marker("xdist_group")
            if marker is not None and not item.nodeid.endswith(f"@{marker.args[0]}"):
                raise pytest.UsageError(f"{item.nodeid}: pytest-xdist and pytest do not fit, and groups are not kept")


def _handle_signals_in_children() -> None:
    """Start the programs under test with the default handling of signals, also where this process ignores them.

    A shell has background jobs ignore SIGINT, and nohup SIGHUP: tests of Ctrl-C would wait in vain. A handler that does
    nothing keeps them without effect here, and the kernel replaces it by the default when a child starts its program.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


def _evenly(*lists: list[pytest.Item]) -> list[pytest.Item]:
    """Return the items of all lists, each in its order and spread over the whole."""
    placed = ([(place / len(one), item) for place, item in enumerate(one)] for one in lists)
    return [item for _, item in heapq.merge(*placed, key=lambda pair: pair[0])]


@pytest.fixture(scope="session")
def shared_parent() -> Iterator[str]:
    """Address of a parent process for this process that runs tests: its imports cost seconds, once."""
    with parent_process() as address:
        yield address


@pytest.fixture(scope="module")
def forks(shared_parent: str) -> Iterator[None]:
    """Have all ranks and ``arena`` commands of a module be forks of the shared parent.

    A test of how they start sets ``ARENA_START=spawn``, or removes ``ARENA_PARENT``; one that looks for a command's
    children gives Python an option such as ``-u``.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SOCKET, shared_parent)
        yield


@contextlib.contextmanager
def _keep_to_one_core() -> Iterator[int]:
    before = os.sched_getaffinity(0)
    # Processes that run tests at the same time take different ones.
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    core = sorted(before)[number % len(before)]
    os.sched_setaffinity(0, {core})
    try:
        yield core
    finally:
        os.sched_setaffinity(0, before)


@pytest.fixture
def keep_to_one_core() -> Callable[[], contextlib.AbstractContextManager[int]]:
    """``with keep_to_one_core():`` what is started there is on one core, however many there are."""
    return _keep_to_one_core


@pytest.fixture
def one_core() -> Iterator[int]:
    """Have what the test starts on one core, however many there are; the number of that core."""
    with _keep_to_one_core() as core:
        yield core
