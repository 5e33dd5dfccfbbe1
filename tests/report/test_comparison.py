"""``arena compare`` and ``arena.compare``: groups of runs, their statistics and their picture."""

import json
from pathlib import Path

import numpy as np
import pytest

import arena
from arena.launch.command_line import main
from arena.records.player_statistics import PlayerInfo
from arena.records.run_directory import RunDirectory
from arena.records.writers.run import RecordWriter
from arena.report.comparison import band, interval
from arena.report.run_groups import Curve, group_runs, read_run, short_names
from benchmarks.tools.trained import POLE, make_run

PLAYERS = {"blue": PlayerInfo("ppo", "#3b82f6", budget=1000)}


def evaluated_run(root: Path, name: str, scores: list[float], *, every: int = 100, **keys: object) -> RunDirectory:
    """Make the directory of a run with an evaluation of ``blue`` for each score."""
    root.mkdir(parents=True, exist_ok=True)
    text = POLE.replace("name: pole", f"name: {name}").replace("hidden: [8]", keys.pop("settings", "hidden: [8]"))
    run = make_run(root, text + "".join(f"{key}: {value}\n" for key, value in keys.items()))
    (root / "config.yaml").unlink()  # with it, the folder would be a run itself
    records = RecordWriter(run, PLAYERS, host="node1", ranks=3, tensorboard=False)
    records.begin_round(0)
    for number, score in enumerate(scores):
        records.evaluations.add("blue", every * (number + 1), [score - 1, score + 1], 0.1, "snapshot")
    records.close(0)
    return run


def test_intervals_are_those_of_rliable():
    """The numbers of rliable 1.2: np.random.seed(0), then get_interval_estimates of aggregate_iqm, 50,000 samples."""
    found = interval(np.array([465.1, 366.6, 126.1, 500.0, 500.0]))
    assert found[1:] == pytest.approx((443.9, 206.26666666666665, 500.0))
    found = interval(np.array([84.7, 221.0, 482.0, 201.0, 169.0]))
    assert found[1:] == pytest.approx((197.0, 112.8, 395.0))
    assert interval(np.array([3.0])) == (3.0, 3.0, None, None)


def test_a_curve_ends_where_its_shortest_run_does():
    long, short = Curve(np.array([100, 300]), np.array([0.0, 2.0])), Curve(np.array([100, 200]), np.array([4.0, 4.0]))
    assert band([long, long]).steps.tolist() == [100, 300]
    steps, iqm, low, high = band([long, short])
    assert steps.tolist() == [100, 200] and iqm.tolist() == [2.0, 2.5]
    assert (low <= iqm).all() and (iqm <= high).all()


def test_runs_that_differ_in_their_seeds_form_a_group(tmp_path, capsys):
    for seed in (1, 2):
        evaluated_run(tmp_path / "s", f"fast_{seed}", [1, 9, 8 + seed], seed=seed)
        evaluated_run(tmp_path / "s", f"slow_{seed}", [1, 2], seed=seed, settings="learning_rate: 1e-5")
    assert main(["compare", str(tmp_path / "s"), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["measure"] == "evaluations" and Path(data["picture"]) == tmp_path / "s" / "compare.png"
    assert Path(data["picture"]).stat().st_size > 10_000
    fast, slow = data["results"]
    assert [run["seed"] for run in fast["runs"]] == [1, 2]
    assert [run["final"] for run in fast["runs"]] == [9, 10] and fast["final"]["mean"] == 9.5
    assert slow["curve"]["steps"] == [100, 200]
    assert "learning_rate" in fast["label"] and "hidden" in fast["label"] and "seed" not in fast["label"]
    assert main(["compare", str(tmp_path / "s")]) == 0
    text = capsys.readouterr().out
    assert "note: " in text and "fewer than 4" in text and "9.50" in text
    compared = arena.compare(tmp_path / "s" / "fast_1", arena.Run(tmp_path / "s" / "slow_1"))
    assert compared.table["final_mean"].tolist() == [9, 2] and np.isnan(compared.table["final_low"]).all()
    assert "<svg" in compared._repr_html_()


def test_another_algorithm_is_named_without_its_settings(tmp_path):
    runs = [
        read_run(evaluated_run(tmp_path / "a", "a", [1.0])),
        read_run(evaluated_run(tmp_path / "b", "b", [1.0], settings="hidden: [8]")),
    ]
    assert [group.label for group in group_runs(runs)] == [""]
    other = runs[1]._replace(keys=runs[1].keys | {"policies.blue.use": "dqn", "policies.blue.settings.gamma": "0.5"})
    assert [group.differs for group in group_runs([runs[0], other])] == [
        {"policies.blue.use": "ppo"},
        {"policies.blue.use": "dqn"},
    ]
    assert short_names(["a.lr", "b.lr", "b.gamma"]) == {"a.lr": "a.lr", "b.lr": "b.lr", "b.gamma": "gamma"}


def test_what_cannot_be_compared_is_a_sentence(tmp_path, capsys):
    run = evaluated_run(tmp_path / "s", "one", [1.0])
    bare = make_run(tmp_path / "s", POLE)
    assert main(["compare", str(tmp_path / "none")]) == 2
    assert main(["compare", str(run), "--player", "bleu"]) == 2
    assert main(["compare", str(run), "--of", "returns"]) == 2
    assert main(["compare", str(run), "--output", str(tmp_path / "x.pdf")]) == 2
    assert main(["compare", str(bare)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 5 and all(line.startswith("error: ") for line in lines)
    assert "did you mean 'blue'?" in lines[1] and "no episode has ended" in lines[2] and "arena.sqlite" in lines[4]
