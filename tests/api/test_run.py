"""``arena.Run``: the records of a run as columns, its state, its players, and evaluations."""

import random
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch

import arena
from arena.protocol.messages import Episode, Progress
from arena.records.player_statistics import PlayerInfo
from arena.records.run_directory import RunDirectory
from arena.records.writers.run import RecordWriter
from benchmarks.tools.trained import POLE, give_weights, make_run

DUEL = """
name: duel
steps: 1000
env: {use: touchdown, settings: {team_size: 1}}
policies: {blue: {use: ppo, settings: {hidden: [8]}}, red: {use: random}}
matches: [{seats: [blue, red]}]
"""
PLAYERS = {"blue": PlayerInfo("ppo", "#3b82f6", budget=1000), "red": PlayerInfo("random", "#ef4444", learns=False)}


def records_of(directory: RunDirectory) -> RecordWriter:
    records = RecordWriter(directory, PLAYERS, host="node1", ranks=3, tensorboard=False)
    records.begin_round(0)
    return records


def episode(number: int, blue: float, **changes) -> Episode:
    plain = Episode(
        match=0,
        copy=0,
        length=10 + number,
        seconds=0.5,
        players=("blue", "blue", "red"),
        returns=(blue, blue + 2, -blue),
        lengths=(10, 10, 10),
        outcomes=(None, None, None),
        truncated=False,
        cause=None,
        ended_at=1000.0 + number,
    )
    return plain._replace(**changes)


