"""``arena serve``: trained players act over HTTP as they do in ``arena eval``."""

import json
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import numpy as np
import pytest
import tritonclient.http

from arena.common.seeding import derive_seed
from arena.common.trees import map_tree, tree_leaves
from arena.config.run import load_config
from arena.evaluation.players import find_contestant, make_copy, take_seats
from arena.gateway.values import to_json
from arena.launch import main
from arena.tensors.weights import write_tensors
from benchmarks.tools.serving import Served
from benchmarks.tools.trained import give_weights, make_run

pytestmark = pytest.mark.tier("default")

POLE = """
name: pole
steps: 1000
env: {use: gymnasium:CartPole-v1}
policies: {blue: {use: ppo, settings: {hidden: [64, 64]}}}
matches: [{seats: [blue]}]
"""

FOOTBALL = """
name: football
steps: 1000
env: {use: touchdown, settings: {team_size: 1}}
policies: {blue: {use: ppo, settings: {hidden: [8]}}, red: {use: random}}
matches: [{seats: [blue, red]}]
"""

MAZE = """
name: maze
steps: 1000
env: {use: "maze.py:Maze"}
policies: {blue: {use: ppo, settings: {hidden: [16]}}}
matches: [{seats: [blue]}]
"""

MAZE_PY = '''
import gymnasium
import numpy as np
from gymnasium import spaces


class Maze(gymnasium.Env):
    """Nested observations, and two choices at once of which a mask allows some."""

    metadata = {"action_mask": True}
    observation_space = spaces.Dict(
        {
            "map": spaces.Box(0, 255, (4, 4, 1), np.uint8),
            "at": spaces.Tuple((spaces.Discrete(5, start=2), spaces.MultiBinary(3))),
            "speed": spaces.Box(-9, 9, (2,), np.float64),
        }
    )
    action_space = spaces.MultiDiscrete([2, 3])

    def _told(self):
        mask = self.np_random.integers(0, 2, 5, dtype=np.int8)
        mask[[0, 4]] = 1
        return {
            "map": self.np_random.integers(0, 256, (4, 4, 1), dtype=np.uint8),
            "at": (np.int64(self.np_random.integers(2, 7)), self.np_random.integers(0, 2, 3, dtype=np.int8)),
            "speed": self.np_random.normal(size=2),
        }, {"action_mask": mask}

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return self._told()

    def step(self, action):
        observation, info = self._told()
        return observation, 0.0, False, False, info
'''


def eval_plays(run, decisions, row=0):
    """Return (observations, masks, actions) of the first seat of a match that ``arena eval`` plays, by decision."""
    config = load_config(run.config)
    table = config.round_list()[0].rows[row]
    environment = make_copy(table)
    seated = [find_contestant(run, config, seat.player) for seat in table.seats]
    agents = take_seats(table, seated, [environment], 1, deterministic=True)
    observed, masks, played = [], [], []
    timestep, started = environment.reset(seed=derive_seed(1, "episode")), True
    while len(played) < decisions:
        actions = [None] * len(environment.entities)
        for agent in agents:
            agent.observe(0, timestep, started)
            agent.decide()
            agent.assign(0, actions)
        if timestep.acting[0]:
            observed.append(map_tree(np.copy, timestep.observations[0]))
            masks.append(None if timestep.action_masks[0] is None else np.copy(timestep.action_masks[0]))
            played.append(map_tree(np.copy, actions[0]))
        timestep, started = environment.step(actions), False
        if timestep.over:
            timestep, started = environment.reset(), True
    environment.close()
    return observed, masks, played


def by_curl(url, bodies, *headers):
    """Return what an unmodified curl gets for one POST request after the other, over one connection."""
    config = []
    for body in bodies:
        escaped = json.dumps(body).replace("\\", "\\\\").replace('"', '\\"')
        config += [f'url = "{url}"', *(f'header = "{header}"' for header in headers), f'data = "{escaped}"']
        config += [r'write-out = "\n"', "silent", "next"]
    told = subprocess.run(
        ["curl", "-K", "-"], input="\n".join(config[:-1]), capture_output=True, text=True, check=True, timeout=120
    )
    return [json.loads(line) for line in told.stdout.splitlines()]


def of_action(result):
    """Return the actions of a Triton client's result, nested as the space."""
    names = [output["name"] for output in result.get_response()["outputs"]]
    if names == ["action"]:
        return result.as_numpy("action")
    return [result.as_numpy(name) for name in names]


TRITON = {"float32": "FP32", "float64": "FP64", "uint8": "UINT8", "int64": "INT64", "int8": "INT8"}


