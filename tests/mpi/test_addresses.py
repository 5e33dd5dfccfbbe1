"""Where ranks take turns on a core, their memory is laid out alike, unless someone wants it at random."""

import sys
from pathlib import Path

import pytest

from .launching import run_arena, succeed

RANDOM, ALIKE = 0, 0x0040000
"""Of /proc/PID/personality."""

PLAYER = """
from pathlib import Path


class Tells:
    def __init__(self, env, group, place):
        (Path(place) / f"worker-{group.rank}").write_text(Path("/proc/self/personality").read_text())

    def run(self, steps):
        pass
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other kernels have other ways")


def personalities(place: Path) -> list[int]:
    (place / "player.py").write_text(PLAYER)
    policy = {"use": f"{place / 'player.py'}:Tells", "settings": {"place": str(place)}}
    config = {
        "steps": 10,
        "env": {"use": "gymnasium:CartPole-v1"},
        "policies": {"player": policy},
        "matches": [{"seats": ["player"], "replicas": 2}],
    }
    succeed(run_arena(place, config))
    return [int((place / f"worker-{worker}").read_text(), 16) & ALIKE for worker in range(2)]


def test_ranks_that_take_turns_on_a_core_are_laid_out_alike(tmp_path, one_core):
    assert personalities(tmp_path) == [ALIKE, ALIKE]


def test_whoever_wants_random_addresses_keeps_them(tmp_path, one_core, monkeypatch):
    monkeypatch.setenv("ARENA_ADDRESSES", "random")
    assert personalities(tmp_path) == [RANDOM, RANDOM]
