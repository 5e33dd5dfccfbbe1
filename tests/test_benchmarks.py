"""If these fail, a benchmark compares the wrong numbers, or stops at a peer that is not there."""

import json
import re
import time

import pytest

from benchmarks import defaults, micro
from benchmarks.defaults import seconds_to
from benchmarks.report import write
from benchmarks.scale import Costs, model
from benchmarks.tools.measuring import (
    MissingPeerError,
    compare,
    compete,
    conclude,
    measure,
    options,
    order_of_turn,
    parse,
)
from benchmarks.tools.running import run_peer
from benchmarks.training import figures


def test_contestants_take_turns_and_medians_are_compared(capsys, tmp_path):
    order = []

    def contestant(name, values):
        left = iter(values)

        def turn():
            order.append(name)
            return {"us": next(left), "other": 7.0}

        return turn

    def absent():
        order.append("absent")
        raise MissingPeerError("needs nothing_of_that_name")

    contestants = {"ours": contestant("ours", [1, 9, 2]), "theirs": contestant("theirs", [5, 6, 4]), "absent": absent}
    table = compete("a race", contestants, figure="us", unit="us", turns=3, higher_is_better=False)
    assert order == ["ours", "theirs", "absent", "ours", "theirs", "ours", "theirs"]
    assert [(row.figure, row.low, row.high, row.ratio) for row in table.rows] == [
        (2, 1, 9, 1.0),
        (5, 4, 6, 2.5),
        (None, None, None, None),
    ]
    assert "other 7" in table.rows[1].note and table.rows[1].times == 3
    assert "skipped: needs nothing_of_that_name" in capsys.readouterr().out

    args = parse(options("race", "Who is faster."), ["--json", str(tmp_path / "race.json"), "--quick"])
    assert conclude("race", args, [table]) == 0
    written = json.loads((tmp_path / "race.json").read_text("utf-8"))
    assert written["tables"][0]["rows"][1]["ratio"] == 2.5
    assert written["machine"]["cores"] >= 1 and "numpy" in written["machine"]["versions"]


def test_those_who_do_the_same_work_faster_are_measured_more_often_and_in_between():
    assert order_of_turn(["a", "b", "c"], {}) == ["a", "b", "c"]
    seconds = {"tiny": 0.1, "quick": 10.0, "middle": 20.0, "slow": 40.0}
    order = ["tiny", "quick", "middle", "tiny", "quick", "slow", "middle", "tiny", "quick"]
    assert order_of_turn(seconds, seconds) == order
    assert order_of_turn(["absent", "quick", "slow"], {"quick": 1.0, "slow": 2.1}) == [
        "quick",
        "absent",
        "slow",
        "quick",
    ]

    spent = []
    works = {
        "ours": lambda: {"us": spent.append("ours") or 1.0},
        "theirs": lambda: {"us": time.sleep(0.01) or spent.append("theirs") or 10.0},
    }
    measured = measure(works, turns=2, same_work=True)
    assert spent == ["ours", "theirs", "ours", "ours", "theirs", "ours"]
    table = compare("a race", measured, figure="us", unit="us", higher_is_better=False)
    assert [row.times for row in table.rows] == [4, 2]


def test_a_peer_that_is_not_installed_is_named(tmp_path):
    with pytest.raises(MissingPeerError, match="needs sample_factory"):
        run_peer(parse(options("x", ""), []).peer_python, "training", "sample_factory", "CartPole-v1", 8, 1)


def test_training_is_read_from_what_the_environments_noted():
    lines = ["10.0 start", "11.0 start"]
    # 150 episodes of 20 steps, one each 0.1 s: at first they bring nothing, and 10 from the 50th on.
    lines += [f"{12 + 0.1 * episode:.1f} 20 {10 * (episode >= 50)}" for episode in range(150)]
    found = figures(reversed(lines), threshold=5.0)
    assert found["steps/s"] == pytest.approx(150 * 20 / 16.9)
    assert found["last return"] == 10
    assert found["steps to threshold"] == 100 * 20  # of episodes 0 to 99 half bring 10
    assert found["seconds to threshold"] == pytest.approx(12 + 9.9 - 10)
    with pytest.raises(MissingPeerError, match="no episode was over"):
        figures(["10.0 start"], 5.0)


def test_the_page_says_what_was_measured_and_what_was_missed(tmp_path):
    def table(title, ours, theirs):
        rows = [("arena: environments in 2 workers", ours), ("Stable-Baselines3, in process", theirs), ("RLlib", None)]
        return {
            "title": title,
            "unit": "steps per second",
            "higher_is_better": True,
            "rows": [
                {
                    "name": name,
                    "figure": value,
                    "low": value,
                    "high": value,
                    "ratio": 1.0,
                    "note": "n",
                    "versions": "v 1",
                    "times": 5,
                }
                for name, value in rows
            ],
        }

    where = {"cores": 2, "processor": "p", "python": "3", "versions": {"numpy": "2"}, "load": [0.1], "when": "today"}
    found = {"machine": where, "quick": False, "turns": 5, "tables": [table("PPO on CartPole-v1: speed", 200.0, 100.0)]}
    write({"training": found}, tmp_path)
    page = (tmp_path / "RESULTS.md").read_text("utf-8")
    assert "| PPO on CartPole, speed over Stable-Baselines3, in: 3x | 2 | **missed** |" in page
    assert "| PPO on CartPole, speed over RLlib: 12x | | not measured |" in page
    assert "| RLlib | | | | | not measured: n |" in page
    assert (tmp_path / "plots" / "training.svg").stat().st_size > 1000
    found["tables"] = [table("PPO on pong: mean return", -20.0, -21.0)]
    write({"training": found}, tmp_path)  # on an axis that has negative numbers


def test_the_model_grows_with_the_ranks():
    small, large = model(1_000, Costs()), model(100_000, Costs())
    assert large["root messages/s"] > 50 * small["root messages/s"]
    assert small["all-reduce ms"] < large["all-reduce ms"] < 2 * small["all-reduce ms"]  # by hops, not by ranks


@pytest.mark.parametrize("make", micro.PAIRS, ids=lambda make: make.__name__)
def test_what_micro_times_still_runs(make):
    pair = make()
    pair.ours()
    pair.least()


def test_seconds_to_a_threshold_are_those_of_the_first_hundred_episodes_that_reach_it():
    episodes = [(float(time), 0.0 if time < 50 else 100.0) for time in range(300)]
    assert seconds_to(100.0, episodes) == 149.0
    assert seconds_to(101.0, episodes) == seconds_to(0.0, episodes[:99]) == float("inf")


@pytest.mark.mpirun
@pytest.mark.tier("all")
def test_the_benchmark_of_the_defaults_trains_evaluates_and_reads_the_records(capsys):
    """It starts a run and reads what it has written; whatever changes in either would break it unseen."""
    arguments = ("--tasks", "cartpole 100k", "--copies", "2", "--seeds", "1", "--steps", "600", "--episodes", "1")
    assert defaults.main(["ppo", *arguments, "--only", "arena"]) == 0
    title, last, greedy, seed, speed = re.split(r"\s{2,}", capsys.readouterr().out.splitlines()[-1].strip())
    assert title == "ppo CartPole 100k, 2" and float(last) > 8 and round(float(greedy)) == int(seed) and speed
