"""Curves of long runs: read in pieces, kept in a file, and equal to those that are read in order and at once."""

import numpy as np
import pytest

from arena.page.series import backlog, cache
from arena.page.series.backlog import Backlog, spread
from arena.page.source import Source
from arena.records.readers.run import open_records, read_returns
from arena.records.run_directory import RunDirectory
from tests.page.conftest import add, episode, record


@pytest.fixture(autouse=True)
def small(monkeypatch, tmp_path):
    """Small pieces, a file after few rows, and a folder of its own for it."""
    monkeypatch.setattr(backlog, "CHUNK", 7)
    monkeypatch.setattr(cache, "WORTHWHILE", 50)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def read(source: Source) -> dict[tuple[str, str], dict]:
    while source.read_next():
        pass
    return {(part["player"], part["name"]): part for part in source.curves.changes(["blue", "red"])}


def test_rows_are_read_once_and_the_newest_ones_first():
    rows = Backlog()
    rows.extend(50)
    first = rows.pop()
    rows.extend(54)
    assert (first, rows.pop()) == ((0, 7), (50, 54))
    rest = []
    while (part := rows.pop()) is not None:
        rest.append(part)
    assert sorted([first, *rest]) == [(at, min(at + 7, 50)) for at in range(0, 50, 7)] and rows.rows() == 0
    assert spread(8) == [0, 4, 2, 6, 1, 5, 3, 7], "first the halves, then the quarters"
    assert sorted(spread(13)) == list(range(13))


def test_a_curve_shows_its_whole_course_before_all_of_it_is_read(run):
    source = Source(run)
    for _ in range(8):
        source.read_next()
    (part,) = [part for part in source.curves.changes(["blue"]) if part["name"] == "return"]
    assert source.curves.progress < 0.2 and part["steps"].min() < 200 and part["steps"].max() > 7000


def test_entities_of_one_player_count_as_one_episode(tmp_path):
    run = RunDirectory(tmp_path, "team")
    records = record(run, 0)
    for number in range(20):
        four = episode(0.0, number, 1e9 + number, ("blue", "blue"))
        changes = {"players": ("blue", "blue", "red", "red"), "returns": (1.0, 3.0, -1.0, np.nan), "lengths": (10,) * 4}
        records.episode(four._replace(outcomes=("win", "draw", "loss", None), **changes))
    records.close(0)
    found = read(Source(run))
    with open_records(run.database) as connection:
        expected = read_returns(connection)
    for player in ("blue", "red"):
        np.testing.assert_allclose(found[player, "return"]["mean"], expected[player].values)
    assert found["blue", "win rate"]["mean"].tolist() == [0.75] * 20 and found["blue", "return"]["count"].sum() == 20


def test_what_was_read_is_kept_for_the_next_page(run, tmp_path):
    first = Source(run)
    whole = read(first)
    first.close()
    (file,) = (tmp_path / "cache").rglob("*.npz")
    before = sorted(run.path.rglob("*"))
    source = Source(run)
    source.read_next()
    assert source.curves.progress == 1.0, "nothing was left to read"
    again = read(source)
    assert again.keys() == whole.keys() and sorted(run.path.rglob("*")) == before
    for key, part in whole.items():
        for name, values in part.items():
            np.testing.assert_array_equal(again[key][name], values)
    # A file that is damaged, or that belongs to other records of the same path, is not used.
    file.write_bytes(file.read_bytes()[:-100])
    assert read(Source(run))["blue", "return"]["count"].sum() == 400


def test_kept_curves_continue_with_what_was_recorded_since_and_of_a_resumed_run_begin_anew(tmp_path):
    run = RunDirectory(tmp_path, "first")
    records = record(run, 200)
    records.flush(force=True)
    state = records.state()
    first = Source(run)
    for _ in range(20):
        first.read_next()
    first.close()
    add(records, 200, 300)
    records.flush(force=True)
    source = Source(run)
    assert 0.0 < (source.read_next(), source.curves.progress)[1] < 1.0
    assert read(source)["blue", "return"]["count"].sum() == 300
    source.close()
    records.close(1)
    again = record_again(run, state)
    add(again, 200, 210)
    again.close(0)
    assert read(Source(run))["blue", "return"]["count"].sum() == 210


def record_again(run, state):
    from arena.records.writers.run import RecordWriter
    from tests.page.conftest import PLAYERS

    records = RecordWriter(run, PLAYERS, host="node2", ranks=6, tensorboard=False)
    records.restore(state, 1)
    records.begin_round(0, continues=True)
    return records
