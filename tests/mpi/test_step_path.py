"""If these fail, a step sends more messages or bytes than it must, or leaves something behind, so that long runs swell.

Only what can be counted is looked at, no times.
"""

import re

import pytest

from .launching import PLAYERS, player, run_arena, succeed

pytestmark = pytest.mark.rooms("comms", "worker", "environment")

NOTHING = 6_000
"""Bytes that 2,000 steps may leave behind: a report under way, a float or two. An object for each is ten times it."""


def table(place, policy, settings=None, copies=4, batches=1):
    return {
        "steps": 100_000,
        "env": {
            "use": f"{PLAYERS / 'counts.py'}:Endless",
            "settings": {"report": str(place / "environment")},
            "num_envs": copies,
            "batches": batches,
        },
        "policies": {"counter": {"use": player(policy), "settings": settings or {}}},
        "matches": [{"seats": ["counter"]}],
        "records": {"tensorboard": False},
    }


def test_a_step_is_one_message_each_way_and_leaves_nothing_behind(tmp_path):
    output = succeed(run_arena(tmp_path, table(tmp_path, "counts:CountsSteps"))).output
    found = re.search(r"counted: (\{.*\}) bytes \((\d+), (\d+)\) grown \((-?\d+), (-?\d+)\)", output)
    assert found, output
    assert found[1] == "{'send': 2400, 'receive': 2400, 'receive_side': 0}"
    action_bytes, record_bytes, grown, arrays = map(int, found.groups()[1:])
    # A header and four actions; a header, then rewards, seven rows of flags, 8 floats of each copy.
    # Each array begins a new cache line.
    assert action_bytes == 64 + 4 * 8
    assert record_bytes <= 64 + 64 + 7 * 64 + 4 * 8 * 4
    assert grown < NOTHING and arrays <= 0
    grown, arrays = map(int, (tmp_path / "environment").read_text("utf-8").split())
    assert grown < NOTHING and arrays <= 0


def test_learning_leaves_nothing_behind(tmp_path):
    config = table(tmp_path, "counts:CountsUpdates", {"horizon": 64}, batches=2)
    config["steps"] = 4 * 64 * 14
    output = succeed(run_arena(tmp_path, config)).output
    found = re.search(r"learned: grown \((-?\d+), (-?\d+)\)", output)
    assert found, output
    assert int(found[1]) < 4 * NOTHING and int(found[2]) <= 2  # the first worker reports each update
