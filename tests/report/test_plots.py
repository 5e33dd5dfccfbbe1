"""Plots and the end table: every player in its own colour, true to the records, and never the end of a run."""

import json
import logging
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from arena.common.errors import ConfigError
from arena.launch import main
from arena.protocol.messages import Episode, Progress
from arena.records.player_statistics import PlayerInfo
from arena.records.readers.run import Series, open_records, read_metrics, read_returns
from arena.records.run_directory import RunDirectory
from arena.records.writers.run import RecordWriter
from arena.report.plots import (
    MAX_POINTS,
    draw_metrics,
    draw_plots,
    draw_returns,
    mean_over_steps,
    running_mean,
    save_figure,
    thin,
    write_plots,
)
from arena.report.summary import render, summarise, write_summary
from arena.report.terminal import Terminal

INFO = {"blue": PlayerInfo("ppo", "#3b82f6", budget=3000), "red": PlayerInfo("random", "#ef4444", learns=False)}


@pytest.fixture
def run(tmp_path) -> RunDirectory:
    run = RunDirectory(tmp_path, "quickstart")
    run.create("steps: 3000\n", {}, resume=False)
    return run


def played(blue: float, **changes) -> Episode:
    plain = Episode(0, 0, 10, 0.1, ("blue", "red"), (blue, -blue), (10, 10), (None, None), False, None, time.time())
    return plain._replace(**changes)


def learn(records: RecordWriter, updates: range) -> None:
    for update in updates:
        records.progress(Progress("blue", 0, 10 * update, update, True, {"entropy": 1 / (1 + update), "kl": 0.01}))
        records.episode(played(update / 100))


def trained(run: RunDirectory, updates: int = 300) -> RecordWriter:
    records = RecordWriter(run, INFO, host="node1", ranks=6)
    learn(records, range(updates))
    records.flush(force=True)
    return records


