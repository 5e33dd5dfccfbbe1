"""Records: what processes report can be found again, whatever happens to the disk, and across attempts."""

import contextlib
import gc
import json
import logging
import os
import random
import resource
import signal
import sqlite3
import subprocess
import sys
import time
import tracemalloc
from contextlib import closing
from pathlib import Path

import pytest

from arena.common import colors
from arena.common.errors import ConfigError
from arena.protocol.messages import Episode, Episodes, Failure, LoggedScalar, Progress
from arena.records import database
from arena.records.database import Database
from arena.records.player_statistics import PlayerInfo, PlayerStatistics, ReturnHistory, Speed, outcomes_of
from arena.records.readers.run import open_records, read_last_attempt, read_returns
from arena.records.run_directory import RunDirectory
from arena.records.writers.logged_scalars import is_kept
from arena.records.writers.run import RecordWriter
from arena.records.writers.tensorboard import EventFiles

PLAYERS = {
    "blue": PlayerInfo("ppo", "#3b82f6", budget=1000),
    "red": PlayerInfo("random", "#ef4444", learns=False),
}


@pytest.fixture
def run(tmp_path) -> RunDirectory:
    run = RunDirectory(tmp_path, "quickstart")
    run.create("", {}, resume=False)
    return run


def records_of(run: RunDirectory, *, host: str = "node1", tensorboard: bool = True, **more) -> RecordWriter:
    return RecordWriter(run, PLAYERS, host=host, ranks=6, tensorboard=tensorboard, **more)


def episode(blue: float = 1.0, red: float = -1.0, **changes) -> Episode:
    plain = Episode(
        match=0,
        copy=2,
        length=10,
        seconds=0.5,
        players=("blue", "blue", "red", "red"),
        returns=(blue, blue, red, red),
        lengths=(10, 10, 10, 10),
        outcomes=(None, None, None, None),
        truncated=False,
        cause=None,
        ended_at=time.time(),
    )
    return plain._replace(**changes)


