"""The run directory: made once, never overwritten by accident, refused with one clear message."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from arena.common.errors import ConfigError
from arena.common.files import write_text
from arena.records.checkpoints import Checkpoints
from arena.records.run_directory import RunDirectory


def started(root: Path, checkpoint: bool = True) -> RunDirectory:
    run = RunDirectory(root, "quickstart")
    run.create("steps: 100\n", {"ranks": 6}, resume=False)
    if checkpoint:
        checkpoints = Checkpoints(run.checkpoints)
        checkpoints.begin(1)
        checkpoints.complete(1, {})
    return run


def test_a_new_run_holds_what_was_asked_and_who_does_it(tmp_path):
    run = started(tmp_path / "deep" / "runs")
    assert run.config.read_text() == "steps: 100\n"
    assert json.loads(run.plan.read_text()) == {"ranks": 6}
    for directory in ("tensorboard", "players", "checkpoints", "log", "plots"):
        assert (run.path / directory).is_dir()
    assert RunDirectory.existing(tmp_path / "deep" / "runs" / "quickstart").path == run.path


def test_a_run_that_exists_is_not_started_over(tmp_path):
    run = started(tmp_path)
    with pytest.raises(ConfigError) as caught:
        RunDirectory(tmp_path, "quickstart").create("steps: 7\n", {}, resume=False)
    assert str(caught.value) == (
        f"{run.path} exists: continue it with --resume, or choose another name (--set name=...)"
    )
    assert run.config.read_text() == "steps: 100\n"


def test_the_remedy_for_a_run_without_a_checkpoint_is_not_resume(tmp_path):
    run = started(tmp_path, checkpoint=False)
    with pytest.raises(ConfigError, match=rf"rm -r {run.path}") as caught:
        RunDirectory(tmp_path, "quickstart").create("", {}, resume=False)
    assert "--resume" not in str(caught.value)
    with pytest.raises(ConfigError, match="expected a complete checkpoint to resume from, found none"):
        RunDirectory(tmp_path, "quickstart").create("", {}, resume=True)


def test_an_empty_directory_is_no_run(tmp_path):
    (tmp_path / "quickstart").mkdir()
    assert started(tmp_path).config.is_file()


def test_resume_goes_on_and_keeps_the_earlier_question(tmp_path):
    run = started(tmp_path)
    for steps in (200, 200, 300):
        RunDirectory(tmp_path, "quickstart").create(f"steps: {steps}\n", {"ranks": 6}, resume=True)
    assert run.config.read_text() == "steps: 300\n"
    assert (run.path / "config.1.yaml").read_text() == "steps: 100\n"
    assert (run.path / "config.2.yaml").read_text() == "steps: 200\n"
    assert not (run.path / "plan.1.json").exists()


def test_resume_of_a_run_that_is_not_there_names_those_that_are(tmp_path):
    started(tmp_path)
    with pytest.raises(ConfigError, match=r"start it without --resume; runs in .*: quickstart"):
        RunDirectory(tmp_path, "quickstar").create("", {}, resume=True)
    with pytest.raises(ConfigError, match=r"expected a run directory, .*; runs in .*: quickstart"):
        RunDirectory.existing(tmp_path / "quick")


def test_resume_from_damaged_checkpoints_says_so(tmp_path):
    run = started(tmp_path)
    (run.checkpoints / "1" / "manifest.json").write_text("{")
    with pytest.raises(ConfigError, match="found only damaged ones"):
        RunDirectory(tmp_path, "quickstart").create("", {}, resume=True)


def test_a_batch_job_goes_on_where_it_can_and_begins_where_it_must(tmp_path):
    """Preempted before its first checkpoint, a job would else find its own name taken in all its later attempts."""
    run = RunDirectory(tmp_path, "quickstart")
    assert not run.continues("if possible"), "there is nothing yet"
    started(tmp_path, checkpoint=False)
    (run.checkpoints / "1.partial").mkdir()
    write_text(run.checkpoints / "1.partial/manifest.json", "{}")  # killed while it wrote its first one
    assert not run.continues("if possible")
    started(tmp_path, checkpoint=False)
    run.summary.touch()  # stopped in order before anything was learned
    assert not run.continues("if possible")
    run.check(False)
    started(tmp_path, checkpoint=False)
    (run.players / "p").mkdir()
    write_text(run.snapshot("p", 200), "")  # killed between this snapshot and the checkpoint that it belongs to
    assert not run.continues("if possible")
    run.check(False)
    started(tmp_path)
    assert run.continues("if possible")
    assert Checkpoints(run.checkpoints).newest() is not None, "what can be resumed was removed"
    assert run.continues("always")
    assert not run.continues("never")


def test_a_batch_job_keeps_the_players_of_a_run_whose_checkpoints_are_gone(tmp_path):
    run = RunDirectory(tmp_path, "quickstart")
    started(tmp_path, checkpoint=False)
    (run.players / "p").mkdir()
    for steps in (200, 400):
        write_text(run.snapshot("p", steps), "")
    with pytest.raises(ConfigError, match="has no checkpoint to resume from"):
        run.check(run.continues("if possible"))
    assert len(run.snapshots("p")) == 2


def test_a_batch_job_leaves_alone_what_is_not_a_run(tmp_path):
    (tmp_path / "quickstart/log").mkdir(parents=True)
    (tmp_path / "quickstart/log/thesis.txt").touch()
    run = RunDirectory(tmp_path, "quickstart")
    with pytest.raises(ConfigError, match="exists"):
        run.check(run.continues("if possible"))
    assert (tmp_path / "quickstart/log/thesis.txt").is_file()


@pytest.mark.parametrize("in_the_way", ["runs", "runs/quickstart"])
def test_a_file_in_the_way_is_named(tmp_path, in_the_way):
    blocker = tmp_path / in_the_way
    blocker.parent.mkdir(exist_ok=True)
    blocker.write_text("notes")
    with pytest.raises(ConfigError) as caught:
        RunDirectory(tmp_path / "runs", "quickstart").create("", {}, resume=False)
    assert f"found the file {blocker} in the way" in str(caught.value)
    assert blocker.read_text() == "notes"


def test_a_place_that_cannot_be_written_is_refused_for_root_too():
    """The proc file system accepts no files, whatever its permissions are."""
    with pytest.raises(
        ConfigError, match=r"/proc/quickstart: expected a directory that can be written, found: .*run_root"
    ):
        RunDirectory("/proc", "quickstart").create("", {}, resume=False)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/tmp/x"])
def test_a_name_that_would_leave_the_root_is_refused(tmp_path, name):
    with pytest.raises(ConfigError, match="name: expected a plain name"):
        RunDirectory(tmp_path, name)


def test_a_run_refused_before_it_began_can_be_started_again(tmp_path):
    run = started(tmp_path, checkpoint=False)
    run.database.write_bytes(b"")
    run.arena_log.write_text("a line")
    RunDirectory(tmp_path, "quickstart").forget()
    assert not run.path.exists()
    started(tmp_path, checkpoint=False)
    (run.path / "notes.txt").write_text("mine")
    run.forget()
    assert [path.name for path in run.path.iterdir()] == ["notes.txt"]


def test_what_was_learned_is_never_forgotten(tmp_path):
    run = started(tmp_path, checkpoint=False)
    snapshot = run.snapshot("blue", 100)
    snapshot.parent.mkdir()
    write_text(snapshot, "weights")
    run.forget()
    assert snapshot.is_file()
    assert run.config.is_file()


def test_snapshots_are_listed_by_their_steps(tmp_path):
    run = started(tmp_path)
    assert run.snapshots("blue") == []
    for steps in (1000, 200, 30000):
        path = run.snapshot("blue", steps)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"")
    assert [path.name for path in run.snapshots("blue")] == ["200.safetensors", "1000.safetensors", "30000.safetensors"]


def test_importing_it_loads_no_torch():
    code = "import sys, arena.records.run_directory; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