def has_color(picture: Path, color: str) -> bool:
    """Return whether a picture has pixels of very nearly a colour."""
    wanted = np.array([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return bool((np.abs(imread(picture)[..., :3] - wanted).max(axis=-1) < 0.02).any())


def test_the_reward_curves_are_drawn_in_the_players_colours(run):
    trained(run).close(0)
    pictures = write_plots(run)
    assert pictures == [run.plots / "returns.png", run.plots / "blue.png"]
    assert has_color(pictures[0], "#3b82f6") and has_color(pictures[0], "#ef4444")
    assert has_color(pictures[1], "#3b82f6") and not has_color(pictures[1], "#ef4444")
    assert imread(pictures[0]).shape[1] > 1000


def test_the_curve_is_the_running_mean_over_the_players_steps(run):
    trained(run).close(0)
    with open_records(run.database) as connection:
        returns = read_returns(connection)
    figure = draw_returns("quickstart", INFO, returns)
    (axes,) = figure.axes
    line = next(line for line in axes.lines if line.get_label() == "blue (ppo)")
    assert line.get_xdata()[-1] == 2990
    assert line.get_ydata()[-1] == pytest.approx(np.mean(np.arange(200, 300) / 100))
    assert axes.get_xlabel() and axes.get_ylabel() and axes.get_title(loc="left") == "quickstart"


def test_the_curve_goes_by_steps_where_reports_of_matches_come_one_behind_the_other(run):
    records = RecordWriter(run, INFO, host="node1", ranks=6)
    records.begin_round(0)
    records.steps_of_episodes.begin_matches({("blue", match): 2.0 for match in (0, 1)}, {})
    for match in (0, 1):
        for steps in range(10, 110, 10):
            records.episode(played(steps + match, match=match, steps={"blue": steps + match}))
    records.close(0)
    with open_records(run.database) as connection:
        series = read_returns(connection)["blue"]
    assert list(series.steps) == [2 * (steps + match) for steps in range(10, 110, 10) for match in (0, 1)]
    assert list(series.values) == list(series.steps / 2)


def test_every_metric_has_a_panel_whatever_its_name(run):
    records = RecordWriter(run, INFO, host="node1", ranks=6)
    for update in range(5):
        own = {"kl": 0.1, "approx_kl": 0.2, "loss/q": 1.0, "$o|d$d": 2.0}
        records.progress(Progress("blue", 0, 10 * update, update, True, own))
    records.close(0)
    with open_records(run.database) as connection:
        metrics = read_metrics(connection)["blue"]
    figure = draw_metrics("run", "blue", "#3b82f6", metrics)
    titles = [axes.get_title(loc="left") for axes in figure.axes if axes.get_visible()]
    assert titles == ["KL divergence per update", "approx_kl", "loss/q", "$o|d$d"]
    save_figure(figure, run.plots / "blue.png")
    many = {f"metric {number}": metrics["kl"] for number in range(200)}
    figure = draw_metrics("run", "blue", "#3b82f6", many)
    assert sum(axes.get_visible() for axes in figure.axes) == 48 and "48 of 200 metrics" in figure.get_suptitle()


@pytest.mark.parametrize(("players", "length"), [(1, 4), (2, 40), (4, 26), (12, 8), (3, 150)])
def test_the_legend_leaves_the_curves_their_width(players, length):
    names = [f"{number}".ljust(length, "x") for number in range(players)]
    series = Series(np.arange(100.0), np.arange(100.0), np.arange(100.0))
    info = {name: PlayerInfo("ppo", "#3b82f6") for name in names}
    figure = draw_returns("run", info, dict.fromkeys(names, series))
    figure.draw_without_rendering()
    assert figure.axes[0].get_position().width > 0.7


def test_what_a_resumed_run_left_behind_is_not_drawn(run):
    first = trained(run, 200)
    state = json.loads(json.dumps(first.state()))
    learn(first, range(201, 300))  # lost: the checkpoint was made before
    first.close(1)
    second = RecordWriter(run, INFO, host="node1", ranks=6)
    second.restore(state, 1)
    second.progress(Progress("blue", 0, 2005, 201, True, {"entropy": 7.0}))
    second.episode(played(-5.0))
    second.close(0)
    with open_records(run.database) as connection:
        returns, metrics = read_returns(connection)["blue"], read_metrics(connection)["blue"]
    assert len(returns.values) == 201 and returns.values[-1] == -5.0
    assert metrics["entropy"].steps[-1] == 2005 and np.all(np.diff(metrics["entropy"].steps) > 0)


def test_episodes_that_a_fault_cut_are_not_drawn(run):
    records = trained(run, 5)
    records.episode(played(-1000.0, cause="fault:died", truncated=True))
    records.episode(played(0.5, cause="reset_by:1", truncated=True))
    records.close(0)
    with open_records(run.database) as connection:
        assert list(read_returns(connection)["blue"].values) == pytest.approx([0.0, 0.01, 0.02, 0.03, 0.04, 0.5])


@pytest.mark.parametrize("episodes", [1, 2, 30])
def test_short_runs_can_be_drawn(run, episodes):
    trained(run, episodes).close(0)
    assert has_color(write_plots(run)[0], "#3b82f6")


def test_a_run_without_an_episode_has_no_plots(run):
    RecordWriter(run, INFO, host="node1", ranks=6).close(0)
    assert write_plots(run) == []


def test_records_that_cannot_be_read_cost_the_plots_alone(run, caplog):
    with pytest.raises(ConfigError, match="expected the records of a run, found no such file"):
        draw_plots(run)
    run.database.write_bytes(b"not a database at all" * 50)
    with caplog.at_level(logging.WARNING):
        assert write_plots(run) == []
    assert "cannot be drawn" in caplog.text


def test_long_runs_are_thinned_without_a_change_of_shape():
    x = np.sort(np.random.default_rng(0).integers(0, 10**6, 200_000)).astype(float)
    thin_x, thin_y = thin(x, np.sin(x / 1e5))
    assert len(thin_x) <= MAX_POINTS and np.all(np.diff(thin_x) > 0)
    assert np.allclose(thin_y, np.sin(thin_x / 1e5), atol=1e-3)


def test_the_running_mean_looks_back_only():
    assert list(running_mean(np.array([1.0, 3.0, 5.0, 7.0]), 2)) == [1.0, 2.0, 4.0, 6.0]
    steps = np.concatenate([np.arange(0.0, 1000.0), np.arange(1000.0, 4001.0, 10.0)])  # thinned from 1000 on
    lag = steps - mean_over_steps(steps, steps)
    assert lag[0] == 0 and lag[900] == lag[-1] == 50.0, "half of what is averaged over"


def test_the_pictures_can_be_drawn_again_from_the_shell(run, capsys):
    trained(run).close(0)
    assert main(["plots", str(run.path)]) == 0
    assert capsys.readouterr().out.split() == [str(run.plots / "returns.png"), str(run.plots / "blue.png")]
    assert main(["plots", str(run.path / "nothing")]) == 2


def test_plots_load_neither_torch_nor_matplotlib_before_they_are_drawn():
    code = (
        "import sys, arena.report.plots, arena.report.summary, arena.report.progress, arena.records.writers.run\n"
        "assert not {'torch', 'matplotlib'} & set(sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_the_end_table_says_what_everybody_did(run, capsys, monkeypatch):
    monkeypatch.setenv("ARENA_TERMINAL", "plain")
    records = trained(run)
    records.close(0)
    write_plots(run)
    text = write_summary(run, records)
    assert run.summary.read_text() == text
    blue = next(line for line in text.splitlines() if "● blue" in line).split()
    assert blue[2:8] == ["ppo", "2,990", "299", "300", "2.50", "2.50"]
    assert "100% / 0% / 0% of 300" in " ".join(blue)
    assert str(run.path) in text and str(run.plots / "returns.png") in text
    summary = json.loads(run.summary.with_suffix(".json").read_text())
    assert summary["players"]["blue"]["mean_return"] == pytest.approx(2.495)
    assert summary["players"]["red"]["losses"] == 299, "the first one was a draw"
    assert "\x1b" not in text


def test_the_end_table_is_in_colours_on_a_terminal_and_fits_it(run, monkeypatch):
    monkeypatch.setenv("ARENA_TERMINAL", "120x40")
    records = trained(run, 3)
    records.close(0)
    assert re.search(r"\x1b\[38;[\d;]+m●", write_summary(run, records))
    table = render(run, summarise(records), Terminal(True, 80, 40)).split("wall time")[0]
    assert max(len(re.sub(r"\x1b\[[\d;]*m", "", line)) for line in table.splitlines()) <= 80
    assert "…" not in table and "ppo" not in table and "-0.01" in table


def test_outcomes_are_left_out_where_there_are_none(run):
    records = RecordWriter(run, {"solo": PlayerInfo("ppo", "#3b82f6")}, host="node1", ranks=3)
    records.episode(played(1.0, players=("solo",), returns=(1.0,), lengths=(10,), outcomes=(None,)))
    records.close(0)
    assert "win / draw / loss" not in write_summary(run, records)