def report(records: RecordWriter, steps: int) -> None:
    records.progress(Progress("blue", 0, steps, steps // 100, True, {"loss/policy": steps / 1000}))


@pytest.fixture
def directory(tmp_path) -> RunDirectory:
    return make_run(tmp_path, DUEL)


@pytest.fixture
def run(directory) -> arena.Run:
    """Return a run that was resumed from 200 steps after it had come to 300."""
    first = records_of(directory)
    for number, steps in enumerate((100, 200, 300)):
        if steps == 300:
            state = first.state()
        report(first, steps)
        first.episode(episode(number, float(number), metrics=({"shortage": 4.0}, {"shortage": 6.0}, {})))
    first.episode(episode(9, 99.0, cause="fault: it raised"))
    first.close(1)
    second = records_of(directory)
    second.restore(state, 1)
    report(second, 250)
    second.episode(episode(7, 7.0, outcomes=("win", "win", "loss"), truncated=True))
    second.close(0)
    return arena.Run(directory.path)


def test_episodes_are_columns(run):
    episodes = run.episodes()
    blue = run.episodes("blue")
    assert episodes.rows == 6 and blue.rows == 3
    assert blue["steps"].tolist() == [100, 200, 250] and blue["return"].tolist() == [1.0, 2.0, 8.0]
    assert blue["length"].tolist() == [10, 11, 17] and blue["outcome"].tolist() == ["win", "win", "win"]
    assert blue["truncated"].tolist() == [False, False, True] and set(blue["player"]) == {"blue"}
    np.testing.assert_array_equal(blue["metrics/shortage"], [5.0, 5.0, np.nan])
    assert {len(column) for column in episodes.values()} == {6}
    with pytest.raises(KeyError, match="no records of player 'bleu' .did you mean 'blue'.*there are: blue, red"):
        run.episodes("bleu")
    with pytest.raises(KeyError, match="expected a column among episode, player"):
        episodes["reward"]


def test_metrics_are_columns_and_frames(run):
    metrics = run.metrics("blue", "loss/policy")
    assert metrics["steps"].tolist() == [100, 200, 250] and metrics["value"].tolist() == [0.1, 0.2, 0.25]
    frame = metrics.frame()
    assert list(frame.columns) == ["player", "name", "steps", "updates", "time", "value"] and len(frame) == 3
    assert "<table" in run.episodes()._repr_html_()


def test_pandas_is_named_where_it_is_missing(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    columns = run.episodes()
    with pytest.raises(arena.ConfigError, match=r"frame\(\) needs the package 'pandas'.*pip install 'arena-mpi\[note"):
        columns.frame()
    assert "6 rows" in columns._repr_html_()


def test_payoff_and_ratings(run):
    payoff = run.payoff()
    row = dict(zip(payoff["player"], payoff["win_rate"], strict=True))
    assert row["blue"] == 1.0 and row["red"] == 0.0
    assert (payoff["low"] <= payoff["win_rate"]).all() and (payoff["win_rate"] <= payoff["high"]).all()
    assert run.payoff(all_games=True)["games"].tolist() == payoff["games"].tolist(), "of a table they are the same"
    ratings = run.ratings()
    assert ratings["rating_of"].tolist() == ["blue", "red"] and (ratings["fitted_low"] < ratings["fitted_high"]).all()
    assert ratings["player"].tolist() == ["blue", "red"] and ratings["mu"][0] > ratings["mu"][1]


def test_the_state_of_a_run(run, directory):
    assert [(attempt.number, attempt.exit_code, attempt.host) for attempt in run.attempts] == [
        (1, 1, "node1"),
        (2, 0, "node1"),
    ]
    assert run.exit_code == 0 and not run.finished and not run.is_running and run.name == "duel"
    assert repr(run) == f"Run('{directory.path}', stopped)"
    assert run.config.policies["blue"].use == "ppo"
    assert list(run.players) == ["blue", "red"] and len(run.players) == 2
    with pytest.raises(KeyError, match="expected a player among blue, red, found 'green'"):
        run.players["green"]
    with pytest.raises(arena.ConfigError, match="expected weights in"):
        run.players["blue"]
    with pytest.raises(arena.ConfigError, match="expected a run directory"):
        arena.Run(directory.path / "nowhere")


def test_a_notebook_shows_a_table_and_curves(run):
    html = run._repr_html_()
    assert "<table>" in html and "<svg" in html and "&#9679;</span> blue" in html and "stopped" in html


def test_a_run_that_is_being_written_can_be_stopped(directory):
    script = f"""
        import signal, sys, time
        from arena.records.run_directory import RunDirectory
        run = RunDirectory.existing({str(directory.path)!r})
        stopped = []
        signal.signal(signal.SIGUSR1, lambda *_: stopped.append(1))
        run.take_lease()
        print("running", flush=True)
        while not stopped:
            time.sleep(0.02)
        run.release_lease()
    """
    run = arena.Run(directory.path)
    run.stop()  # nothing runs
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"running\n"
        assert run.is_running and "running" in repr(run) and not run.finished
        with pytest.raises(TimeoutError, match="still runs after 0.1 s"):
            run.wait(0.1)
        run.stop()
        assert run.wait(30) is run and process.wait(30) == 0
    assert not run.is_running


def test_evaluate_leaves_the_global_generators_alone(tmp_path):
    run = make_run(tmp_path, POLE)
    give_weights(run, "blue", 1000)

    def draws() -> tuple:
        return random.random(), np.random.random(), torch.rand(1).item()  # noqa: NPY002

    states = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    expected = draws()
    random.setstate(states[0]), np.random.set_state(states[1]), torch.set_rng_state(states[2])  # noqa: NPY002
    results = arena.Run(run.path).evaluate(episodes=5, deterministic=True)
    assert draws() == expected
    assert len(results["blue"].returns) == 5 and results["blue"].mean >= 8
    assert results["blue"].returns == arena.Run(run.path).evaluate(5, deterministic=True)["blue"].returns
    assert repr(results).startswith("Results(blue: ") and not results.pairs
    with pytest.raises(KeyError, match="expected a player that has played"):
        results["red"]
    with pytest.raises(arena.ConfigError, match="expected 0 to 0, or all, found '3'"):
        arena.Run(run.path).evaluate(row=3)
