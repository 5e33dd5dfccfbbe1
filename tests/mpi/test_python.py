"""``arena.train`` as users call it: from a script, from a notebook, and beside other trainings."""

import json
import os
import queue
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

import arena
from arena.records.checkpoints import Checkpoints
from arena.records.lease import holder_of

pytestmark = pytest.mark.rooms("api", "launch")

POLE: dict[str, Any] = {
    "name": "pole",
    "steps": 3000,
    "env": {"use": "gymnasium:CartPole-v1", "num_envs": 4},
    "policies": {"solo": {"use": "ppo", "settings": {"hidden": [8]}}},
    "matches": [{"seats": ["solo"]}],
    "records": {"plots": False},
}
ENDLESS = {**POLE, "name": "endless", "steps": 50_000_000}


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch) -> None:
    """Work in an empty folder, as users do."""
    monkeypatch.chdir(tmp_path)


def wait_until(condition, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"it did not happen in time; processes: {processes_of(Path.cwd())}"
        time.sleep(0.05)


def has_updates(run: str) -> bool:
    """Return whether a run has learned something that a checkpoint can hold."""
    with_metrics = Path(run) / "arena.sqlite"
    try:
        return with_metrics.is_file() and arena.Run(run).metrics().rows > 0
    except arena.ConfigError:
        return False


def processes_of(folder: Path) -> list[str]:
    """Return the command lines of processes that work in a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            works_there = os.readlink(process / "cwd").startswith(str(folder))
            if works_there and process.name != str(os.getpid()):
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


def script(folder: Path, text: str) -> subprocess.Popen:
    """Start a script in a folder."""
    path = folder / "script.py"
    path.write_text(textwrap.dedent(text))
    return subprocess.Popen(
        [sys.executable, path.name], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


TEN_LINES = """
    import arena, gymnasium, matplotlib.pyplot as plt
    if __name__ == "__main__":
        run = arena.train("pole.yaml", steps=4000)
        print(run.evaluate(episodes=5, deterministic=True))
        episodes = run.episodes("solo")
        plt.plot(episodes["steps"], episodes["return"])
        plt.savefig("curve.png")
        env, player = gymnasium.make("CartPole-v1"), run.player()
        observation, _ = env.reset()
        print("action", player.act(observation), "of", env.action_space)
"""


@pytest.mark.tier("default")
def test_a_script_of_ten_lines(tmp_path):
    (tmp_path / "pole.yaml").write_text(json.dumps(POLE))
    with script(tmp_path, TEN_LINES) as process:
        output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert "Results(solo: " in output and "of Discrete(2)" in output
    assert "solo is finished after" in output, "without a terminal, the lines of the command line are shown"
    assert (tmp_path / "curve.png").stat().st_size > 1000


def test_mappings_keys_and_the_config_of_another_run(capsys):
    states = []
    run = arena.train(
        POLE, steps=2000, policies={"solo": {"settings": {"learning_rate": 1e-3}}}, progress=False,
        on_progress=states.append,
    )  # fmt: skip
    assert capsys.readouterr() == ("", "")
    assert run.finished and run.exit_code == 0 and run.name == "pole" and run.path == Path("runs/pole")
    assert run.config.policies["solo"].settings["learning_rate"] == 1e-3
    assert run.config.policies["solo"].settings["hidden"] == (8,) and run.config.steps == 2000
    assert states[-1].players["solo"].steps >= 2000 and states[-1].name == "pole"
    assert not (run.path / "progress.json").exists()
    with pytest.raises(arena.ConfigError, match="runs/pole exists: continue it with --resume"):
        arena.train(POLE)
    longer = arena.train(run.config, steps=4000, resume=True, progress=False)
    assert [attempt.checkpoint for attempt in longer.attempts] == [None, 1] and longer.player().steps >= 4000
    assert longer.config == run.config.model_copy(update={"steps": 4000})


def test_an_error_of_on_progress_stops_the_run(capfd):
    def enough(state) -> None:
        if state.players["solo"].updates:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        arena.train(ENDLESS, progress=False, on_progress=enough)
    run = arena.Run("runs/endless")
    assert not run.is_running and run.exit_code == 0 and run.player().steps > 0


def test_two_at_a_time_and_a_stop():
    first = arena.train(ENDLESS, wait=False)
    second = arena.train(ENDLESS, name="other", wait=False)
    assert first.is_running and second.is_running and "running" in repr(second)
    with pytest.raises(TimeoutError):
        second.wait(0.1)
    wait_until(lambda: has_updates("runs/endless") and has_updates("runs/other"))
    arena.Run("runs/other").stop()  # as another process would
    first.stop()
    for run in (first, second):
        assert run.wait(60) is run and run.exit_code == 0 and not run.finished
        assert run.player().steps > 0 and Checkpoints(run.path / "checkpoints").newest() is not None


@pytest.mark.tier("default")
def test_ctrl_c_stops_a_script_in_order(tmp_path):
    text = f"""
        import arena, sys
        if __name__ == "__main__":
            try:
                arena.train({ENDLESS!r})
            except KeyboardInterrupt:
                print("interrupted", arena.Run("runs/endless").finished)
    """
    with script(tmp_path, text) as process:
        wait_until(lambda: has_updates(str(tmp_path / "runs/endless")))
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    assert "interrupted False" in output and "it writes a checkpoint" in errors, (output, errors)
    assert arena.Run("runs/endless").player().steps > 0 and processes_of(tmp_path / "runs") == []


POLICY = """
    import arena

    class Mine:
        def __init__(self, env, group, fails=False):
            self.env, self.fails = env, fails

        def run(self, steps):
            self.env.reset()
            for _ in range(steps):
                if self.fails:
                    raise ValueError("I was told to")
                self.env.step(self.env.action_space.sample())

    {guard}
        arena.train({config})
"""


def test_a_class_of_the_script_itself(tmp_path):
    config = repr(own_policy()).replace("'script.py:Mine'", "Mine")
    with script(
        tmp_path, POLICY.format(guard='if __name__ == "__main__":', config="...").replace("...", config)
    ) as process:
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert arena.Run("runs/pole").config.policies["solo"].use == f"{tmp_path / 'script.py'}:Mine"


def own_policy(**changes: Any) -> dict[str, Any]:
    return {**POLE, "steps": 100, "policies": {"solo": {"use": "script.py:Mine", **changes}}}


def test_a_script_without_the_main_guard_is_refused(tmp_path):
    with script(tmp_path, POLICY.format(guard="if True:", config=own_policy())) as process:
        output, errors = process.communicate(timeout=60)
    assert process.returncode == 1 and output == ""
    assert "script.py, line 15: the ranks import this script for its classes" in errors
    assert 'if __name__ == "__main__":' in errors, errors


def test_a_run_that_fails_says_so(tmp_path):
    (tmp_path / "script.py").write_text(textwrap.dedent(POLICY.format(guard="if False:", config={})))
    with pytest.raises(arena.RunFailed, match="ValueError: I was told to") as failure:
        arena.train(own_policy(settings={"fails": True}), progress=False)
    assert failure.value.code == 1 and failure.value.run.exit_code in (1, None)
    assert str(failure.value).startswith("runs/pole has failed with exit code 1:\n")


@pytest.mark.parametrize(
    ("config", "keys", "message"),
    [
        (POLE, {"stepz": 3}, r"^--set stepz: unknown key; did you mean 'steps'\?$"),
        ({**POLE, "stepz": 3}, {}, r"^stepz: unknown key; did you mean 'steps'\?$"),
        ("nothing.yaml", {}, "there is no file nothing.yaml"),
        (7, {}, "expected a path, a mapping or a RunConfig, found int"),
        (POLE, {"resume": "maybe"}, "resume: expected True, False or 'if possible', found 'maybe'"),
        (POLE, {"resume": True}, r"runs/pole: expected a run to resume, found none there"),
        (POLE, {"ranks": 2}, "this table needs 3 ranks"),
        ({**POLE, "env": {"use": "gymnasium:CartPole-v7"}}, {}, "CartPole-v7"),
    ],
)
def test_bad_input_is_one_error_with_the_text_of_the_command_line(config, keys, message, capsys):
    with pytest.raises(arena.ConfigError, match=message) as error:
        arena.train(config, progress=False, **keys)
    assert "arena-" not in str(error.value) and capsys.readouterr() == ("", "")


def test_inside_a_rank_it_is_refused(monkeypatch):
    monkeypatch.setenv("ARENA_INSIDE", "a rank")
    with pytest.raises(arena.ConfigError, match="arena.train was called inside a rank, which imports this file"):
        arena.train(POLE)


def test_several_tasks_of_srun_are_refused(monkeypatch):
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "4")
    with pytest.raises(
        arena.ConfigError, match="srun has started 4 processes that call arena.train; start one of them"
    ):
        arena.train(POLE)


# Notebooks -----------------------------------------------------------------------------------------------------


class Notebook:
    """The kernel of a notebook, as a frontend drives it."""

    def __init__(self, folder: Path) -> None:
        from jupyter_client.manager import start_new_kernel

        self.manager, self.client = start_new_kernel(kernel_name="python3", cwd=str(folder))

    def start(self, code: str) -> str:
        """Start a cell; return its number."""
        return self.client.execute(textwrap.dedent(code))

    def outputs(self, cell: str, seconds: float = 90.0) -> list[dict[str, Any]]:
        """Return all outputs of a cell, once it has ended."""
        found, deadline = [], time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                message = self.client.get_iopub_msg(timeout=1)
            except queue.Empty:
                continue
            if message["parent_header"].get("msg_id") != cell:
                continue
            if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                return found
            found.append({"type": message["msg_type"], **message["content"]})
        raise AssertionError(f"the cell still runs: {found}")


@pytest.fixture
def notebook(tmp_path):
    pytest.importorskip("jupyter_client")
    notebook = Notebook(tmp_path)
    yield notebook
    notebook.client.stop_channels()
    notebook.manager.shutdown_kernel(now=True)


def test_an_interrupted_cell_stops_its_run_and_a_killed_kernel_leaves_nothing(notebook, tmp_path):
    cell = notebook.start(f"import arena\nrun = arena.train({POLE!r})\nrun")
    outputs = notebook.outputs(cell)
    (shown,) = [o for o in outputs if o["type"] == "execute_result"]
    assert "<table>" in shown["data"]["text/html"] and "<svg" in shown["data"]["text/html"], outputs
    views = [o["data"]["text/html"] for o in outputs if o["type"] in ("display_data", "update_display_data")]
    assert [o["type"] for o in outputs].count("display_data") == 1, "one output is redrawn in its place"
    assert views and "environment steps/s" in views[-1] and "solo" in views[-1]
    assert not [o for o in outputs if o["type"] == "stream"], outputs

    cell = notebook.start(f"arena.train({ENDLESS!r})")
    wait_until(lambda: has_updates(str(tmp_path / "runs/endless")))
    notebook.manager.interrupt_kernel()
    assert [o["ename"] for o in notebook.outputs(cell) if o["type"] == "error"] == ["KeyboardInterrupt"]
    run = arena.Run("runs/endless")
    assert not run.is_running and run.exit_code == 0 and run.player().steps > 0

    cell = """
        import gymnasium

        class Cell(gymnasium.Env):
            observation_space = gymnasium.spaces.Box(-1, 1, (2,))
            action_space = gymnasium.spaces.Discrete(2)

            def reset(self, seed=None, options=None):
                super().reset(seed=seed)
                return self.observation_space.sample(), {}

            def step(self, action):
                return self.observation_space.sample(), 1.0, bool(self.np_random.random() < 0.1), False, {}
    """
    notebook.outputs(notebook.start(cell))
    config = repr({**POLE, "name": "cell", "env": {"use": "Cell"}}).replace("'Cell'", "Cell")
    outputs = notebook.outputs(notebook.start(f"run = arena.train({config}, progress=False)\nrun.evaluate(3)"))
    assert "Results(solo: " in str(outputs), outputs
    (file,) = (tmp_path / "runs/cell/code").iterdir()
    assert arena.Run("runs/cell").config.env.use == f"{file}:Cell"

    notebook.outputs(notebook.start(f"run = arena.train({ENDLESS!r}, name='killed', wait=False)"))
    wait_until(lambda: has_updates(str(tmp_path / "runs/killed")))
    assert len(processes_of(tmp_path)) > 1
    os.kill(notebook.manager.provisioner.process.pid, signal.SIGKILL)
    wait_until(lambda: processes_of(tmp_path) == [], 10)
    assert holder_of(tmp_path / "runs/killed") is None and arena.Run("runs/killed").exit_code == 0
