"""Classes and functions of Python in a configuration: references that ranks can load, or one sentence."""

import sys
from pathlib import Path

import numpy as np
import pytest

import arena
from arena.api.train import Training
from arena.api.written import Written
from arena.common.registry import load
from arena.config.run import load_config
from arena.evaluation.play import Result
from arena.records.run_directory import RunDirectory
from benchmarks.tools.trained import POLE, make_run


def top_level(env):
    return env


def closure():
    class Inner:
        pass

    return Inner


class Outer:
    class Inner:
        pass


@pytest.fixture
def written(tmp_path) -> Written:
    return Written(tmp_path / "code")


def test_values_are_those_of_yaml(written):
    given = {"a": (1, np.float32(0.5)), "b": Path("x/y"), "c": np.arange(2), 3: None, "d": True}
    assert written.value(given) == {"a": [1, 0.5], "b": "x/y", "c": [0, 1], "3": None, "d": True}


def test_a_class_of_a_module_is_named(written):
    reference = written.value({"policies": {"blue": {"use": Result}}})["policies"]["blue"]["use"]
    assert reference == "arena.evaluation.play:Result" and load(reference) is Result
    assert not written.pickled


def test_a_class_of_a_file_is_named_by_its_file(written, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("class Mine:\n    pass\n")
    cls = load(f"{path}:Mine")
    assert written.value({"use": cls}) == {"use": f"{path}:Mine"}


def test_classes_of_networks_are_named_wherever_an_encoder_may_stand(written):
    for encoder in (Result, {"units": Result}, {"units": {"use": Result}}):
        found = written.value({"policies": {"p": {"use": "ppo", "settings": {"encoder": encoder}}}})
        assert "'arena.evaluation.play:Result'" in str(found)


def test_a_class_of_a_prompt_is_pickled_and_loads_again(written, tmp_path):
    namespace = {"__name__": "__main__"}
    exec("class Cell:\n    size = 3\n    def grown(self):\n        return self.size + 1", namespace)
    sys.modules["__main__"].Cell = namespace["Cell"]  # type: ignore[attr-defined]
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.delattr(sys.modules["__main__"], "__file__", raising=False)
            reference = written.value({"use": namespace["Cell"]})["use"]
    finally:
        del sys.modules["__main__"].Cell  # type: ignore[attr-defined]
    written.write_pickled()
    assert load(reference)().grown() == 4 and load(reference) is load(reference)
    assert reference.startswith(str(tmp_path / "code" / "Cell-"))
    # A run directory that was moved brings it along.
    run = make_run(tmp_path, POLE.replace("use: ppo, settings: {hidden: [8]}", f'use: "{reference}"'))
    run.code.mkdir()
    (file,) = (tmp_path / "code").iterdir()
    file.rename(run.code / file.name)
    assert load_config(run.config).policies["blue"].use == f"{run.code / file.name}:Cell"
    (run.code / file.name).write_bytes(b"something else")
    with pytest.raises(arena.ConfigError, match="expected a class or function of a notebook, found a file that cannot"):
        load(f"{run.code / file.name}:Cell")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"env": {"use": lambda: None}}, "env.use: expected a class or function .* at its top level, found a lambda;"),
        ({"use": closure()}, "use: expected a class or function .* found Inner, which the function closure defines"),
        ({"use": Outer.Inner}, "use: .* found the class Outer.Inner"),
        ({"use": top_level(np.tanh)}, "use: .* found an object of type ufunc"),
        ({"env": {"settings": {"f": top_level}}}, "env.settings.f: .* found the function top_level; classes and func"),
        ({"steps": object()}, "steps: expected a value that YAML can hold, found an object of type object"),
    ],
)
def test_what_ranks_cannot_load_is_refused(written, value, message):
    with pytest.raises(arena.ConfigError, match=message):
        written.value(value)


def test_code_alone_is_no_run(tmp_path):
    run = RunDirectory(tmp_path, "new")
    run.code.mkdir(parents=True)
    run.check(resume=False)
    (run.path / "notes.txt").touch()
    with pytest.raises(arena.ConfigError, match="exists"):
        run.check(resume=False)


def test_nothing_is_left_of_what_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(arena.ConfigError, match="steps"):
        Training({"name": "x", "env": {"use": top_level}}, {}, [], show=False, on_progress=None)
    assert not (tmp_path / "runs").exists()