def progress(steps: int, player: str = "blue", *, worker: int = 0, pooled: bool = True, **metrics: float) -> Progress:
    return Progress(player, worker, steps, steps // 100, pooled, metrics)


def rows(run: RunDirectory, query: str) -> list[tuple]:
    connection = sqlite3.connect(run.database)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def read_events(directory: Path) -> list[tuple[str, int, float]]:
    """Return (tag, step, value) of every scalar, read back record by record from the files' own format."""
    import struct

    from tensorboardX.proto.event_pb2 import Event

    found = []
    for file in sorted(directory.glob("events.*")):
        content = file.read_bytes()
        while content:
            (size,) = struct.unpack("<Q", content[:8])
            event = Event.FromString(content[12 : 12 + size])
            content = content[16 + size :]
            found += [(value.tag, event.step, value.simple_value) for value in event.summary.value]
            if event.HasField("session_log"):
                found.append(("<start>", event.step, 0.0))
    return found


def test_an_episode_is_found_again_with_all_its_entities(run):
    records = records_of(run)
    records.begin_round(0)
    records.progress(progress(640))
    records.episodes(Episodes(0, (episode(outcomes=("win", "win", "loss", "loss")), episode(cause="reset_by:1")), 50))
    records.close(0)
    assert rows(run, "SELECT id, attempt, round, match, copy, length, truncated, cause FROM episodes") == [
        (1, 1, 0, 0, 2, 10, 0, None),
        (2, 1, 0, 0, 2, 10, 0, "reset_by:1"),
    ]
    assert rows(
        run, "SELECT entity, player, return, length, outcome, steps FROM episode_entities WHERE episode = 1"
    ) == [
        (0, "blue", 1.0, 10, "win", 640),
        (1, "blue", 1.0, 10, "win", 640),
        (2, "red", -1.0, 10, "loss", 20),  # nobody reports for red: its finished episodes say how far it is
        (3, "red", -1.0, 10, "loss", 20),
    ]
    assert rows(run, 'SELECT player, "use", color, learns, budget FROM players ORDER BY player') == [
        ("blue", "ppo", "#3b82f6", 1, 1000),
        ("red", "random", "#ef4444", 0, None),
    ]
    assert rows(run, "SELECT attempt, host, ranks, checkpoint, exit FROM runs") == [(1, "node1", 6, None, 0)]
    assert rows(run, "SELECT round, copies, ended > started FROM rounds") == [(0, None, None)]
    assert records.environment_steps == 50


def test_an_episode_has_the_steps_of_its_players_at_its_own_end(run):
    records = records_of(run)
    records.begin_round(0)
    records.progress(progress(100))
    records.begin_round(1)
    records.steps_of_episodes.begin_matches({("blue", 0): 1.5, ("blue", 1): 3.0, ("red", 0): 1.0}, {"blue": 1100})
    records.progress(progress(1000))
    for steps in (10, 11, 200):
        records.episode(episode(steps={"blue": steps, "red": 2 * steps}))
    records.episode(episode(match=1, steps={"blue": 40}))
    # What it plays when it has finished is no step of its own, whether the news of that has come or not. Its largest
    # update was of 900 steps.
    records.episode(episode(steps={"blue": 2000}))
    records.steps_of_episodes.finish("blue")
    records.episode(episode(steps={"blue": 2000, "red": 500}))
    records.close(0)
    found = rows(run, "SELECT steps FROM episode_entities WHERE player = 'blue' AND entity = 0 ORDER BY episode")
    assert found == [(115,), (116,), (400,), (220,), (2000,), (1000,)]
    found = rows(run, "SELECT steps FROM episode_entities WHERE player = 'red' AND entity = 2 ORDER BY episode")
    assert found == [(20,), (22,), (400,), (80,), (100,), (500,)]  # episodes of 20 steps, where the match says nothing


def test_metrics_and_speed_are_recorded_at_the_players_steps(run):
    records = records_of(run)
    for steps in (100, 200):
        records.progress(progress(steps, **{"loss/policy": -0.5, "kl": 0.01}))
    records.close(0)
    assert rows(run, "SELECT player, steps, updates, name, value FROM metrics WHERE steps = 200") == [
        ("blue", 200, 2, "loss/policy", -0.5),
        ("blue", 200, 2, "kl", 0.01),
    ]
    events = read_events(run.tensorboard / "blue")
    assert ("loss/policy", 100, -0.5) in events and ("loss/policy", 200, -0.5) in events
    assert {tag for tag, _, _ in events} == {"loss/policy", "kl", "steps_per_second"}


def test_tensorboard_shows_return_and_length_of_each_player(run):
    records = records_of(run)
    records.progress(progress(500))
    records.episodes(Episodes(0, (episode(1.0, length=8), episode(0.0, length=12)), 20))
    records.close(0)
    assert set(read_events(run.tensorboard / "blue")) == {
        ("return", 500, 0.5),
        ("return_mean_100", 500, 0.5),
        ("length", 500, 10.0),
    }
    assert ("return", 40, -1.0) in read_events(run.tensorboard / "red")


@pytest.mark.parametrize("tensorboard", [True, False])
@pytest.mark.tier("all")
def test_episodes_that_are_written_take_no_memory(run, tensorboard):
    records = records_of(run, tensorboard=tensorboard)

    def play() -> int:
        records.episodes(Episodes(0, tuple(episode() for _ in range(500)), 40_000))
        records.flush(force=True)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        play()  # with what is kept once
        before = play()
        # The least of some: what else this process holds for a while (it has run other tests) is counted, too.
        assert min(play() for _ in range(4)) - before < 12_500
    finally:
        tracemalloc.stop()
    records.close(0)


def test_tensorboard_can_be_left_out(run):
    records = records_of(run, tensorboard=False)
    records.progress(progress(100, kl=0.5))
    records.episode(episode())
    records.close(0)
    assert list(run.tensorboard.iterdir()) == []


def test_an_episode_that_a_fault_cut_is_recorded_but_not_counted(run):
    records = records_of(run)
    records.episode(episode(1.0))
    records.episode(episode(-500.0, cause="fault:environment raised ValueError", truncated=True))
    records.episode(episode(0.0, cause="reset_by:2", truncated=True))
    records.fault(Failure(3, "node1", "worker", "blue", False, "ValueError: nan"))
    records.close(0)
    blue = records.players["blue"]
    assert (blue.episodes, blue.mean_return) == (2, 0.5)
    assert rows(run, "SELECT count(*), count(cause) FROM episodes") == [(3, 2)]
    assert rows(run, "SELECT attempt, rank, host, role, what FROM faults") == [
        (1, None, None, "environment", "match 0, copy 2: fault:environment raised ValueError"),
        (1, 3, "node1", "worker", "ValueError: nan"),
    ]
    assert records.faults == 2


def test_a_resumed_run_goes_on_where_the_checkpoint_was_made(run):
    first = records_of(run)
    first.begin_round(1)
    first.progress(progress(300, kl=0.1))
    for number in range(150):
        first.episode(episode(number / 150))
    state = json.loads(json.dumps(first.state()))  # through the checkpoint's manifest
    expected = first.players["blue"].mean_return, first.players["blue"].best
    first.progress(progress(400, kl=0.2))
    first.episode(episode(99.0))
    first.close(1)

    second = records_of(run, host="node2")
    second.restore(state, 4)
    blue = second.players["blue"]
    assert (blue.mean_return, blue.best) == expected
    assert (blue.steps, blue.updates, blue.episodes, blue.wins, second.round) == (300, 3, 150, 150, 1)
    second.episode(episode(0.25))
    second.progress(progress(350, kl=0.3))
    second.close(0)
    assert rows(run, "SELECT attempt, host, checkpoint, resumed, exit FROM runs") == [
        (1, "node1", None, None, 1),
        (2, "node2", 4, '{"blue": 300, "red": 3000}', 0),
    ]
    assert rows(run, "SELECT id, attempt FROM episodes WHERE id > 149") == [(150, 1), (151, 1), (152, 2)]
    assert [event for event in read_events(run.tensorboard / "blue") if event[0] in ("kl", "<start>")] == [
        ("kl", 300, pytest.approx(0.1)),
        ("kl", 400, pytest.approx(0.2)),
        ("<start>", 300, 0.0),
        ("kl", 350, pytest.approx(0.3)),
    ]


def test_rounds_keep_their_copies_and_their_best(run):
    records = RecordWriter(run, {name: PlayerInfo("ppo", "#000000") for name in ("a", "b", "c")}, host="x", ranks=1)
    records.begin_round(0)
    for name, value in (("a", 5.0), ("b", 7.0)):
        records.episode(episode(players=(name,), returns=(value,), lengths=(3,), outcomes=(None,)))
    assert records.round_returns() == {"a": 5.0, "b": 7.0, "c": float("-inf")}
    records.end_round()
    records.begin_round(1, copies={"a": "b", "c": "b"})
    records.episode(episode(players=("c",), returns=(-1.0,), lengths=(3,), outcomes=(None,)))
    assert records.round_returns()["b"] == float("-inf"), "returns of an earlier round were those of other weights"
    assert records.round_returns()["c"] == -1.0
    records.close(0)
    assert rows(run, "SELECT round, copies, ended IS NOT NULL FROM rounds") == [
        (0, None, 1),
        (1, '{"a": "b", "c": "b"}', 0),
    ]


def test_a_locked_database_costs_no_row_and_no_crash(run, caplog, monkeypatch):
    monkeypatch.setattr(database, "RETRY_EVERY", 0.0)
    records = records_of(run, tensorboard=False)
    reader = sqlite3.connect(run.database, isolation_level=None)
    reader.execute("BEGIN EXCLUSIVE")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            records.episode(episode())
            assert not records.flush(force=True)
    warnings = [record.message for record in caplog.records]
    assert len(warnings) == 1, "one warning a minute is enough"
    assert "training continues" in warnings[0] and "locked" in warnings[0] and str(run.database) in warnings[0]
    reader.execute("ROLLBACK")
    reader.close()
    assert records.flush(force=True)
    records.close(0)
    assert rows(run, "SELECT count(*) FROM episodes") == [(3,)]
    assert rows(run, "SELECT count(*) FROM episode_entities") == [(12,)]


def test_a_full_disk_leaves_the_records_readable_and_training_alive(run, caplog):
    records = records_of(run)
    records.episode(episode())
    records.flush(force=True)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))  # the kernel refuses to write beyond
    try:
        for number in range(2000):
            records.episode(episode())
            records.progress(progress(number, kl=0.5))
        records.flush(force=True)
        assert rows(run, "SELECT count(*) FROM episodes") == [(1,)]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert any("arena.sqlite cannot be written" in record.message for record in caplog.records)
    records.episode(episode())
    records.close(0)
    assert rows(run, "SELECT count(*) FROM episodes") == [(2002,)]
    assert rows(run, "PRAGMA integrity_check") == [("ok",)]


