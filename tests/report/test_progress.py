"""The live view: fits every terminal, costs next to nothing, and leaves plain lines where there is no terminal."""

import collections
import fcntl
import io
import logging
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from arena.common.text import compact, duration, number
from arena.protocol.messages import Episode, Episodes, Progress
from arena.records.player_statistics import PlayerInfo, PlayerStatistics
from arena.records.run_directory import RunDirectory
from arena.records.writers.run import RecordWriter
from arena.report.progress import ProgressView, main
from arena.report.progress_table import ProgressState, draw, plain_line, spark
from arena.report.terminal import Terminal, find_terminal


def statistics(
    color: str = "#3b82f6", *, use: str = "ppo", steps: int = 1200, budget: int | None = 4000
) -> PlayerStatistics:
    player = PlayerStatistics(PlayerInfo(use, color, budget is not None, budget))
    for second in range(11):
        player.progress(float(second), 0, steps * second // 10, second, pooled=True)
    for episode in range(250):
        player.finish(10.0, episode / 100, 20, 20)
    return player


def frame(players: int = 2, **changes) -> ProgressState:
    named = {f"player_{index}": statistics() for index in range(players)}
    return ProgressState("quickstart", 83.0, 0, 1, 1, 5000, 500.0, 0, named, 10.0)._replace(**changes)


@pytest.fixture
def records(tmp_path):
    run = RunDirectory(tmp_path, "quickstart")
    run.create("steps: 400\n", {}, resume=False)
    info = {"blue": PlayerInfo("ppo", "#3b82f6", budget=400), "red": PlayerInfo("random", "#ef4444", learns=False)}
    records = RecordWriter(run, info, host="node1", ranks=6)
    for update in range(1, 5):
        played = Episode(0, 0, 20, 0.1, ("blue", "red"), (1.0, -1.0), (20, 20), (None, None), False, None, time.time())
        records.episodes(Episodes(0, (played,), 20))
        records.progress(Progress("blue", 0, 50 * update, update, True, {"kl": 0.01}))
    yield records
    records.close(0)


def lines_of(text: str) -> list[str]:
    """Return what is left of terminal output once colours and cursor control are taken away."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "\n").split("\n")


@pytest.mark.parametrize("width", [20, 40, 60, 80, 100, 120, 200])
@pytest.mark.parametrize("players", [1, 4, 40])
def test_it_fits_every_terminal(width, players):
    lines = draw(frame(players), width, 24).plain.split("\n")
    assert len(lines) <= 24
    assert max(map(len, lines)) <= max(width, 31), "player and return are shown on the narrowest"
    assert "player_0" in lines[3]


def test_players_that_do_not_fit_are_counted():
    text = draw(frame(40), 120, 24).plain
    shown = len(re.findall(r"player_\d", text))
    assert f"… and {40 - shown} more players" in text and shown >= 15


def test_a_wide_terminal_tells_everything():
    players = {"blue": statistics(), "red": statistics("#ef4444", use="random", budget=None)}
    text = draw(frame()._replace(players=players), 120, 24).plain
    blue = next(line for line in text.split("\n") if "blue" in line)
    for part in ("ppo", "━", "1.2k / 4.0k", "▁", "█", "2.00", "120", "0:23", "10"):
        assert part in blue, part
    red = next(line for line in text.split("\n") if "red" in line)
    assert "random" in red and "━" not in red and "/" not in red
    assert "1 match" in text and "500 environment steps/s" in text and "no faults" in text and "1:23" in text


@pytest.mark.parametrize("players", [1, 16, 40])
def test_what_environments_measure_is_shown_where_there_is_room(players):
    state = frame(players)
    for player in state.players.values():
        player.measure({"shortage": 203_000.0, "orders": 2_240_000.0})
        player.measure({"shortage": 205_000.0, "orders": 2_240_000.0})
    lines = draw(state, 80, 24).plain.split("\n")
    assert len(lines) <= 24 and max(map(len, lines)) <= 80
    assert ("shortage 204k  orders 2.24M" in "\n".join(lines)) == (players < 40)
    assert plain_line(state, "player_0").endswith("shortage 204k  orders 2.24M")


def test_rounds_and_faults_are_shown_when_there_are_any():
    text = draw(frame(round=2, rounds=5, faults=3), 120, 24).plain
    assert "round 3 of 5" in text and "3 faults" in text


def test_before_the_first_report_nothing_is_made_up():
    players = {"blue": PlayerStatistics(PlayerInfo("path/to/mine.py:Mine", "#3b82f6", budget=100))}
    text = draw(frame()._replace(players=players), 120, 24).plain
    assert "Mine" in text and "–" in text
    assert plain_line(frame()._replace(players=players), "blue") == "[1:23] blue: 0/100 steps (0%)  0 steps/s"


def test_a_spent_budget_is_done():
    players = {"blue": statistics(steps=4010)}
    blue = draw(frame()._replace(players=players), 120, 24).plain.split("\n")[3]
    assert "done" in blue


def test_a_plain_line_says_what_the_view_shows():
    assert plain_line(frame(), "player_1") == (
        "[1:23] player_1: 1,200/4,000 steps (30%)  return 2.00 (last 100 of 250 episodes)  "
        "120 steps/s  0:23 left  10 updates"
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (999, "999"),
        (1234, "1.2k"),
        (182_400, "182k"),
        (999_900, "1.00M"),
        (4_560_000, "4.56M"),
        (7.2e10, "72.0G"),
    ],
)
def test_counts_are_short(value, text):
    assert compact(value) == text and len(text) <= 5


@pytest.mark.parametrize(
    ("value", "text"), [(-0.834, "-0.83"), (475.36, "475.4"), (-21, "-21.00"), (123_456, "123k"), (float("nan"), "nan")]
)
def test_returns_keep_the_digits_that_matter(value, text):
    assert number(value) == text


@pytest.mark.parametrize(("value", "text"), [(5, "0:05"), (3600, "1:00:00"), (3 * 86400 + 7200, "3 d 2 h")])
def test_times_are_read_at_a_glance(value, text):
    assert duration(value) == text


def test_a_spark_line_spans_from_the_lowest_to_the_highest():
    assert spark([0, 1, 2, 3, 4, 5, 6, 7]) == "▁▂▃▄▅▆▇█"
    assert spark([5, 5, 5]) == "▁▁▁" and spark([]) == ""
    assert spark([0, float("nan"), 1]) == "▁ █"


def test_drawing_thirty_players_takes_few_calls(records):
    """On rank 0 it happens between messages. ``benchmarks.micro`` has the milliseconds: 2.4 for 15,800 calls."""
    records.players.update({f"player_{index}": statistics() for index in range(30)})
    view = ProgressView(records, stream=io.StringIO(), terminal=Terminal(True, 120, 40))
    view.update(force=True)
    calls = collections.Counter()
    sys.setprofile(lambda _frame, event, _argument: calls.update((event,)))
    try:
        view.update(force=True)
    finally:
        sys.setprofile(None)
    view.close()
    assert calls["call"] < 20_000


def test_it_redraws_in_place_and_not_too_often(records):
    stream = io.StringIO()
    view = ProgressView(records, stream=stream, terminal=Terminal(True, 120, 40))
    for _ in range(1000):
        view.update()
    once = stream.getvalue().count("quickstart")
    assert once == 1
    view.update(force=True)
    assert "\x1b[1A" in stream.getvalue(), "the cursor goes back up"
    view.close()
    view.close()
    assert "\x1b[?25h" in stream.getvalue(), "the cursor is shown again"
    assert "\x1b[38;" in stream.getvalue(), "players have their colours"


def test_what_is_logged_stands_above_the_view(records):
    stream = io.StringIO()
    view = ProgressView(records, stream=stream, terminal=Terminal(True, 120, 40))
    view.update(force=True)
    records.log_line("WARNING", "checkpoint 3 is left out: disk full")
    view.close()
    lines = lines_of(stream.getvalue())
    assert "warning: checkpoint 3 is left out: disk full" in lines
    logging.getLogger("arena").info("after the view is closed")
    assert "after the view is closed" not in stream.getvalue()


def test_without_a_terminal_there_are_plain_lines(records):
    stream = io.StringIO()
    view = ProgressView(records, stream=stream, terminal=Terminal(False))
    view.update()
    assert stream.getvalue() == "", "the first lines come after ten seconds"
    records.log_line("INFO", "checkpoint 1 is complete")
    view.close()
    written = stream.getvalue().splitlines()
    assert written[0] == "checkpoint 1 is complete"
    assert re.match(r"\[0:00\] blue: 200/400 steps \(50%\)  return 1.00 \(last 4 of 4 episodes\)  ", written[1])
    assert re.match(r"\[0:00\] red: \d+ steps  return -1.00 ", written[2])
    assert "\x1b" not in stream.getvalue()


def test_the_terminal_on_the_other_side_of_mpirun_is_believed(records):
    pipe = io.StringIO()
    assert find_terminal(pipe, {}) == Terminal(False)
    assert find_terminal(pipe, {"ARENA_TERMINAL": "120x40"}) == Terminal(True, 120, 40)
    assert find_terminal(pipe, {"ARENA_TERMINAL": "plain"}) == Terminal(False)
    assert find_terminal(pipe, {"ARENA_TERMINAL": "120x40", "TERM": "dumb"}) == Terminal(False)


@pytest.mark.parametrize("launcher_on_terminal", [True, False])
def test_a_pseudo_terminal_from_the_launcher_is_not_taken_for_a_real_one(launcher_on_terminal):
    """mpirun gives its ranks a terminal of its own, also where it writes to a file itself."""
    rank = (
        "import sys; from arena.report.terminal import find_terminal; print(find_terminal(sys.stdout), file=sys.stderr)"
    )
    launcher = f"""
import os, pty, subprocess, sys
inner, outer = pty.openpty()
subprocess.run([sys.executable, "-c", {rank!r}], stdout=outer)
"""
    environment = {**os.environ, "TERM": "xterm", "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "6"}
    environment.pop("ARENA_TERMINAL", None)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 111, 0, 0))
    output = theirs if launcher_on_terminal else subprocess.DEVNULL
    done = subprocess.run(
        [sys.executable, "-c", launcher], check=True, stdout=output, stderr=subprocess.PIPE, text=True, env=environment
    )
    os.close(ours)
    os.close(theirs)
    assert done.stderr.strip() == str(Terminal(True, 111, 33) if launcher_on_terminal else Terminal(False))


def test_on_a_real_terminal_it_draws_and_through_a_pipe_it_does_not(records):
    """One program, once on a pseudo terminal and once on a pipe."""
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[1] / "records")!r})
from test_records import records_of
from arena.report.progress import ProgressView
from arena.records.run_directory import RunDirectory
records = records_of(RunDirectory({str(records.run.path.parent)!r}, "quickstart"))
view = ProgressView(records)
view.update()
view.close()
records.close(0)
assert "torch" not in sys.modules
"""
    environment = {**os.environ, "TERM": "xterm-256color"}
    for variable in ("ARENA_TERMINAL", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"):
        environment.pop(variable, None)
    ours, theirs = pty.openpty()
    process = subprocess.Popen([sys.executable, "-c", code], stdout=theirs, env=environment)
    shown = b""
    while process.poll() is None or select.select([ours], [], [], 0)[0]:
        if select.select([ours], [], [], 0.1)[0]:
            shown += os.read(ours, 65536)
    os.close(ours)
    os.close(theirs)
    assert process.returncode == 0
    assert b"\x1b[?25l" in shown and b"return so far" in shown
    piped = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, env=environment)
    assert b"\x1b" not in piped.stdout and b"blue: 0/1,000 steps (0%)" in piped.stdout


def test_a_picture_is_drawn_from_the_records_of_a_run(records, tmp_path, capsys):
    records.flush(force=True)
    picture = tmp_path / "view.svg"
    assert main([str(records.run.path), "--picture", str(picture), "--width", "110"]) == 0
    root = ET.parse(picture).getroot()
    shown = "".join(root.itertext()).replace("\xa0", " ")
    for part in ("arena quickstart", "blue", "200", "/ 400", "-1.00", "1 match"):
        assert part in shown, part
    assert "@font-face" not in picture.read_text()
    assert main([str(tmp_path / "nothing"), "--picture", str(picture)]) == 2
    assert "error: " in capsys.readouterr().err
