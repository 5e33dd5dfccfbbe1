"""Which weights are evaluated when, what is recorded and kept, and when a player has learned enough."""

from pathlib import Path

import numpy as np
import pytest

from arena.common.errors import ConfigError
from arena.config.run import RunConfig, load_config
from arena.protocol.evaluation import EvaluationReport, EvaluationRequest, Snapshot
from arena.records.player_statistics import players_of
from arena.records.readers.run import open_records, read_evaluations
from arena.records.run_directory import RunDirectory
from arena.records.writers.run import RecordWriter
from arena.root import evaluations as module
from arena.root.evaluations import Evaluations
from arena.tensors.weights import write_tensors

CONFIG = """
name: duel
steps: 10000
env: {use: touchdown, settings: {team_size: 1}}
policies: {blue: {use: ppo}, red: {use: ppo}, still: {use: random}}
matches: [{seats: [blue, red]}, {seats: [still, red]}]
evaluate: {every: 1000, episodes: 2EXTRA}
"""


class Process:
    """An evaluator that is told what to report."""

    def __init__(self) -> None:
        self.requests: list[EvaluationRequest] = []
        self.reports: list[EvaluationReport] = []
        self.given_up = 0

    def start(self, request: EvaluationRequest) -> None:
        self.requests.append(request)

    def poll(self) -> EvaluationReport | None:
        return self.reports.pop(0) if self.reports else None

    def give_up(self) -> None:
        self.given_up += 1

    def end_round(self) -> bool:
        return False

    def close(self) -> None:
        pass


class World:
    """The root's side, with a run directory of its own."""

    def __init__(self, place: Path, extra: str = "") -> None:
        self.config = configured(place, extra)
        self.run = RunDirectory(place, "duel")
        self.run.create("", {}, resume=False)
        self.records = RecordWriter(self.run, players_of(self.config), host="here", ranks=5, tensorboard=False)
        self.process = Process()
        self.evaluations = Evaluations(self.config, self.run, self.records, self.process)

    def snapshot(self, player: str, steps: int) -> Path:
        path = self.run.evaluated(player, steps)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{player} at {steps}")
        self.evaluations.add(Snapshot(player, steps, str(path)))
        return path

    def report(self, **returns: list[float]) -> None:
        self.process.reports.append(EvaluationReport(self.process.requests[-1].number, returns, 1.0))
        self.evaluations.poll()

    def recorded(self) -> dict[str, list[float]]:
        self.records.flush(force=True)
        with open_records(self.run.database) as connection:
            return {name: series.steps.tolist() for name, series in read_evaluations(connection).items()}


def configured(place: Path, extra: str = "") -> RunConfig:
    path = place / "config.yaml"
    path.write_text(CONFIG.replace("EXTRA", extra))
    return load_config(path)


@pytest.fixture
def world(tmp_path) -> World:
    return World(tmp_path)


def test_all_learning_players_of_the_row_have_weights_before_anything_is_played(world):
    world.snapshot("blue", 1000)
    world.evaluations.poll()
    assert not world.process.requests and not world.evaluations.pending
    world.snapshot("red", 1500)
    world.evaluations.poll()
    (request,) = world.process.requests
    assert request.weights.keys() == {"blue", "red"} and world.evaluations.pending
    world.report(blue=[1.0, 3.0], red=[-1.0, -3.0])
    assert world.recorded() == {"blue": [1000], "red": [1500]} and not world.evaluations.pending
    assert world.records.players["blue"].evaluation.mean == 2.0


def test_a_resumed_run_does_not_wait_for_players_that_have_finished(world):
    world.records.players["red"].steps = 10_000
    world.evaluations.resume()
    world.snapshot("blue", 1000)
    world.evaluations.poll()
    assert world.process.requests[-1].weights.keys() == {"blue"}
    world.report(blue=[1.0])
    assert world.recorded() == {"blue": [1000]}


def test_who_has_no_new_weights_is_not_recorded_again(world):
    world.snapshot("blue", 1000), world.snapshot("red", 1000)
    world.evaluations.poll()
    world.report(blue=[1.0], red=[-1.0])
    world.snapshot("blue", 2000)
    world.evaluations.poll()
    world.report(blue=[2.0], red=[-2.0])
    assert world.recorded() == {"blue": [1000, 2000], "red": [1000]}


def play_all(world: World) -> None:
    world.evaluations.poll()
    while world.evaluations.pending:
        world.report(blue=[1.0], red=[1.0])


def test_every_weights_file_is_evaluated_in_order_however_late(world):
    for steps in range(1000, 8000, 1000):
        world.snapshot("blue", steps)
    world.snapshot("red", 1000), world.snapshot("red", 2000)
    assert world.evaluations.left.startswith("7 evaluations (0.0 MB")
    play_all(world)
    assert world.recorded() == {"blue": list(range(1000, 8000, 1000)), "red": [1000, 2000]}
    assert [Path(request.weights["red"]).stem for request in world.process.requests] == ["1000", *["2000"] * 6]
    world.evaluations.close()
    assert not world.run.waiting("blue").exists() and not world.run.waiting("red").exists()