def triton_inputs(names, arrays, binary):
    inputs = []
    for name, array in zip(names, arrays, strict=True):
        tensor = tritonclient.http.InferInput(name, list(array.shape), TRITON[array.dtype.name])
        tensor.set_data_from_numpy(array, binary_data=binary)
        inputs.append(tensor)
    return inputs


@pytest.fixture(scope="module", params=["pole", "football", "maze"])
def served(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "maze.py").write_text(MAZE_PY)
    run = make_run(folder, {"pole": POLE, "football": FOOTBALL, "maze": MAZE}[request.param])
    give_weights(run, "blue", 1000, seed=3)
    with Served(run.path, "--player", "blue") as server:
        yield run, server


@pytest.mark.xdist_group("served")
def test_curl_and_a_triton_client_get_the_actions_that_eval_plays(served):
    run, server = served
    observed, masks, played = eval_plays(run, 1000)
    masked = masks[0] is not None
    assert len({str(to_json(action)) for action in played}) > 1, "one action only proves little"

    bodies = [{"observation": to_json(each)} for each in observed]
    if masked:
        bodies = [{**body, "action_mask": mask.tolist()} for body, mask in zip(bodies, masks, strict=True)]
    told = by_curl(f"{server.url}/step", bodies, "step_kind: auto")
    assert [answer["action"] for answer in told] == [to_json(action) for action in played]

    client = tritonclient.http.InferenceServerClient(f"{server.host}:{server.port}")
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("blue", "1000")
    metadata = client.get_model_metadata("blue")
    names = [tensor["name"] for tensor in metadata["inputs"]]
    leaves = [tree_leaves(each) for each in observed]
    if masked:
        leaves = [[*each, mask] for each, mask in zip(leaves, masks, strict=True)]
    arrays = [np.stack([each[i] for each in leaves]) for i in range(len(names))]
    wanted = np.stack(played)
    for binary in (True, False):
        for rows in (1, 7, 250):  # one by one, a batch, more than the server forms itself
            found = []
            for begin in range(0, 1000 if rows > 1 else 100, rows):
                inputs = triton_inputs(names, [array[begin : begin + rows] for array in arrays], binary)
                result = client.infer("blue", inputs, request_id="r1")
                assert result.get_response()["id"] == "r1" and result.get_response()["model_version"] == "1000"
                found.append(of_action(result))
            np.testing.assert_array_equal(np.concatenate(found), wanted[: 1000 if rows > 1 else 100])
    client.close()


def asked(url, body=None, **headers):
    """Return (status, headers, JSON) of one request."""
    data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {name.replace("_", "-"): value for name, value in headers.items()})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.headers, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, error.headers, json.load(error)


@pytest.fixture(scope="module")
def football(tmp_path_factory):
    run = make_run(tmp_path_factory.mktemp("two"), FOOTBALL)
    give_weights(run, "blue", 1000, seed=3)
    with Served(run.path) as server:
        yield run, server


@pytest.mark.xdist_group("football")
def test_every_player_of_a_run_is_served_side_by_side(football):
    run, server = football
    assert f"serving blue@1000, red@0 of {run} at {server.url}" in server.line
    (observation, *_), _, (action, *_) = eval_plays(run, 1)
    status, headers, told = asked(
        f"{server.url}/step",
        {"observations": {"blue": to_json(observation), "red": to_json(observation)}},
        step_kind="auto",
    )
    assert (status, headers["version"], headers["content-type"]) == (200, "blue@1000,red@0", "application/json")
    assert told["actions"].keys() == {"blue", "red"} and told["actions"]["blue"] == to_json(action)
    assert asked(f"{server.url}/readyz")[2] == {"ready": True, "versions": {"blue": "1000", "red": "0"}}
    assert asked(f"{server.url}/v2/models/red")[2]["platform"] == "arena_random"


def tensor(**changes):
    return {"name": "observation", "shape": [1, 4], "datatype": "FP32", "data": [0, 0, 0, 0]} | changes


BAD_TENSORS = {
    "another name": tensor(name="x"),
    "no name": {key: value for key, value in tensor().items() if key != "name"},
    "another shape": tensor(shape=[1, 3]),
    "no shape": tensor(shape=None),
    "a negative shape": tensor(shape=[-1, 4]),
    "no rows": tensor(shape=[0, 4], data=[]),
    "too many rows": tensor(shape=[1025, 4], data=[0] * 4100),
    "another datatype": tensor(datatype="FP64"),
    "too few numbers": tensor(data=[0, 0]),
    "ragged": tensor(data=[[0, 0], [0]]),
    "nested otherwise": tensor(data=[[0, 0], [0, 0]]),
    "a text": tensor(data=["a", "b", "c", "d"]),
    "no data": tensor(data=None),
    "too large a number": tensor(data=[1e300, 0, 0, 0]),
    "an unknown key": tensor(color="red"),
    "binary data that are not there": tensor(parameters={"binary_data_size": 16}),
    "binary data of a negative size": tensor(parameters={"binary_data_size": -1}),
}


