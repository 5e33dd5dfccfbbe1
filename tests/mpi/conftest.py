"""Tests under mpirun share one parent process for each process that runs tests: its imports cost seconds, once.

A test of how ranks start sets ``ARENA_START=spawn``, or removes ``ARENA_PARENT`` to have a parent of its own.
"""

import os
from collections.abc import Iterator

import pytest

from arena.launch.parent.client import SOCKET
from arena.launch.parent.started import parent_process


@pytest.fixture(scope="session", autouse=True)
def shared_parent() -> Iterator[str]:
    with parent_process() as socket:
        os.environ[SOCKET] = socket
        yield socket
        del os.environ[SOCKET]
