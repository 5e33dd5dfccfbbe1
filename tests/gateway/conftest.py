"""Servers of games are forks of one parent process for each process that runs tests."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def _forks(forks: None) -> None:
    """Fork ranks and commands from it."""