def test_memory_stays_bounded_while_nothing_can_be_written(run, caplog, monkeypatch):
    monkeypatch.setattr(database, "MAX_WAITING", 10)
    records = Database(run.database)
    reader = sqlite3.connect(run.database, isolation_level=None)
    reader.execute("BEGIN EXCLUSIVE")
    for number in range(25):
        records.add("INSERT INTO faults VALUES (1, ?, NULL, NULL, NULL, 'x')", (number,))
    assert not records.flush(force=True)
    reader.execute("ROLLBACK")
    reader.close()
    assert records.close()
    assert rows(run, "SELECT min(time), max(time), count(*) FROM faults") == [(15.0, 24.0, 10)]
    assert any("15 rows were lost" in record.message for record in caplog.records)


def test_a_killed_root_leaves_whole_transactions(run):
    code = f"""
import os, signal, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_records import RunDirectory, episode, records_of
records = records_of(RunDirectory({str(run.path.parent)!r}, "quickstart"), tensorboard=False)
for number in range(200):
    for _ in range(10):
        records.episode(episode())
    records.flush(force=True)
    print(number, flush=True)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for _ in range(random.randint(5, 15)):
        process.stdout.readline()
    process.kill()
    process.wait()
    process.stdout.close()
    records_of(run).close(0)  # a hot journal is rolled back
    assert rows(run, "PRAGMA integrity_check") == [("ok",)]
    ((episodes,),) = rows(run, "SELECT count(*) FROM episodes")
    assert episodes % 10 == 0 and episodes > 0
    assert rows(run, "SELECT count(*) FROM episode_entities") == [(4 * episodes,)]


def test_records_that_are_damaged_are_moved_aside(run, caplog):
    run.database.write_bytes(b"this is no database" * 100)
    records = records_of(run)
    records.episode(episode())
    records.close(0)
    assert rows(run, "SELECT count(*) FROM episodes") == [(1,)]
    (aside,) = run.path.glob("arena.damaged-*.sqlite")
    assert aside.read_bytes().startswith(b"this is no database")
    assert any(str(aside) in record.message for record in caplog.records)


def test_records_of_another_version_are_refused(run):
    connection = sqlite3.connect(run.database)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(ConfigError, match="expected records of version 10, found version 99"):
        records_of(run)


def test_records_of_the_version_before_are_read_and_continued(run):
    records = records_of(run)
    records.episode(episode())
    records.close(0)
    with closing(sqlite3.connect(run.database)) as connection:
        for table in ("evaluations", "ranks", "resets", "rollbacks", "concerns", "game_totals"):
            connection.execute(f"DROP TABLE {table}")
        connection.execute("DROP INDEX calls")
        connection.execute("ALTER TABLE episode_entities DROP COLUMN metrics")
        for column in ("call", "workers"):
            connection.execute(f"ALTER TABLE metrics DROP COLUMN {column}")
        for table in ("runs", "rounds", "episodes", "metrics", "faults", "jobs"):
            connection.execute(f"ALTER TABLE {table} RENAME COLUMN attempt TO life")
        connection.execute("PRAGMA user_version = 2")
    before = run.database.read_bytes()
    assert read_last_attempt(run.database) == (1, 0)
    with open_records(run.database) as connection:
        assert [len(series.values) for series in read_returns(connection).values()] == [1, 1]
    assert run.database.read_bytes() == before, "reading changes nothing"
    records_of(run).close(0)
    assert rows(run, "SELECT attempt, exit FROM runs") == [(1, 0), (2, 0)]


def test_records_without_the_newest_tables_are_read_without_a_copy(run):
    records = records_of(run)
    records.episode(episode())
    records.close(0)
    with closing(sqlite3.connect(run.database)) as connection:
        for table in ("evaluations", "ranks", "resets", "rollbacks", "concerns", "game_totals"):
            connection.execute(f"DROP TABLE {table}")
        connection.execute("PRAGMA user_version = 5")
    before = run.database.read_bytes()
    with open_records(run.database) as connection:
        assert connection.execute("SELECT count(*) FROM ranks").fetchone() == (0,)
        assert connection.execute("SELECT file FROM pragma_database_list WHERE name = 'main'").fetchone()[0]
        assert [len(series.values) for series in read_returns(connection).values()] == [1, 1]
    assert run.database.read_bytes() == before, "reading changes nothing"


def test_what_environments_measure_is_recorded_shown_and_goes_on_after_a_resume(run):
    records = records_of(run)
    measured = ({"shortage": 2.0}, {"shortage": 4.0}, {}, {"shortage": 10.0, "idle": 1.0})
    records.episodes(Episodes(0, (episode()._replace(metrics=measured), episode()._replace(metrics=measured)), 10))
    records.episodes(Episodes(0, (episode(),), 10))
    first, second = records.players.values()
    assert (first.episode_metrics, second.episode_metrics) == ({"shortage": 3.0}, {"shortage": 10.0, "idle": 1.0})
    state = records.state()
    records.close(0)
    found = rows(run, "SELECT player, name, value FROM metrics ORDER BY player, name")
    names = list(records.players)
    assert found == sorted(
        [(names[0], "episode/shortage", 3.0), (names[1], "episode/shortage", 10.0), (names[1], "episode/idle", 1.0)]
    )
    stored = rows(run, "SELECT metrics FROM episode_entities WHERE episode = 1 ORDER BY entity")
    assert [json.loads(text) for (text,) in stored] == list(measured)
    assert rows(run, "SELECT DISTINCT metrics FROM episode_entities WHERE episode = 3") == [(None,)]
    again = records_of(run)
    again.restore(json.loads(json.dumps(state)))
    assert again.players[names[1]].episode_metrics == second.episode_metrics
    again.close(0)


def test_a_nan_is_recorded_as_nothing_and_holds_nothing_up(run):
    records = records_of(run)
    records.progress(progress(10, kl=float("nan")))
    records.episode(episode(float("nan")))
    records.close(0)
    assert rows(run, "SELECT value FROM metrics") == [(None,)]
    assert rows(run, "SELECT count(*) FROM episode_entities") == [(4,)]


def test_numpy_numbers_are_taken(run):
    import numpy as np

    records = records_of(run)
    one = np.float32(1)
    records.episode(episode(returns=(one,) * 4, lengths=(np.int64(3),) * 4, length=np.int64(3), seconds=one))
    records.progress(progress(np.int64(10), kl=one))
    records.close(0)
    assert rows(run, "SELECT return, typeof(return), length FROM episode_entities WHERE entity = 0") == [
        (1.0, "real", 3)
    ]
    assert rows(run, "SELECT steps, typeof(steps) FROM metrics") == [(10, "integer")]


def test_each_call_of_a_loop_that_logs_is_a_row_the_mean_over_its_workers(run):
    def report(worker, *logged):
        records.progress(Progress("blue", worker, 100, 0, False, {}, logged))

    records = records_of(run)
    records.begin_round(0)
    report(0, *(LoggedScalar("loss", call, float(call), 200 * call, call, 5.0) for call in (1, 2)))
    report(1, LoggedScalar("loss", 1, 3.0, 190, 1, 5.1), LoggedScalar("rare", 1, 7.0, 190, 1, 5.1))
    report(0, LoggedScalar("loss", 3, 9.0, 600, 3, 6.0))
    records.flush(force=True)
    report(1, *(LoggedScalar("loss", call, 4.0, 200 * call, call, 7.0) for call in (2, 3)))
    report(2, LoggedScalar("loss", 1, 8.0, 180, 1, 9.0))
    assert records.players["blue"].metrics == {"loss": 8.0, "rare": 7.0}
    records.begin_round(1)
    report(0, LoggedScalar("loss", 1, 1.0, 800, 4, 10.0))
    records.close(0)
    assert rows(run, "SELECT name, call, workers, value, steps, updates FROM metrics ORDER BY name, call") == [
        ("loss", 1, 3, 4.0, 190, 1),
        ("loss", 2, 2, 3.0, 400, 2),
        ("loss", 3, 2, 6.5, 600, 3),
        ("loss", 4, 1, 1.0, 800, 4),
        ("rare", 1, 1, 7.0, 190, 1),
    ]
    # TensorBoard gets one point for what comes between two flushes.
    shown = [(steps, value) for tag, steps, value in read_events(run.tensorboard / "blue") if tag == "loss"]
    assert shown == [(600, 15 / 4), (800, 17 / 4)]
    assert sum(is_kept(call) for call in range(1, 1_000_001)) == 10_000 + 2 * 9_000


def test_weeks_of_updates_are_thinned_to_one_a_second(run, monkeypatch):
    from arena.records.writers import metric_rows as module

    monkeypatch.setattr(module, "ALL_UPDATES", 5)
    records = records_of(run)
    for steps in range(100, 2100, 100):
        records.progress(progress(steps, kl=0.1))
    records.close(0)
    ((kept,),) = rows(run, "SELECT count(*) FROM metrics")
    assert 5 <= kept <= 7
    assert records.players["blue"].metrics == {"kl": 0.1} and records.players["blue"].steps == 2000


def test_thousands_of_episodes_a_second_are_written_together(run):
    """A transaction for each would keep the root from its messages. ``benchmarks.micro`` has what a report costs."""
    records = records_of(run)
    records.flush(force=True)
    seen, began = set(), time.monotonic()
    with contextlib.closing(sqlite3.connect(run.database)) as reader:
        for _ in range(5000):
            records.episode(episode())
            records.flush()
            seen.add(reader.execute("PRAGMA data_version").fetchone())  # another one after each transaction
    most = 2 + (time.monotonic() - began) / database.FLUSH_EVERY
    records.close(0)
    assert len(seen) <= most
    assert rows(run, "SELECT count(*) FROM episodes") == [(5000,)]


def test_notes_and_warnings_are_in_the_readable_log(run):
    records = records_of(run)
    records.log_line("INFO", "checkpoint 1 is complete")
    logging.getLogger("arena.records.database").warning("the disk is full")
    records.close(0)
    logging.getLogger("arena.records.writers.run").info("of the next run")
    lines = run.arena_log.read_text().splitlines()
    assert [line.split(maxsplit=2)[2] for line in lines] == [
        "INFO    checkpoint 1 is complete",
        "WARNING the disk is full",
    ]


@pytest.mark.tier("all")
def test_root_keeps_records_without_torch(run):
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_records import RunDirectory, episode, progress, records_of
records = records_of(RunDirectory({str(run.path.parent)!r}, "quickstart"))
records.episode(episode())
records.progress(progress(10, kl=0.5))
records.close(0)
assert "torch" not in sys.modules
import torch  # and whoever wants it afterwards still gets it
assert torch.tensor(1).item() == 1
"""
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
    assert ("kl", 10, 0.5) in read_events(run.tensorboard / "blue")


