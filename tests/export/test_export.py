"""An exported file computes what its policy computes, or it is refused."""

import functools
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from gymnasium import spaces
from onnx import numpy_helper

from arena.common.registry import make_environment
from arena.common.space_json import space_from_json, space_to_json
from arena.common.trees import map_tree
from arena.envs.interface import EntitySpaces
from arena.experience.entity_json import entity_to_json
from arena.experience.samples import ObservationSample
from arena.export.formats import OPSET, onnx_bytes, put_weights, quantized, to_onnx, to_torchscript
from arena.export.gate import Tolerance, check, run_policy
from arena.export.metadata import ExportError, ExportMetadata, about_from_json, check_file
from arena.export.runtimes import open_onnx, open_torchscript
from arena.launch import main
from arena.tensors.weights import read_metadata, read_tensors, write_tensors
from benchmarks.tools.trained import POLE, give_weights, make_run
from tests.policies.policy_cases import CASES, ROWS, Case, masks, observed, trained

SLOTS = 4


def sample_for(case: Case) -> ObservationSample:
    """Return what there is to see of a case, in sequence, with episodes that start in between."""
    slots = [observed(case, slot) for slot in range(SLOTS)]
    mask = np.stack([masks(case, slot) for slot in range(SLOTS)]) if case.mask else None
    starts = np.random.default_rng(3).random((SLOTS, ROWS)) < 0.2
    starts[0] = True
    return ObservationSample(map_tree(lambda *leaves: np.stack(leaves), *slots), mask, starts)


def about_of(case: Case, inference, **others) -> ExportMetadata:
    entity = EntitySpaces("blue", case.observation, case.action, case.mask)
    return ExportMetadata("blue", 12, case.use, dict(case.settings), entity, inference.state_shape, **others)


@functools.cache
def prepared(name: str):
    """Return a case's module, its file's metadata, a sample, and the policy's outputs for it."""
    case = CASES[name]
    policy = trained(case)
    inference, sample = policy.inference(), sample_for(case)
    about = about_of(case, inference, opset=OPSET)
    return inference, about, sample, run_policy(policy, inference, about, sample)


@functools.cache
def exported_bytes(name: str) -> bytes:
    """Return the ONNX file of a case: to make one takes a second."""
    inference, about, _, _ = prepared(name)
    return onnx_bytes(to_onnx(inference, OPSET), about)


QUICK = ("vector", "lstm", "dqn")
"""Cases of the smallest tier: a file takes a second or more to make."""


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.tier("all")) for name in CASES]
)
def test_files_say_what_the_policy_does(name):
    case = CASES[name]
    inference, about, sample, answers = prepared(name)
    assert (len(answers.others) > 0) == (case.mask > 0)
    files = {
        open_onnx: exported_bytes(name),
        open_torchscript: to_torchscript(inference, about),
    }
    for open_file, content in files.items():
        run, said = open_file(content, "x")
        assert said == about and said.spaces.observation == case.observation and said.spaces.action == case.action
        found = check(run, said, sample, answers, Tolerance(), "x")
        assert found.rows == SLOTS * ROWS and found.agreement == 1 and found.absolute < 1e-4


@pytest.mark.parametrize("name", ["vector, masked", "lstm", "sac"])
def test_a_weight_that_is_off_is_refused(name):
    _, about, sample, answers = prepared(name)
    model = onnx.load_from_string(exported_bytes(name))
    _move_a_weight(model)
    run, _ = open_onnx(onnx_bytes(model, about), "x")
    with pytest.raises(ExportError, match="x: expected the policy's numbers within 0.0001 or a share of 0.001, found"):
        check(run, about, sample, answers, Tolerance(), "x")


def test_a_file_without_the_masks_is_refused():
    _, about, sample, answers = prepared("vector, masked")
    run, _ = open_onnx(exported_bytes("vector, masked"), "x")

    def without_masks(inputs):
        return run([inputs[0], np.ones_like(inputs[1])])

    with pytest.raises(ExportError, match="found"):
        check(without_masks, about, sample, answers, Tolerance(), "x")
    with pytest.raises(ExportError, match="expected the policy's actions on 100 % of 256 observations, found them on"):
        check(without_masks, about, sample, answers, Tolerance(None, None), "x")


def test_a_file_for_one_batch_size_is_refused():
    _, about, sample, answers = prepared("vector")
    run, _ = open_onnx(exported_bytes("vector"), "x")

    def only_large_batches(inputs):
        if len(inputs[0]) == 1:
            raise ValueError("Got invalid dimensions")
        return run(inputs)

    with pytest.raises(ExportError, match="x: it fails on a batch of 1"):
        check(only_large_batches, about, sample, answers, Tolerance(), "x")


