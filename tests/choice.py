"""Choice of tests: by tier (``launch/test.sh --quick``, no option, ``--all``), by room, and those that failed.

Each test is in one tier, and a run takes the tests of its tier and of those before it:

* ``quick``: what needs no mpirun and little time: every test without a mark outside ``tests/mpi`` and ``tests/slurm``.
* ``default``: each capability once, under real mpirun where that is what it is: ``pytest.mark.tier("default")``.
* ``all``: the rest: every other test of ``tests/mpi`` and ``tests/slurm``, and ``pytest.mark.tier("all")``.

Tests that are named by path, keyword or room run whatever their tier is.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest

from arena.common.text import suggestion

TESTS = Path(__file__).parent

TIERS = ("quick", "default", "all")

UNDER_MPIRUN = ("mpi", "slurm")
"""Folders whose tests start ranks."""

ROOMS = sorted({"envs", "policies", *(path.parent.name for path in TESTS.parent.glob("arena/*/__init__.py"))})


def add_options(parser: pytest.Parser) -> None:
    """Add the options that choose tests."""
    group = parser.getgroup("arena")
    group.addoption("--quick", action="store_true", help="only the tests that need no mpirun and little time")
    group.addoption("--all", action="store_true", help="all tests; without it, each capability once")
    group.addoption("--failed", action="store_true", help="the tests that failed in the last run of a tier, once more")
    group.addoption(
        "--room",
        action="append",
        default=[],
        metavar="ROOM",
        help="only the tests of this room, those under mpirun too",
    )


def check_options(config: pytest.Config) -> None:
    """Check the options.

    Raises:
      UsageError: two of them exclude each other, or there is no such room.
    """
    chosen = [name for name in ("quick", "all", "failed") if config.getoption(name)]
    if len(chosen) > 1:
        raise pytest.UsageError(f"expected one of --quick, --all and --failed, found --{' and --'.join(chosen)}")
    _check_rooms("--room", config.getoption("room"))


def name_of(config: pytest.Config) -> str | None:
    """Return the name of a run's choice, or None for a choice of files or names, which no later run is like."""
    option = config.option
    choices = ("keyword", "markexpr", "deselect", "ignore", "ignore_glob", "lf", "stepwise", "failed")
    if config.args_source != config.ArgsSource.TESTPATHS or any(getattr(option, name, None) for name in choices):
        return None
    if option.room:
        return " ".join(f"--room {room}" for room in sorted(option.room)) + (" --quick" if option.quick else "")
    return last_tier(config)


def last_tier(config: pytest.Config) -> str:
    """Return the last tier that a run takes."""
    return "quick" if config.getoption("quick") else "all" if config.getoption("all") else "default"


def mark(items: Sequence[pytest.Item]) -> None:
    """Record the tier of each test, and mark those under mpirun.

    Raises:
      UsageError: a test under mpirun names no room, or a mark names a room or tier that there is not.
    """
    for item in items:
        if _folder(item) in UNDER_MPIRUN:
            item.add_marker("mpirun")
            rooms = item.get_closest_marker("rooms")
            if rooms is None:
                raise pytest.UsageError(
                    f"{item.path}: expected the rooms that it is about: pytest.mark.rooms('worker')"
                )
            _check_rooms(f"{item.path}: pytest.mark.rooms", rooms.args)
        item.user_properties.append(("tier", tier_of(item)))


def tier_of(item: pytest.Item) -> str:
    """Return the tier of a test.

    Raises:
      UsageError: its mark names another.
    """
    marker = item.get_closest_marker("tier")
    if marker is None:
        return "all" if item.get_closest_marker("mpirun") else "quick"
    if len(marker.args) != 1 or marker.args[0] not in TIERS:
        raise pytest.UsageError(f"{item.nodeid}: pytest.mark.tier: expected one of {TIERS}, found {marker.args}")
    return marker.args[0]


def chosen(config: pytest.Config, items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return the tests that a run takes, in their order."""
    rooms = config.getoption("room")
    if rooms:
        items = [item for item in items if _is_of(item, rooms)]
    if config.getoption("quick") or (not rooms and name_of(config) is not None):
        tiers = TIERS[: TIERS.index(last_tier(config)) + 1]
        items = [item for item in items if tier_of(item) in tiers]
    return list(items)


def id_without_group(test: str) -> str:
    """Return the id of a test without its group, which pytest-xdist puts behind it."""
    return test[: test.rfind("@")] if test.rfind("@") > test.rfind("]") else test


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
