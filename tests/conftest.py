"""Fixtures of all tests, and the choice of tests for ``launch/test.sh --quick`` and ``--room``.

Several processes run the tests (pytest-xdist). What tests share goes to one of them, as a group: a fixture of a module
that costs something, a cluster of which a machine can have only one.
"""

import contextlib
import heapq
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import settings

from arena.common.text import suggestion
from arena.launch.parent.client import SOCKET
from arena.launch.parent.started import parent_process
from tests.ledger import Ledger, selection

# Hypothesis does not judge speed, for machines are busy.
settings.register_profile("arena", deadline=None)
settings.load_profile("arena")

TESTS = Path(__file__).parent
ROOMS = sorted({"envs", "policies", *(path.parent.name for path in TESTS.parent.glob("arena/*/__init__.py"))})


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that choose tests."""
    group = parser.getgroup("arena")
    group.addoption("--quick", action="store_true", help="leave out the tests that start mpirun")
    group.addoption(
        "--room",
        action="append",
        default=[],
        metavar="ROOM",
        help="only the tests of this room, those under mpirun too",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Refuse rooms that there are not; keep a ledger, in the one process that all results come to."""
    _check_rooms("--room", config.getoption("room"))
    chosen = selection(config)
    if chosen is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Ledger(chosen))


@pytest.hookimpl(wrapper=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Choose the tests, and put them in order.

    What takes long comes first, so that no process is left with it at the end. Between tests under mpirun are others:
    their ranks wait for each other, and take longer the more of them are there at the same time.
    """
    rooms = config.getoption("room")
    for item in items:
        if _folder(item) in ("mpi", "slurm"):
            item.add_marker("mpirun")
            marker = item.get_closest_marker("rooms")
            if marker is None:
                raise pytest.UsageError(
                    f"{item.path}: expected the rooms that it is about: pytest.mark.rooms('worker')"
                )
            _check_rooms(f"{item.path}: pytest.mark.rooms", marker.args)
    chosen = [
        item
        for item in items
        if (not rooms or _is_of(item, rooms)) and not (config.getoption("quick") and item.get_closest_marker("mpirun"))
    ]
    kept = set(chosen)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
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


def _check_rooms(where: str, rooms: Sequence[str]) -> None:
    for room in rooms:
        if room not in ROOMS:
            raise pytest.UsageError(
                f"{where}: expected one of {', '.join(ROOMS)}, found {room!r}{suggestion(room, ROOMS)}"
            )


def _folder(item: pytest.Item) -> str:
    """Return the folder of ``tests/`` that a test lies in; for one that lies in none, the name of its file."""
    return item.path.relative_to(TESTS).parts[0]


def _is_of(item: pytest.Item, rooms: Sequence[str]) -> bool:
    marker = item.get_closest_marker("rooms")
    return bool({_folder(item), *(marker.args if marker else ())} & set(rooms))


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
