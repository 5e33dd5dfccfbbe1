"""Sweeps before anything starts: names, plans and errors; and what a search makes of evaluations."""

from pathlib import Path

import pytest
import yaml

import arena
from arena.launch.command_line import main
from arena.sweeps.capacity import runs_at_a_time
from arena.sweeps.children import Ended
from arena.sweeps.configuration import check_sweep, load_sweep
from arena.sweeps.planned import grid_runs, name_of, open_sweep
from arena.sweeps.search import Trials, check_search
from benchmarks.tools.trained import POLE
from tests.report.test_comparison import evaluated_run
from tests.test_documentation import ROOT, blocks

RATE = "policies.blue.settings.learning_rate"


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pole.yaml").write_text(POLE)
    return tmp_path


def write_sweep(folder: Path, **keys: object) -> str:
    path = folder / "lr.yaml"
    path.write_text(yaml.safe_dump({"run": "pole.yaml", **keys}))
    return str(path)


def test_a_run_for_each_seed_and_combination(folder):
    grid = {RATE: [1e-3, 3e-4], "policies.blue.settings.hidden": [[8], [8, 8]]}
    config = check_sweep(
        {"name": "lr", "run": "pole.yaml", "seeds": [1, 2], "grid": grid, "set": {"steps": 50}}, folder
    )
    runs = grid_runs(open_sweep(config, ["env.num_envs=2"]))
    assert [run.name for run in runs[:3]] == [
        "learning_rate-0.001_hidden-8_seed-1",
        "learning_rate-0.001_hidden-8_seed-2",
        "learning_rate-0.001_hidden-8-8_seed-1",
    ]
    assert len(runs) == 8 and {run.state for run in runs} == {"missing"}
    last = runs[-1].config()
    assert (last.seed, last.steps, last.env.num_envs, last.run_root) == (2, 50, 2, "runs/lr")
    assert last.policies["blue"].settings["hidden"] == (8, 8)


def test_names_are_those_of_directories():
    assert name_of({"use": "path/to/file.py:Class", "gamma": -0.5}) == "use-path-to-file.py-Class_gamma--0.5"
    long = name_of({"a": "x" * 200})
    assert len(long) == 120 and long != name_of({"a": "x" * 201})


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"grid": {"policies.blue.settings.learning_rat": [1]}}, "unknown key; did you mean 'learning_rate'?"),
        ({"grid": {"policies.bleu.settings.gamma": [1]}}, "there is no 'bleu' in policies"),
        ({"grid": {RATE: [1e-3, 0.001]}}, "the same name learning_rate-0.001, both with learning_rate 0.001; expected"),
        ({"seeds": [1, 1]}, "two runs would have the same name seed-1, both with seed 1; expected each value once"),
        ({"grid": {"device": ["a b", "a_b"]}}, "same name device-a-b: with device 'a b', and with device 'a_b'"),
        ({"grid": {"seed": [1]}}, "lr.yaml:1: grid: seed cannot be set here: list seeds"),
        ({"grid": {"name": ["x"]}}, "name cannot be set here"),
        ({"grid": {RATE: []}}, "expected at least one value, found an empty list"),
        ({"grid": {RATE: 1e-3}}, "grid.policies"),
        ({}, "expected seeds, grid or search, found none of them"),
        ({"seeds": [1], "run": "poel.yaml"}, "there is no file 'poel.yaml'"),
        ({"seeds": [1], "grids": {}}, "unknown key; did you mean 'grid'?"),
        ({"search": {"trials": 2, "space": {RATE: {"log": [1e-5, 1]}}}}, "search: expected runs with evaluations"),
        ({"search": {"trials": 2, "space": {RATE: {"log": [1, 1e-5]}}}}, "in ascending order, found 1 and 1e-05"),
        (
            {"search": {"trials": 2, "space": {RATE: {}}}},
            "expected one of log, uniform, integer and choice, found none",
        ),
        ({"search": {"trials": 2, "space": {RATE: {"choice": [1]}}}, "seeds": [1]}, "expected no seeds and no grid"),
        ({"seeds": [1], "grid": {RATE: [1]}, "set": {RATE: 2}}, "expected keys that are not swept"),
    ],
)
def test_what_cannot_be_run_is_a_sentence_and_nothing_starts(folder, capsys, keys, message):
    assert main(["sweep", write_sweep(folder, **keys)]) == 2
    errors = capsys.readouterr().err
    assert message in errors and errors.startswith("error: ") and "Traceback" not in errors
    assert not (folder / "runs").exists()


def test_a_run_with_other_settings_is_not_taken_for_one_of_the_sweep(folder, capsys):
    evaluated_run(folder / "runs" / "lr", "seed_1", [1.0], seed=1)
    (folder / "runs" / "lr" / "seed_1").rename(folder / "runs" / "lr" / "seed-1")
    assert main(["sweep", write_sweep(folder, seeds=[1]), "--set", "steps=2000"]) == 2
    assert "found a run with others (steps 1000, now 2000); remove it" in capsys.readouterr().err
    (folder / "runs" / "lr" / "config.yaml").write_text(POLE)
    assert main(["sweep", write_sweep(folder, seeds=[1])]) == 2
    assert "expected a directory of runs, found a run" in capsys.readouterr().err