def test_event_files_that_cannot_be_written_are_warned_of_once(tmp_path, caplog):
    (tmp_path / "blue").write_text("a file in the way")
    files = EventFiles(tmp_path, 1)
    for _ in range(3):
        files.scalars("blue", {"kl": 1.0}, 1, time.time())
    files.close()
    assert len(caplog.records) == 1 and "training continues" in caplog.records[0].message


def test_two_lives_within_a_second_do_not_share_a_file(tmp_path):
    for attempt in (1, 2):
        files = EventFiles(tmp_path, attempt)
        files.scalars("blue", {"kl": attempt}, attempt, time.time())
        files.close()
    assert [value for _, _, value in read_events(tmp_path / "blue")] == [1.0, 2.0]


def test_steps_of_workers_that_report_alone_are_added_up():
    statistics = PlayerStatistics(PLAYERS["red"])
    for worker, steps in ((0, 100), (1, 50), (0, 150), (1, 80)):
        statistics.progress(0.0, worker, steps, 0, pooled=False)
    statistics.begin_round()  # they count from zero again
    for worker, steps in ((0, 90), (0, 200), (1, 10)):
        statistics.progress(0.0, worker, steps, 0, pooled=False)
    assert statistics.steps == 150 + 80 + 200 + 10


def test_the_best_mean_needs_a_hundred_episodes_and_stays():
    statistics = PlayerStatistics(PLAYERS["blue"])
    for _ in range(99):
        statistics.finish(0.0, 1.0, 5, 5)
    assert statistics.best is None and statistics.mean_return == 1.0
    statistics.finish(0.0, 1.0, 5, 5)
    assert statistics.best == 1.0
    for _ in range(100):
        statistics.finish(0.0, -1.0, 5, 5)
    assert (statistics.best, statistics.mean_return) == (1.0, -1.0)