@pytest.fixture(scope="module")
def pole(tmp_path_factory):
    run = make_run(tmp_path_factory.mktemp("one"), POLE)
    give_weights(run, "blue", 1000)
    give_weights(run, "blue", 2000, seed=5)
    with Served(run.path, "--sample", "--seed", "7") as server:
        yield run, server


@pytest.mark.xdist_group("pole")
@pytest.mark.parametrize("said", BAD_TENSORS.values(), ids=BAD_TENSORS)
def test_a_tensor_that_the_model_does_not_take_is_refused_in_one_sentence(pole, said):
    _, server = pole
    status, _, told = asked(f"{server.url}/v2/models/blue/infer", {"inputs": [said]})
    assert (status, told["code"]) == (400, "bad_input"), told
    assert "expected" in told["error"] and "found" in told["error"] and len(told["id"]) == 16


@pytest.mark.xdist_group("pole")
def test_what_is_asked_wrongly_is_told_what_was_expected(pole):
    _, server = pole
    infer, step, good = f"{server.url}/v2/models/blue/infer", f"{server.url}/step", {"observation": [0, 0, 0, 0]}
    cases = [
        (404, "not_found", f"{server.url}/x", None, {}, "there is nothing at '/x'"),
        (405, "method_not_allowed", step, None, {}, "expected POST, found GET"),
        (405, "method_not_allowed", f"{server.url}/healthz", b"", {}, "expected GET, found POST"),
        (404, "unknown_model", infer.replace("blue", "green"), {}, {}, "there is no model 'green'; models: blue"),
        (404, "unknown_model", f"{server.url}/v2/models/blue/versions/5", None, {}, "no version '5' of 'blue'"),
        (400, "bad_input", infer, b"{", {}, "expected one JSON object"),
        (400, "bad_input", infer, b"[1]", {}, "expected an object"),
        (400, "bad_input", infer, b"[" * 100_000, {}, "expected one JSON object"),
        (400, "bad_input", infer, {"inputs": [tensor(), tensor()]}, {}, "a name of its own"),
        (400, "bad_input", infer, {"inputs": [tensor()], "parameters": {"sequence_id": 1}}, {}, "'sequence_id'"),
        (400, "bad_input", infer, {"inputs": [tensor()], "outputs": [{"name": "x"}]}, {}, "expected action"),
        (400, "bad_input", infer, b"{}", {"inference_header_content_length": "99"}, "at most the 2 bytes"),
        (400, "bad_input", infer, b'{"inputs": [{"data": [NaN]}]}', {}, "found NaN"),
        (400, "bad_body", step, {"observation": [0, 0, 0]}, {"step_kind": "auto"}, "expected shape [4], found [3]"),
        (400, "bad_body", step, {"observation": [0, 0, 0, None]}, {"step_kind": "auto"}, "expected numbers"),
        (400, "bad_body", step, {**good, "reward": 1}, {"step_kind": "auto"}, "expected 0 before the first action"),
        (400, "bad_body", step, {**good, "action_mask": [1, 1]}, {"step_kind": "auto"}, "expected none"),
        (400, "bad_body", step, {"obs": 1}, {"step_kind": "auto"}, 'found "obs"'),
        (400, "bad_step_kind", step, good, {"step_kind": "jump"}, "found 'jump'"),
        (400, "bad_step_kind", step, good, {}, "found none"),
        (400, "bad_game_id", step, good, {"step_kind": "auto", "game_id": "a b"}, "found 'a b'"),
        (415, "unsupported_encoding", step, good, {"step_kind": "auto", "content_encoding": "gzip"}, "found 'gzip'"),
    ]
    for status, code, url, body, headers, sentence in cases:
        found, _, told = asked(url, body, **headers)
        assert (found, told["code"]) == (status, code) and sentence in told["error"], (url, body, told)
    with socket.create_connection((server.host, server.port), timeout=30) as connection:
        connection.sendall(b"POST /step HTTP/1.1\r\nhost: x\r\nstep_kind: auto\r\ncontent-length: 1000001\r\n\r\n")
        told = connection.makefile("rb").read()  # to its end: it is refused before it is sent, and closed
    assert told.startswith(b"HTTP/1.1 413 ") and b"expected a body of at most 1000000 bytes" in told
    assert "Traceback" not in server.errors()