@pytest.mark.parametrize("name", ["normalised", "normalised, sac"])
def test_a_file_with_the_weights_of_another_version_has_its_statistics(name):
    case = CASES[name]
    _, about, sample, _ = prepared(name)
    model = onnx.load_from_string(exported_bytes(name))
    later = trained(case)
    later.load_weights({name: tensor * 1.5 + 0.1 for name, tensor in later.weights().items()})
    inference = later.inference()
    put_weights(model, inference)
    run, _ = open_onnx(onnx_bytes(model, about), "x")
    assert check(run, about, sample, run_policy(later, inference, about, sample), Tolerance(), "x").absolute < 1e-4


def test_the_metadata_show_mean_and_deviation_of_what_is_normalised():
    inference = prepared("normalised, lstm, nested")[0]
    widths = {name: len(numbers["mean"]) for name, numbers in inference.normalization.items()}
    assert widths == {"observation.rest.2": 4, "observation.speed": 1}
    assert prepared("vector")[0].normalization == {}
    inference = prepared("normalised")[0]
    about = about_of(CASES["normalised"], inference, normalization=inference.normalization)
    read = about_from_json(about.to_json(), "x")
    assert read.normalization["observation"].keys() == {"mean", "deviation"} and read == about


@pytest.mark.tier("all")
def test_weights_of_eight_bits_make_a_smaller_file():
    case = Case("ppo", CASES["vector"].observation, spaces.Discrete(4), settings={"hidden": [256, 256]})
    policy = trained(case)
    inference, sample = policy.inference(), sample_for(case)
    about = about_of(case, inference, opset=OPSET)
    model = to_onnx(inference, OPSET)
    whole, small = onnx_bytes(model, about), onnx_bytes(quantized(model), about)
    assert len(small) < 0.4 * len(whole)
    run, _ = open_onnx(small, "x")
    answers = run_policy(policy, inference, about, sample)
    assert check(run, about, sample, answers, Tolerance.usual(int8=True)._replace(agreement=0.8), "x").absolute > 0


@pytest.fixture(scope="module")
def pole(tmp_path_factory):
    run = make_run(tmp_path_factory.mktemp("export"), POLE)
    give_weights(run, "blue", 1000, seed=5)
    return run


pytestmark = [pytest.mark.xdist_group("export"), pytest.mark.tier("default")]


@pytest.fixture(scope="module")
def exported(pole, tmp_path_factory):
    path = tmp_path_factory.mktemp("files") / "x.onnx"
    assert main(["export", str(pole), "blue", "--record", "128", "--out", str(path)]) == 0
    return path


def test_export_is_told_and_checked(pole, exported, capsys):
    assert main(["check-export", str(exported)]) == 0
    told = capsys.readouterr().out
    assert "x.onnx: blue@1000 (ppo), compared with what its player said" in told and "128 observations" in told
    assert main(["check-export", str(exported), str(pole)]) == 0
    assert f"compared with its player in {pole}" in capsys.readouterr().out
    script = exported.with_name("x.pt")
    assert main(["export", str(pole), "blue@1000", "--record", "64", "--to", "torchscript", "--out", str(script)]) == 0
    assert main(["check-export", str(script), str(pole)]) == 0
    small = exported.with_name("small.onnx")
    arguments = ["--record", "64", "--quantize", "int8", "--agreement", "0.5", "--episodes", "20", "--out", str(small)]
    assert main(["export", str(pole), "blue", *arguments]) == 0
    assert "20 episodes: mean return " in capsys.readouterr().out
    assert main(["check-export", str(small), "--agreement", "0.5"]) == 0
    capsys.readouterr()
    assert main(["export", str(pole), "blue", "--record", "64", "--absolute", "0", "--relative", "0"]) == 1
    told = capsys.readouterr().err
    assert told.startswith("refused: ") and told.endswith("nothing was written\n") and "Traceback" not in told
    assert not list((pole.players / "blue").glob("*.onnx*"))


def test_no_environment_is_needed_where_training_has_kept_what_it_saw(pole, exported, tmp_path, capsys):
    (tmp_path / "gone.py").write_text("import a_package_that_is_gone")
    run = make_run(tmp_path, POLE.replace("gymnasium:CartPole-v1", f"{tmp_path}/gone.py:make"))
    run.players.joinpath("blue").mkdir()
    run.snapshot("blue", 7).write_bytes(pole.snapshot("blue", 1000).read_bytes())
    assert main(["export", str(run), "blue"]) == 2
    assert "a_package_that_is_gone" in capsys.readouterr().err
    entity = make_environment("gymnasium:CartPole-v1", {}).entities[0]
    run.spaces("blue").write_text(json.dumps(entity_to_json(entity)))
    tensors = read_tensors(check_file(exported))
    write_tensors(run.observations("blue"), {name: tensors[name] for name in ("observation", "start")})
    assert main(["export", str(run), "blue"]) == 0
    assert (run.players / "blue" / "7.onnx").is_file()
    run.spaces("blue").write_text("{}")
    assert main(["export", str(run), "blue"]) == 2
    assert "spaces.json: expected an entity's spaces as JSON" in capsys.readouterr().err