def test_speed_is_recent_and_falls_when_reports_stop():
    speed = Speed()
    for second in range(100):
        speed.read(float(second), second * (10 if second < 50 else 20) - (0 if second < 50 else 500))
    assert speed.per_second(99.0) == pytest.approx(20.0)
    assert speed.per_second(200.0) < 10.0
    speed.read(201.0, 0)  # a counter that begins anew is no negative speed
    assert speed.per_second(201.0) == 0.0


def test_time_left_follows_from_budget_and_speed():
    statistics = PlayerStatistics(PLAYERS["blue"])
    assert statistics.seconds_left(0.0) is None
    for second in range(5):
        statistics.progress(float(second), 0, 100 * second, second, pooled=True)
    assert statistics.seconds_left(4.0) == pytest.approx(6.0)


def test_a_course_of_any_length_stays_small_and_true():
    course = ReturnHistory()
    for number in range(100_000):
        course.add(number)
    points = course.points(20)
    assert len(points) == 20
    assert points == sorted(points) and points[0] < 6000 and points[-1] > 94_000
    copy = ReturnHistory()
    copy.restore(json.loads(json.dumps(course.state())))
    assert copy.points(20) == points


@pytest.mark.parametrize(
    ("returns", "said", "expected"),
    [
        ((1.0, 1.0, -1.0), (None, None, None), {"a": "win", "b": "loss"}),
        ((0.0, 0.0, 0.0), (None, None, None), {"a": "draw", "b": "draw"}),
        ((1.0, 1.0, -1.0), ("loss", "loss", "win"), {"a": "loss", "b": "win"}),
        ((1.0, 1.0, -1.0), (2, 1, 0), {"a": "loss", "b": "win"}),
        ((1.0, 1.0, -1.0), ("win", None, None), {"a": "win", "b": "loss"}),
    ],
)
def test_an_outcome_is_what_the_environment_says_or_else_the_returns(returns, said, expected):
    assert outcomes_of(("a", "a", "b"), returns, said) == expected