@pytest.mark.xdist_group("pole")
def test_sampled_and_most_likely_actions_can_be_asked_side_by_side(pole):
    _, server = pole
    infer = f"{server.url}/v2/models/blue/infer"
    assert "blue@2000" in server.line and "(sampled actions, 256 games)" in server.line
    said = {"inputs": [tensor(shape=[200, 4], data=[0.01] * 800)]}
    drawn = asked(infer, said)[2]["outputs"][0]["data"]
    assert set(drawn) == {0, 1}
    likely = asked(infer, {**said, "parameters": {"deterministic": True}})[2]["outputs"][0]["data"]
    assert len(set(likely)) == 1


def test_it_starts_without_mpi_and_ends_when_it_is_told_to(tmp_path):
    run = make_run(tmp_path, POLE)
    give_weights(run, "blue", 1000)
    with Served(run.path, "--player", "blue@1000", flags=("-X", "importtime")) as server:
        assert asked(f"{server.url}/healthz")[2] == {"live": True}
        assert server.stop(signal.SIGINT) == 0
    loaded = {line.rpartition("|")[2].strip() for line in server.errors().splitlines()}
    assert "torch" in loaded and not loaded & {"mpi4py", "mpi4py.MPI", "arena.comms"}


def test_a_user_error_is_one_sentence_and_exit_code_2(tmp_path, capsys, monkeypatch):
    run = make_run(tmp_path, POLE)
    assert main(["serve", str(run.path)]) == 2
    assert "player 'blue': expected weights" in capsys.readouterr().err
    give_weights(run, "blue", 1000)
    wrong = {
        ("--player", "green"): "there is no player 'green'",
        ("--player", "blue@5"): "expected the steps of a snapshot",
        ("--player", "blue", "--player", "blue"): "expected each player once, found 'blue' twice",
        ("--port", "70000"): "--port: expected a number of at most 65535, found 70000",
        ("--sessions", "many"): "--sessions: expected",
        ("--host", "256.1.1.1"): "since 256.1.1.1 can be reached from other machines, found none",
    }
    for options, sentence in wrong.items():
        assert main(["serve", str(run.path), *options]) == 2, options
        assert sentence in capsys.readouterr().err, options
    monkeypatch.setenv("ARENA_TOKEN", "s3cret")
    assert main(["serve", str(run.path), "--host", "256.1.1.1"]) == 2
    assert "expected an address of this machine, found '256.1.1.1'" in capsys.readouterr().err
    with Served(run.path) as server:
        assert main(["serve", str(run.path), "--port", str(server.port)]) == 2
        assert f"127.0.0.1:{server.port} is in use; choose another" in capsys.readouterr().err


def test_the_room_needs_no_torch_and_no_server_until_it_serves():
    code = "import arena.gateway.http.app, sys; print([m for m in ('torch', 'uvicorn') if m in sys.modules])"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert told.stdout.strip() == "[]"


FAULTY = """
import numpy as np


class Faulty:
    def __init__(self, env, group):
        self.weight = np.ones(1, np.float32)

    def run(self, steps):
        pass

    def act(self, observations):
        if observations[0, 0] == 4.5:
            raise ValueError("no idea")
        return np.zeros(len(observations), np.int64)

    def state_dict(self):
        return {"weight": self.weight}

    def load_state_dict(self, state):
        pass
"""


def test_an_act_that_raises_is_one_sentence_in_the_log(tmp_path):
    (tmp_path / "faulty.py").write_text(FAULTY)
    run = make_run(tmp_path, POLE.replace("use: ppo, settings: {hidden: [64, 64]}", 'use: "faulty.py:Faulty"'))
    path = run.snapshot("blue", 10)
    path.parent.mkdir()
    write_tensors(path, {"weight": np.ones(1, np.float32)})
    with Served(run.path) as server:
        tensor = {"name": "observation", "shape": [1, 4], "datatype": "FP32", "data": [4.5] * 4}
        status, *_ = asked(f"{server.url}/v2/models/blue/infer", {"inputs": [tensor]})
        assert status == 500
        assert server.has_said(
            "faulty.py:Faulty: act(observations=[1, 4] of float32) raised ValueError: no idea; expected"
        )
        assert server.has_said('faulty.py", line 14, in act') and "user_policy" not in server.errors()