def test_what_waits_at_an_early_end_is_evaluated_by_the_resumed_run(world):
    for steps in (1000, 2000, 3000):
        world.snapshot("blue", steps), world.snapshot("red", steps)
    world.evaluations.poll()
    world.report(blue=[1.0], red=[1.0])
    world.evaluations.close()
    assert "2 evaluations (0.0 MB of weights) wait for --resume" in world.run.arena_log.read_text()
    assert sorted(path.stem for path in world.run.waiting("blue").iterdir()) == ["2000", "3000"]
    assert world.recorded() == {"blue": [1000], "red": [1000]}
    for statistics in world.records.players.values():
        statistics.steps = 2500  # the steps after that will be learned again
    again = Evaluations(world.config, world.run, world.records, world.process)
    again.resume()
    world.evaluations = again
    play_all(world)
    assert world.recorded() == {"blue": [1000, 2000], "red": [1000, 2000]}
    assert not (world.run.waiting("blue") / "3000.safetensors").exists()


def test_a_player_that_has_finished_keeps_its_snapshot_and_plays_with_it(world):
    last = world.run.snapshot("red", 10_000)
    last.parent.mkdir(parents=True)
    write_tensors(last, {"x": np.zeros(1, np.float32)})
    world.records.players["red"].steps = 10_000
    world.evaluations.resume()
    for steps in (1000, 2000):
        world.snapshot("blue", steps)
    play_all(world)
    assert [request.weights["red"] for request in world.process.requests] == [str(last)] * 2
    world.evaluations.close()
    assert last.is_file() and world.recorded() == {"blue": [1000, 2000]}


def test_weights_that_can_meet_nobody_are_no_work_for_a_resume(world):
    world.snapshot("blue", 1000), world.snapshot("blue", 2000)
    world.evaluations.poll()
    world.evaluations.close()
    assert "nothing is evaluated, since there are no weights of red" in world.run.arena_log.read_text()
    assert not world.run.waiting("blue").exists() and not world.process.requests


def test_the_number_of_files_that_wait_has_a_bound(tmp_path):
    world = World(tmp_path, ", waiting: 2")
    paths = [world.snapshot("blue", steps) for steps in (1000, 2000, 3000, 4000)]
    assert [path.exists() for path in paths] == [True, False, False, True], "the last weights are always evaluated"
    world.snapshot("red", 1000)
    play_all(world)
    assert world.recorded()["blue"] == [1000, 4000]
    world.evaluations.close()
    assert "blue: 2 evaluations skipped by evaluate.waiting: 2" in world.run.arena_log.read_text()


def test_the_others_of_an_evaluation_are_recorded_and_kept_with_the_best(tmp_path):
    world = World(tmp_path, ", keep_all: true")
    for steps, mean in ((1000, 5.0), (2000, 1.0)):
        world.snapshot("blue", steps), world.snapshot("red", steps + 500)
        world.evaluations.poll()
        world.report(blue=[mean], red=[-mean])
    assert world.run.best_opponent("blue", "red").read_text() == "red at 1500"
    assert world.run.best_opponent("red", "blue").read_text() == "blue at 2000"
    assert [path.stem for path in world.run.snapshots("red")] == ["1500", "2500"]
    world.records.flush(force=True)
    with open_records(world.run.database) as connection:
        found = connection.execute("SELECT player, others FROM evaluations WHERE steps = 2000").fetchall()
    assert found == [("blue", '{"red": 2500}')]


def test_an_evaluation_slower_than_training_is_said_once(world, monkeypatch):
    for second, steps in enumerate((1000, 2000, 3000)):
        monkeypatch.setattr(module.time, "monotonic", lambda second=second: 100.0 + second)
        world.snapshot("blue", steps), world.snapshot("red", steps)
    play_all(world)
    log = world.run.arena_log.read_text()
    assert "longer" not in log, "an evaluation takes a second here, and so do 1,000 steps"
    for steps in (4000, 5000):
        world.snapshot("blue", steps), world.snapshot("red", steps)
        world.evaluations.poll()
        world.process.reports.append(EvaluationReport(len(world.process.requests), {"blue": [1.0], "red": [1.0]}, 5.0))
        world.evaluations.poll()
    log = world.run.arena_log.read_text()
    assert log.count("evaluations take longer than training: 5.0 s each") == 1


def test_with_skip_only_the_newest_weights_wait_and_files_go_when_they_are_not_needed(tmp_path):
    world = World(tmp_path, ", skip: true")
    first, _ = world.snapshot("blue", 1000), world.snapshot("red", 1000)
    world.evaluations.poll()
    second, third = world.snapshot("blue", 2000), world.snapshot("blue", 3000)
    assert first.exists() and not second.exists() and third.exists(), "the first one is played"
    world.report(blue=[1.0], red=[1.0])
    assert not first.exists() and world.process.requests[-1].weights["blue"] == str(third)
    world.report(blue=[1.0], red=[1.0])
    assert world.recorded()["blue"] == [1000, 3000]
    world.evaluations.close()
    assert not third.parent.exists()
    assert "blue: 1 evaluation skipped by evaluate.skip: true" in world.run.arena_log.read_text()


