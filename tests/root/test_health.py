"""The watch over players that learn: a line in the log and a row for the page, once each, when one no longer does."""

import time

from arena.protocol.messages import Episode, Episodes, Progress
from arena.records.player_statistics import PlayerInfo
from arena.records.readers.run import open_records, read_concerns
from arena.records.run_directory import RunDirectory
from arena.records.writers.run import RecordWriter
from arena.report.summary import render, summarise
from arena.report.terminal import Terminal
from arena.root.health import Health


def played(opponent, result, games):
    """Return a report of games of ``main_0`` against another player."""
    episode = Episode(
        match=0,
        copy=0,
        ended_at=time.time(),
        length=10,
        seconds=0.1,
        truncated=False,
        cause=None,
        players=("main_0", opponent),
        returns=(result, -result),
        lengths=(10, 10),
        outcomes=(None, None),
        sides=((0,), (1,)),
        job=None,
    )
    return Episodes(0, (episode,) * games, 10 * games)


def test_a_concern_is_logged_recorded_and_in_the_summary_and_ends(tmp_path, monkeypatch):
    run = RunDirectory(tmp_path, "league")
    run.create("", {}, resume=False)
    records = RecordWriter(run, {"main_0": PlayerInfo("ppo", "#000000")}, host="here", ranks=3, tensorboard=False)
    health = Health(records)

    def poll():
        monkeypatch.setattr(health._pacer, "due", lambda: True)
        health.poll()
        records.flush(force=True)
        with open_records(run.database) as connection:
            return read_concerns(connection)

    records.episodes(played("main_0_2000", 1.0, 30))
    records.progress(Progress("main_0", 0, 100, 1, True, {"entropy_share": 0.001}))
    assert poll() == []
    records.episodes(played("main_0_2000", -1.0, 48))
    ((player, text),) = poll()
    assert player == "main_0" and text.startswith("loses to its own snapshots: it took 0%")
    poll()
    records.episodes(played("other", -1.0, 60))
    assert [text.split()[0] for _, text in poll()] == ["loses", "loses,"]
    shown = render(run, summarise(records) | {"activity": None}, Terminal(False))
    assert "! main_0  loses to its own snapshots" in " ".join(shown.split()).replace("main_0 ", "main_0  ")
    records.episodes(played("main_0_2000", 1.0, 48))
    assert poll() == []
    records.close(0)
    lines = [line for line in run.arena_log.read_text().splitlines() if "loses" in line]
    assert [("WARNING" in line, "no longer" in line) for line in lines] == [
        (True, False),
        (True, False),
        (False, True),
        (False, True),
    ]
