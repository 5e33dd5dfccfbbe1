"""Points of a run for trackers: each once, in a fixed order, whatever is killed and resumed in between."""

import json

import pytest

from arena.protocol.messages import Episode, Progress
from arena.records.checkpoints import Checkpoints
from arena.records.player_statistics import PlayerInfo
from arena.records.run_directory import RunDirectory
from arena.records.writers.run import RecordWriter
from arena.trackers.points import Points
from benchmarks.tools.trained import POLE, make_run

PLAYERS = {"blue": PlayerInfo("ppo", "#3b82f6", budget=1000)}


@pytest.fixture
def directory(tmp_path) -> RunDirectory:
    return make_run(tmp_path, POLE)


def attempt(directory: RunDirectory, resumed: int | None = None) -> RecordWriter:
    """Begin an attempt, one that continues from these steps unless None."""
    records = RecordWriter(directory, PLAYERS, host="node1", ranks=3, tensorboard=False)
    if resumed is not None:
        records._database.add(
            "UPDATE runs SET resumed = ? WHERE attempt = ?", (json.dumps({"blue": resumed}), records.attempt)
        )
    records.begin_round(0)
    return records


def learn(records: RecordWriter, steps: int) -> None:
    """Record an update at these steps, an episode and an evaluation."""
    records.progress(Progress("blue", 0, steps, steps // 100, True, {"loss/policy": steps / 1000, "entropy": 1.0}))
    records.episode(
        Episode(
            match=0,
            copy=0,
            length=100,
            seconds=0.5,
            players=("blue",),
            returns=(float(steps),),
            lengths=(100,),
            outcomes=(None,),
            truncated=False,
            cause=None,
            ended_at=1000.0 + steps,
        )
    )
    records.evaluations.add("blue", steps, [steps - 1.0, steps + 1.0], 0.1, "snapshot")


def checkpoint(directory: RunDirectory, steps: int, finished: bool = False) -> None:
    checkpoints = Checkpoints(directory.checkpoints)
    number = checkpoints.next_number()
    checkpoints.begin(number)
    checkpoints.complete(number, {"steps": {"blue": steps}, "finished": finished, "round": 0})


def test_points_come_with_the_checkpoint_that_covers_them(directory):
    records = attempt(directory)
    for steps in (100, 200, 300):
        learn(records, steps)
    records.flush(force=True)
    points = Points(directory)
    assert list(points.read()) == [], "no checkpoint covers them"
    checkpoint(directory, 200)
    found = [point for group in points.read() for point in group]
    named = [(name, point.steps) for point in found for name in point.values]
    assert named.count(("loss/policy", 100)) == 1 and ("loss/policy", 300) not in named
    assert ("eval/return", 200) in named and ("eval/return", 300) not in named
    assert [point.values for point in found if "return" in point.values] == [{"return": 100.0, "length": 100.0}]
    assert list(points.read()) == []


def test_what_a_resumed_run_replays_comes_once(directory):
    """The first attempt is killed at 400 steps; the second continues from the checkpoint at 200."""
    records = attempt(directory)
    for steps in (100, 200, 300, 400):
        learn(records, steps)
    records.flush(force=True)
    checkpoint(directory, 200)
    points = Points(directory)
    found = [point for group in points.read() for point in group]
    state = json.loads(json.dumps(points.state))
    records = attempt(directory, resumed=200)
    for steps in (250, 350, 1000):
        learn(records, steps)
    checkpoint(directory, 1000, finished=True)
    records.close(0)
    found += [point for group in Points(directory, state).read() for point in group]
    for name in ("loss/policy", "eval/return"):
        assert [point.steps for point in found if name in point.values] == [100, 200, 250, 350, 1000]
    returns = [(point.steps, point.values["return"]) for point in found if "return" in point.values]
    assert [steps for steps, _ in returns] == sorted(steps for steps, _ in returns) and len(returns) == 5
    again = [point for group in Points(directory).read() for point in group]
    assert sorted(again) == sorted(found), "in one go they are the same"