def test_the_best_weights_are_kept_and_those_of_earlier_attempts_count(world):
    for steps, mean in ((1000, 5.0), (2000, 9.0), (3000, 7.0)):
        world.snapshot("blue", steps), world.snapshot("red", steps)
        world.evaluations.poll()
        world.report(blue=[mean], red=[-mean])
    assert world.run.best("blue").read_text() == "blue at 2000" and world.run.best("red").read_text() == "red at 1000"
    world.records.close(0)
    again = RecordWriter(world.run, players_of(world.config), host="here", ranks=5, tensorboard=False)
    assert again.evaluations.best == {"blue": 9.0, "red": -5.0}
    again.close(0)


def test_without_keep_best_no_file_is_written(tmp_path):
    world = World(tmp_path, ", keep_best: false")
    world.snapshot("blue", 1000), world.snapshot("red", 1000)
    world.evaluations.poll()
    world.report(blue=[1.0], red=[1.0])
    assert world.recorded() and not world.run.best("blue").exists()


def test_a_threshold_is_reached_by_the_mean_and_remembered(tmp_path):
    world = World(tmp_path, ", stop_at: 10")
    for steps, returns in ((1000, [5.0, 14.0]), (2000, [9.0, 11.0])):
        world.snapshot("blue", steps), world.snapshot("red", steps)
        world.evaluations.poll()
        world.report(blue=returns, red=[0.0, 0.0])
        assert world.evaluations.reached == ({"blue"} if steps == 2000 else set())
    world.records.flush(force=True)
    rows = world.records.evaluations
    assert rows.reached(10, {"blue": 2500}) == {"blue"} and rows.reached(10, {"blue": 1500}) == set()
    assert rows.reached(11, {"blue": 2500}) == set()


def test_failures_are_recorded_and_the_next_evaluation_starts(world, monkeypatch):
    world.snapshot("blue", 1000), world.snapshot("red", 1000)
    world.evaluations.poll()
    world.process.reports.append(EvaluationReport(1, {}, 0.5, "it raised\nat this place"))
    world.evaluations.poll()
    assert world.recorded() == {} and world.records.faults == 1 and not world.evaluations.pending
    monkeypatch.setattr(module.time, "monotonic", lambda: 1e9)
    world.snapshot("blue", 2000)
    world.evaluations.poll()
    assert len(world.process.requests) == 2
    monkeypatch.setattr(module.time, "monotonic", lambda: 1e9 + 599)
    world.process.reports.append(EvaluationReport(2, None))
    world.evaluations.poll()
    monkeypatch.setattr(module.time, "monotonic", lambda: 1e9 + 1198)
    world.evaluations.poll()
    assert not world.process.given_up, "it has stepped meanwhile"
    monkeypatch.setattr(module.time, "monotonic", lambda: 1e9 + 1200)
    world.evaluations.poll()
    assert world.process.given_up == 1 and world.records.faults == 2
    world.snapshot("blue", 3000)
    world.evaluations.poll()
    world.process.reports.append(EvaluationReport(2, {"blue": [5.0]}))
    world.evaluations.poll()
    assert world.recorded() == {} and world.evaluations.pending, "a late report is not that of the next evaluation"
    assert "no environment step within 600 s" in world.run.arena_log.read_text()


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (", row: 2", r"evaluate.row: expected 0 to 1, or all, found 2"),
        (", seats: [blue, rod]", r"there is no policy 'rod' in policies; did you mean 'red'\?"),
        (", seats: [blue]", r"expected 2 names, one for each seat, or 2, one for each player"),
        (", seats: [still, red@100]", r"evaluate.seats: expected a player that learns, without @, found none"),
        (", ranks: 2", r"evaluate.ranks: expected 0 or 1, found 2"),
        (", stop_at: 5}\ndeterministic: true\nwaits: {", r"evaluate.stop_at: expected null in a deterministic run"),
        (", rowz: 3", r"evaluate.rowz: unknown key; did you mean 'row'\?"),
    ],
)
def test_what_cannot_be_evaluated_is_refused(tmp_path, extra, message):
    with pytest.raises(ConfigError, match=message):
        configured(tmp_path, extra)


def test_who_is_evaluated(tmp_path):
    assert configured(tmp_path).evaluated_players() == ["blue", "red"]
    assert configured(tmp_path, ", row: 1").evaluated_players() == ["red"]
    assert configured(tmp_path, ", row: all").evaluated_players() == ["blue", "red"]
    assert configured(tmp_path, ", seats: [blue, still]").evaluated_players() == ["blue"]
