"""Players that onnxruntime computes: their outputs, newer versions, files alone, and errors."""

import json
import time
import urllib.error
import urllib.request
from typing import Any

import numpy as np
import pytest

from arena.common.registry import make_environment
from arena.config.run import load_config
from arena.evaluation.observed import record_observations
from arena.evaluation.served_files import load_file
from arena.experience.entity_json import entity_to_json
from arena.launch import main
from arena.policies.loader import build, load_weights
from arena.tensors.weights import read_tensors, write_tensors
from benchmarks.tools.serving import Served
from benchmarks.tools.trained import POLE, give_weights, make_run

pytestmark = [pytest.mark.xdist_group("onnx"), pytest.mark.tier("all")]
MEMORY = POLE.replace("hidden: [8]", "lstm: 8").replace("pole", "memory")


def prepared(root, text):
    """Return a run that has kept what its player saw."""
    run = make_run(root, text)
    give_weights(run, "blue", 1000, seed=5)
    run.spaces("blue").write_text(json.dumps(entity_to_json(entity())))
    config = load_config(run.config)
    sample = record_observations(run, config, "blue", config.round_list()[0].rows[0], 256, 1)
    sample.write(run.observations("blue"))
    return run


def entity():
    environment = make_environment("gymnasium:CartPole-v1", {})
    environment.close()
    return environment.entities[0]


@pytest.fixture(scope="module")
def pole(tmp_path_factory):
    return prepared(tmp_path_factory.mktemp("onnx"), POLE)


def ask(served: Served, rows: np.ndarray, **parameters: Any) -> dict[str, Any]:
    """Return the server's actions for observations."""
    tensor = {"name": "observation", "shape": list(rows.shape), "datatype": "FP32", "data": rows.ravel().tolist()}
    body = json.dumps({"inputs": [tensor], "parameters": parameters}).encode()
    with urllib.request.urlopen(f"{served.url}/v2/models/blue/infer", body, timeout=10) as answer:
        return json.load(answer)


def actions_of(run, steps, rows):
    policy = build("ppo", entity(), {"hidden": [8]}, lanes=1, seed=0)
    load_weights(policy, run.snapshot("blue", steps))
    return policy.act(rows, deterministic=True).actions


def version(served):
    with urllib.request.urlopen(f"{served.url}/readyz", timeout=10) as answer:
        return json.load(answer)["versions"]["blue"]


def becomes(served, wanted):
    until = time.monotonic() + 20
    while version(served) != wanted and time.monotonic() < until:
        time.sleep(0.05)
    return version(served) == wanted


def test_newer_versions_are_compared_before_they_are_served(pole):
    rows = np.random.default_rng(0).normal(size=(500, 4)).astype(np.float32)
    with Served(pole.path, "--backend", "onnx", "--poll", "0.1") as served:
        found = ask(served, rows)
        assert found["outputs"][0]["data"] == actions_of(pole, 1000, rows).tolist() and found["model_version"] == "1000"
        with pytest.raises(urllib.error.HTTPError) as refused:
            ask(served, rows, deterministic=False)
        assert refused.value.code == 400 and "the most likely actions only" in refused.value.read().decode()
        with urllib.request.urlopen(f"{served.url}/v2/models/blue", timeout=10) as answer:
            assert json.load(answer)["platform"] == "onnxruntime_onnx"
        give_weights(pole, "blue", 2000, seed=6)
        assert becomes(served, "2000")
        found = ask(served, rows)
        assert found["outputs"][0]["data"] == actions_of(pole, 2000, rows).tolist()
        assert (actions_of(pole, 1000, rows) != actions_of(pole, 2000, rows)).any()
        weights = read_tensors(pole.snapshot("blue", 2000))
        write_tensors(pole.snapshot("blue", 3000), {name: array * np.inf for name, array in weights.items()})
        assert served.has_said("a newer version of blue is refused: blue@3000: ")
        assert ask(served, rows)["model_version"] == "2000"
        with urllib.request.urlopen(f"{served.url}/metrics", timeout=10) as answer:
            assert 'arena_gateway_reloads_total{player="blue",result="refused"} 1.0' in answer.read().decode()
        assert served.stop() == 0 and "Traceback" not in served.errors()
    pole.snapshot("blue", 3000).unlink()


def test_a_file_is_served_alone(pole, tmp_path):
    path = tmp_path / "blue.onnx"
    assert main(["export", str(pole), "blue@1000", "--out", str(path)]) == 0
    rows = np.random.default_rng(1).normal(size=(100, 4)).astype(np.float32)
    with Served(path) as served:
        assert served.line.startswith(f"serving blue@1000 of {path} at ")
        assert ask(served, rows)["outputs"][0]["data"] == actions_of(pole, 1000, rows).tolist()
        assert served.stop() == 0 and not served.failures()
    small = tmp_path / "small.onnx"  # as good as it was when it was let through
    assert main(["export", str(pole), "blue@1000", "--quantize", "int8", "--agreement", "0", "--out", str(small)]) == 0
    assert load_file(small, 1).version == "1000"
    path.with_name("blue.onnx.check.safetensors").unlink()
    with Served(path) as served:
        assert served.has_said("is loaded unchecked: there is no blue.onnx.check.safetensors beside it")


def test_games_have_memories_of_their_own(tmp_path):
    run = prepared(tmp_path, MEMORY)
    rows = np.random.default_rng(2).normal(size=(2, 30, 4)).astype(np.float32)
    policy = build("ppo", entity(), {"lstm": 8}, lanes=2, seed=0)
    load_weights(policy, run.snapshot("blue", 1000))
    expected = [
        policy.act(rows[:, slot], starts=np.full(2, slot == 0), lanes=slice(0, 2), deterministic=True).actions.tolist()
        for slot in range(30)
    ]
    with Served(run.path, "--backend", "onnx") as served:
        for game in range(2):
            _step(served, game, "start", 0, b"")
        found = []
        for slot in range(30):
            said = [_step(served, game, "tick", slot + 1, _observation(rows[game, slot])) for game in range(2)]
            found.append([json.loads(text)["action"] for text in said])
    assert found == expected and len({tuple(pair) for pair in found}) > 1


def _observation(row):
    return json.dumps({"observation": row.tolist()}).encode()


def _step(served, game, kind, tick, body):
    headers = {"game_id": f"g{game}", "step_kind": kind, "tick_id": str(tick)}
    request = urllib.request.Request(f"{served.url}/step", body, headers, method="POST")
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.read()


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["--quantize", "int8"], 2, "--quantize: expected --backend onnx beside it"),
        (["--backend", "onnx", "--sample"], 2, "--sample: expected a run directory"),
    ],
)
def test_options_that_do_not_go_together_are_told(pole, capsys, arguments, code, expected):
    assert main(["serve", str(pole), *arguments]) == code
    assert expected in capsys.readouterr().err


def test_bad_files_are_not_served(pole, tmp_path, capsys):
    path = tmp_path / "blue.onnx"
    assert main(["export", str(pole), "blue@1000", "--out", str(path)]) == 0
    assert main(["serve", str(path), "--player", "blue"]) == 2
    assert "--player: expected a run directory, found the exported file" in capsys.readouterr().err
    content = path.read_bytes()
    path.write_bytes(content[:-200])
    assert main(["serve", str(path), "--port", "0"]) == 1
    assert "refused: " in capsys.readouterr().err
    assert main(["serve", str(tmp_path / "none.onnx"), "--port", "0"]) == 2