def test_a_dry_run_and_an_array_name_what_is_missing(folder, capsys):
    """The array takes no part in MPI here: tests/slurm runs one."""
    file = write_sweep(folder, seeds=[1, 2, 3], parallel=2)
    assert main(["sweep", file, "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        *(f"runs/lr/seed-{seed}: missing" for seed in (1, 2, 3)),
        "2 at a time; the plan of one: arena pole.yaml --dry-run",
    ]
    assert main(["sweep", file, "--slurm", "--time", "0:10:00", "--partition", "fast"]) == 0
    script = (folder / "lr.sbatch").read_text()
    assert "#SBATCH --array=0-2%2\n" in script and "#SBATCH --partition=fast\n" in script
    assert "    1) arguments=(pole.yaml --set seed=2 --set 'name=\"seed-2\"' --set" in script
    assert "singleton" not in script and not (folder / "runs").exists()
    assert main(["sweep", file, "--slurm"]) == 2
    assert "lr.sbatch exists" in capsys.readouterr().err


def test_runs_at_a_time_depend_on_cores_and_memory(folder):
    config = check_sweep({"name": "lr", "run": "pole.yaml", "seeds": [1]}, folder)
    base = open_sweep(config).base
    from arena.launch.preflight.inspection import inspect_run

    needs = inspect_run(base)
    assert runs_at_a_time(base, needs, 4, 10**11) == 4  # the environment process and the worker take turns
    assert runs_at_a_time(base, needs, 4, 10**9) == 3
    assert runs_at_a_time(base, needs, 1, 10**5) == 1


def test_the_files_that_are_shown_are_valid(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    shown = dict(blocks(ROOT / "docs" / "guides" / "sweeps.md"))
    (tmp_path / "learning_rates.yaml").write_text(shown["learning_rates.yaml"])
    example = ROOT / "examples" / "learning_rates.yaml"
    assert load_sweep(tmp_path / "learning_rates.yaml") == load_sweep(example), "the guide shows another one"
    (tmp_path / "search.yaml").write_text(shown["search.yaml"])
    config = check_search(open_sweep(load_sweep(tmp_path / "search.yaml")))
    assert config.evaluators == 1
    runs = grid_runs(open_sweep(load_sweep(example)))
    assert len(runs) == 10 and runs[0].directory.path == Path("runs/learning_rates/learning_rate-0.001_seed-1")


SEARCH = {
    "name": "find",
    "run": "pole.yaml",
    "set": {"evaluate.every": 100},
    "search": {"trials": 3, "startup": 1, "space": {"policies.blue.settings.hidden": {"choice": [[8], [8, 8]]}}},
}


def trial(folder: Path, trials: Trials, scores: list[float]) -> object:
    """Take the next run of a search, and record these evaluations in its directory."""
    run = trials.next_run()
    assert run is not None
    made = evaluated_run(folder / "runs" / "find", "x", scores)
    made.path.rename(run.directory.path)
    return run


def test_a_search_ends_bad_trials_early_and_continues_after_a_kill(folder):
    sweep = open_sweep(check_sweep(SEARCH, folder))
    sweep.path.mkdir(parents=True)
    lines: list[str] = []
    trials = Trials(sweep, lines.append)
    good = trial(folder, trials, [5.0, 9.0])
    assert good.name == "trial-0000" and good.config().seed == 1
    assert trials.continues(good)
    trials.ended(good, Ended(0, 1.0, True, ""))
    bad = trial(folder, trials, [1.0])
    assert bad.config().seed == 2
    assert not trials.continues(bad), "worse than the median of complete trials after as many steps"
    trials.ended(bad, Ended(0, 1.0, False, ""))
    abandoned = trials.next_run()
    trials._running[abandoned.name].set_user_attr("owner", "1:0")  # of a process that has ended
    again = Trials(sweep, lines.append)
    assert again.describe() == "3 trials, 2 ended, 1 to be continued"
    continued = again.next_run()
    assert (continued.name, continued.overrides) == (abandoned.name, abandoned.overrides)
    again.ended(continued, Ended(1, 1.0, False, "it broke"))
    assert again.failed == {"trial-0002": "it broke"} and again.next_run() is None
    assert "trial-0001: pruned after 100 steps with 1.00" in lines
    assert again.best()[0] == "1 complete, 1 pruned, 1 failed" and "9.00  trial-0000" in again.best()[1]
    other = {**SEARCH, "search": {**SEARCH["search"], "space": {RATE: {"log": [1e-5, 1e-2]}}}}
    with pytest.raises(arena.ConfigError, match="found another one; choose another name"):
        Trials(open_sweep(check_sweep(other, folder)), print)


def test_two_evaluations_of_the_same_step_are_reported_once(folder, recwarn):
    """The last weights are evaluated shortly after the last multiple of ``every``, at which trials are compared."""
    sweep = open_sweep(check_sweep({**SEARCH, "set": {"evaluate.every": 300}}, folder))
    sweep.path.mkdir(parents=True)
    trials = Trials(sweep, print)
    run = trial(folder, trials, [5.0, 6.0, 7.0, 8.0])  # after 100 to 400 steps: rounded to 0, 300, 300 and 300
    assert trials.continues(run) and trials.continues(run)
    assert not [str(each.message) for each in recwarn if "already reported" in str(each.message)]