def test_weights_alone_come_back_bit_for_bit(pole, tmp_path):
    path = tmp_path / "w.safetensors"
    assert main(["export", str(pole), "blue", "--to", "safetensors", "--out", str(path)]) == 0
    before, after = read_tensors(pole.snapshot("blue", 1000)), read_tensors(path)
    assert before.keys() == after.keys() and all((before[name] == after[name]).all() for name in before)
    assert '"player": "blue"' in read_metadata(path)["arena"]


def _move_a_weight(model: onnx.ModelProto) -> None:
    for tensor in model.graph.initializer:
        if tensor.name.endswith("weight"):
            values = numpy_helper.to_array(tensor).copy()
            values.flat[0] += 1e-2
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    assert model.graph.initializer


def _reseal(path: Path) -> None:
    """Change the check file so that it agrees with a wrong model."""
    tensors = read_tensors(check_file(path))
    write_tensors(check_file(path), tensors, {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()})


def _damage_weight(path: Path) -> None:
    model = onnx.load(path)
    _move_a_weight(model)
    onnx.save(model, path)


def _other_opset(path: Path) -> None:
    model = onnx.load(path)
    model.opset_import[0].version = 19
    onnx.save(model, path)


def _cut(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def _foreign(path: Path) -> None:
    model = onnx.load(path)
    del model.metadata_props[:]
    onnx.save(model, path)


@pytest.mark.parametrize("resealed", [False, True])
@pytest.mark.parametrize("damage", [_damage_weight, _other_opset, _cut, _foreign])
def test_another_file_is_refused_in_one_sentence(exported, tmp_path, capsys, damage, resealed):
    path = tmp_path / "x.onnx"
    for file in (exported, check_file(exported)):
        path.with_name(file.name).write_bytes(file.read_bytes())
    damage(path)
    if resealed:
        _reseal(path)
    assert main(["check-export", str(path)]) == 1
    told = capsys.readouterr().err
    assert told.startswith(f"refused: {path}: ") and told.count("\n") == 1 and "Traceback" not in told


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["blue"], "expected observations to compare with, found none"),
        (["red", "--record", "64"], "there is no player 'red'"),
        (["blue@7", "--record", "64"], "expected the steps of a snapshot"),
        (["blue", "--opset", "3"], "--opset: expected 18 to 23, found 3"),
        (["blue", "--to", "torchscript", "--quantize", "int8"], "--quantize: expected --to onnx"),
        (["blue", "--agreement", "2", "--record", "64"], "--agreement: expected 0 to 1, found 2"),
    ],
)
def test_wrong_wishes_are_told(pole, capsys, arguments, expected):
    assert main(["export", str(pole), *arguments]) == 2
    told = capsys.readouterr().err
    assert told.startswith("error: ") and expected in told


def test_a_policy_without_a_module_is_refused_by_name(tmp_path, capsys):
    run = make_run(tmp_path, POLE.replace("ppo, settings: {hidden: [8]}", "random"))
    assert main(["export", str(run), "blue", "--record", "64"]) == 2
    assert "policy 'random' cannot be exported" in capsys.readouterr().err


def test_check_export_says_what_is_missing(tmp_path, capsys, exported):
    assert main(["check-export", str(tmp_path / "none.onnx")]) == 2
    assert "No such file" in capsys.readouterr().err
    alone = tmp_path / "alone.onnx"
    alone.write_bytes(exported.read_bytes())
    assert main(["check-export", str(alone)]) == 2
    assert "alone.onnx.check.safetensors" in capsys.readouterr().err


def test_a_missing_package_is_named(pole, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    assert main(["export", str(pole), "blue", "--record", "64"]) == 2
    errors = capsys.readouterr().err
    assert "pip install 'arena-mpi[export]'" in errors and "Traceback" not in errors


@pytest.mark.parametrize("space", [case.observation for case in CASES.values()] + [c.action for c in CASES.values()])
def test_spaces_come_back_from_json(space):
    again = space_from_json(space_to_json(space))
    assert again == space
    if isinstance(space, spaces.Dict):
        assert list(again.spaces) == list(space.spaces)


@pytest.mark.tier("all")
def test_ctrl_c_ends_it_without_a_traceback(pole):
    line = [sys.executable, "-m", "arena.launch", "export", str(pole), "blue", "--record", "100000000"]
    with subprocess.Popen(line, stderr=subprocess.PIPE, text=True) as process:
        while _processor_seconds(process.pid) < 5:  # imports take 2 to 3; then it plays
            assert process.poll() is None
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert process.stderr is not None and process.stderr.read() == ""


def _processor_seconds(process: int) -> float:
    """Return the processor time that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
