"""Ranks that take turns on a core have the same memory layout, unless the user asks for a random one."""

import sys
from pathlib import Path

import pytest

from .launching import ask_workers

RANDOM, ALIKE = 0, 0x0040000
"""Of /proc/PID/personality."""

pytestmark = [
    pytest.mark.rooms("system"),
    pytest.mark.skipif(sys.platform != "linux", reason="other kernels have other ways"),
]


@pytest.fixture(autouse=True)
def spawned(monkeypatch):
    """Forks of one process have the same addresses without this."""
    monkeypatch.setenv("ARENA_START", "spawn")


def personalities(place: Path) -> list[int]:
    return [int(text, 16) & ALIKE for text in ask_workers(place, 'Path("/proc/self/personality").read_text()')]


def test_ranks_that_take_turns_on_a_core_are_laid_out_alike(tmp_path, one_core):
    assert personalities(tmp_path) == [ALIKE, ALIKE]


def test_whoever_wants_random_addresses_keeps_them(tmp_path, one_core, monkeypatch):
    monkeypatch.setenv("ARENA_ADDRESSES", "random")
    assert personalities(tmp_path) == [RANDOM, RANDOM]
