"""If these fail, a benchmark compares the wrong numbers, or stops at a peer that is not there."""

import json

import pytest

from benchmarks.measuring import MissingPeerError, compete, conclude, options, parse
from benchmarks.running import run_peer
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
    assert "other 7" in table.rows[1].note
    assert "skipped: needs nothing_of_that_name" in capsys.readouterr().out

    args = parse(options("race", "Who is faster."), ["--json", str(tmp_path / "race.json"), "--quick"])
    assert conclude("race", args, [table]) == 0
    written = json.loads((tmp_path / "race.json").read_text("utf-8"))
    assert written["tables"][0]["rows"][1]["ratio"] == 2.5
    assert written["machine"]["cores"] >= 1 and "numpy" in written["machine"]["versions"]


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
