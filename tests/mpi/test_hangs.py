"""A run in which a rank hangs ends, and reports the rank and the place."""

import re
from pathlib import Path

import pytest

from .launching import run_arena

pytestmark = pytest.mark.rooms("root", "system")

PLANT = f"{Path(__file__).parents[2] / 'benchmarks' / 'tools' / 'fault_injection.py'}:plant"


@pytest.mark.tier("default")
def test_an_environment_that_hangs_is_found_with_its_stack_in_a_report_on_every_rank(tmp_path):
    wrapper = {"use": PLANT, "settings": {"tickets": str(tmp_path / "tickets"), "faults": [["hang", 30]]}}
    config = {
        "steps": 50_000,
        "waits": {"warn_after": 3, "abort_after": 8},
        "env": {"use": "touchdown", "settings": {"team_size": 1}, "num_envs": 2, "wrappers": [wrapper]},
        "policies": {"blue": {"use": "ppo", "settings": {"horizon": 16}}, "red": {"use": "random"}},
        "matches": [{"seats": ["blue", "red"]}],
    }
    outcome = run_arena(tmp_path, config)
    assert outcome.code == 1
    assert "has waited 3 s for the environment process (rank 1)" in (outcome.directory / "log/arena.log").read_text()
    assert "HangError: waited 8 s for the environment process (rank 1)" in outcome.errors
    assert "(0 gave no answer)" in outcome.errors
    report = (outcome.directory / "log/hang-report.txt").read_text()
    assert re.search(r"rank 1 on \S+ \(process \d+\), ", report)
    assert ", environment process of match 0: does not wait" in report
    assert "worker of player 'red' on seat 1 of match 0: waits for the environment process (rank 1)" in report
    environment = report.partition("environment process of match 0: does not wait")[2].partition("\nrank ")[0]
    assert environment.rstrip().endswith("time.sleep(1.0)"), "where it hangs is the last line of its stack"