def test_alone_or_against_oneself_nobody_wins():
    assert outcomes_of(("a", "a"), (1.0, -1.0), ("win", "loss")) == {"a": None}


def test_colors_follow_the_configuration_then_the_name_then_a_cycle():
    chosen = colors.resolve({"blue": None, "red": "#0F0", "x": None, "y": "rebeccapurple", "z": None})
    assert chosen["blue"] == colors.NAMED["blue"]
    assert chosen["red"] == "#00ff00" and chosen["y"] == "#663399"
    assert len(set(chosen.values())) == 5
    with pytest.raises(ConfigError, match="expected #rrggbb or a CSS color name, found 'blu' .*'blue'"):
        colors.to_hex("blu")


def test_a_deterministic_run_records_in_an_order_of_its_own_and_takes_back_what_comes_again(run):
    """Whichever match reports first, and wherever the run was killed: the same rows with the same numbers."""
    first = records_of(run, deterministic=True)
    state = first.state()
    first.episodes(Episodes(1, (episode(3.0, match=1),), 1))
    assert first.state()["episode"] == 0, "recorded before it was known what else comes"
    first.progress(progress(300, kl=0.1))
    first.release()
    first.close(1)
    second = records_of(run, deterministic=True)
    second.restore(state)
    second.episodes(Episodes(1, (episode(3.0, match=1),), 1))
    second.episodes(Episodes(0, (episode(1.0, match=0), episode(2.0, match=0)), 1))
    second.progress(progress(300, kl=0.1))
    second.release()
    second.close(0)
    query = (
        'SELECT id, match, "return" FROM episodes JOIN episode_entities ON id = episode WHERE entity = 0 ORDER BY id'
    )
    assert rows(run, query) == [(1, 0, 1.0), (2, 0, 2.0), (3, 1, 3.0)]
    assert rows(run, "SELECT attempt, updates FROM metrics") == [(2, 3)]


@pytest.mark.parametrize("keep", [0.5, 0.9])
def test_records_that_are_cut_are_moved_aside_and_the_gap_is_told(run, caplog, keep):
    first = records_of(run, tensorboard=False)
    for _ in range(500):
        first.episode(episode())
    state = first.state()
    first.close(1)
    os.truncate(run.database, int(keep * run.database.stat().st_size))
    second = records_of(run, tensorboard=False)
    with caplog.at_level(logging.WARNING):
        second.restore(state)
    assert "500 episodes before the checkpoint are not on record; " in caplog.text
    second.episode(episode())
    second.close(0)
    assert rows(run, "SELECT id FROM episodes") == [(501,)], "the number of an episode was given twice"
    assert rows(run, "SELECT role FROM faults") == [("records",)]
    assert list(run.path.glob("arena.damaged-*.sqlite"))
