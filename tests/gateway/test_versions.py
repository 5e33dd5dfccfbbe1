"""Newer weights during games: each response is of one whole version, which a game keeps, or which rises."""

import asyncio
import json
import time
import urllib.request

import numpy as np
import pytest

from arena.gateway.client import Address, Connection
from arena.tensors.weights import write_tensors
from benchmarks.tools.serving import Served
from benchmarks.tools.trained import give_weights, make_run

pytestmark = pytest.mark.tier("all")

NAMES = """
name: names
steps: 1000
env: {use: "names.py:Still"}
policies: {blue: {use: "names.py:Names"}}
matches: [{seats: [blue]}]
"""

NAMES_PY = '''
import gymnasium
import numpy as np
import torch
from gymnasium import spaces


class Still(gymnasium.Env):
    observation_space, action_space = spaces.Box(-1, 1, (1,), np.float32), spaces.Box(0, 1e6, (2,), np.float32)

    def reset(self, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), 0.0, False, False, {}


class Names:
    """Its actions are the smallest and the largest of many weights, all of which are its version."""

    def __init__(self, env, group):
        self.weights = torch.zeros(1)

    def run(self, steps):
        raise NotImplementedError

    def state_dict(self):
        return {"weights": self.weights}

    def load_state_dict(self, state):
        self.weights = state["weights"]

    def act(self, observations):
        said = [float(self.weights.min()), float(self.weights.max())]
        return np.tile(np.array(said, np.float32), (len(observations), 1))
'''

POLE = """
name: pole
steps: 1000
env: {use: gymnasium:CartPole-v1}
policies: {blue: {use: ppo, settings: {hidden: [8], lstm: 8}}}
matches: [{seats: [blue]}]
"""

GAMES, SIDES, VERSIONS = 200, 10, 50


@pytest.fixture
def run(tmp_path):
    (tmp_path / "names.py").write_text(NAMES_PY)
    run = make_run(tmp_path, NAMES)
    (run.players / "blue").mkdir()
    publish(run, 1)
    return run


def publish(run, version):
    write_tensors(run.snapshot("blue", version), {"weights": np.full(300_000, version, np.float32)})


async def ask(connection, game, kind, body=b""):
    told = await connection.post("/step", {"game_id": game, "step_kind": kind}, body)
    assert told.status == 200, told
    return told


def metrics_of(server):
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=30) as answer:
        return answer.read().decode()


@pytest.mark.parametrize("pin", ["session", "newest"])
def test_fifty_versions_come_during_two_hundred_games(run, pin):
    over = asyncio.Event()
    seen = set()

    async def publisher():
        loop = asyncio.get_running_loop()
        for version in range(2, VERSIONS + 1):
            await loop.run_in_executor(None, publish, run, version)
            await asyncio.sleep(0.1)
        until = time.monotonic() + 20
        while VERSIONS not in seen and time.monotonic() < until:
            await asyncio.sleep(0.02)
        over.set()

    async def side(server, number, played):
        connection, last = Connection(Address.of(server.url)), 0
        while len(played) < GAMES or not over.is_set():
            game = f"{number}-{len(played)}"
            played.append(game)
            first = None
            await ask(connection, game, "start")
            for _ in range(10):
                told = await ask(connection, game, "tick", b'{"observation": [0]}')
                lowest, highest = json.loads(told.body)["action"]
                version = int(told.headers["version"].removeprefix("blue@"))
                assert lowest == highest == version, "torn, or not by the version that it says"
                if pin == "session":
                    first = first or version
                    assert version == first, "a game keeps its version"
                assert version >= last, "versions only rise"
                last = version
                seen.add(version)
                await asyncio.sleep(0.004)
            await ask(connection, game, "end")
        connection.break_off()

    async def play(server):
        played = []
        await asyncio.gather(publisher(), *(side(server, number, played) for number in range(SIDES)))
        return len(played)

    with Served(run.path, "--pin", pin, "--poll", "0.02") as server:
        assert asyncio.run(play(server)) >= GAMES
        assert len(seen) > 10 and max(seen) == VERSIONS
        assert f"INFO: blue@{VERSIONS} is served from now on" in server.errors()
        assert f'arena_gateway_version_info{{player="blue",version="{VERSIONS}"}} 1.0' in metrics_of(server)
        until = time.monotonic() + 20  # unused versions are dropped by the next poll
        while 'arena_gateway_versions_loaded{player="blue"} 1.0' not in metrics_of(server):
            assert time.monotonic() < until, "versions that no game uses are dropped"
            time.sleep(0.02)


def test_versions_in_use_are_kept_and_what_is_damaged_is_not_taken(run):
    async def play(server):
        connection = Connection(Address.of(server.url))
        for version in range(1, 6):  # a game for each version: one more than is kept
            if version > 1:
                publish(run, version)
                wanted = "blue@5 waits: 4 versions are in use" if version == 5 else f"blue@{version} is served from now"
                assert server.has_said(wanted)
            told = await ask(connection, f"g{version}", "start")
            assert told.headers["version"] == f"blue@{min(version, 4)}"
        for version in range(1, 5):
            told = await ask(connection, f"g{version}", "tick", b'{"observation": [0]}')
            assert json.loads(told.body)["action"] == [version, version]
        await ask(connection, "g1", "end")
        assert server.has_said("blue@5 is served from now on")
        await ask(connection, "g2", "end")
        for _ in range(2):  # it goes on with what it has
            run.snapshot("blue", 6).write_bytes(b"no weights")
            assert server.has_said("a newer version of blue could not be loaded")
            told = await ask(connection, "g3", "tick", b'{"observation": [0]}')
            assert told.headers["version"] == "blue@3"
        write_tensors(run.snapshot("blue", 6), {"weights": np.full(3, 6, np.float32)})
        assert server.has_said("blue@6 is served from now on")
        connection.break_off()

    with Served(run.path, "--poll", "0.05") as server:
        asyncio.run(play(server))
        assert "Traceback" not in server.errors()


def test_versions_side_by_side(run):
    publish(run, 2)

    async def play(server):
        connection = Connection(Address.of(server.url))
        told = await ask(connection, "g", "start")
        assert told.headers["version"] == "blue@1,blue@2"
        body = json.dumps({"observations": {"old": [0], "new": [0]}}).encode()
        told = await ask(connection, "g", "tick", body)
        assert json.loads(told.body)["actions"] == {"old": [1, 1], "new": [2, 2]}
        for version in ("1", "2"):
            said = {"inputs": [{"name": "observation", "shape": [1, 1], "datatype": "FP32", "data": [0]}]}
            path = f"/v2/models/blue/versions/{version}/infer"
            told = await connection.post(path, {}, json.dumps(said).encode())
            assert json.loads(told.body)["outputs"][0]["data"] == [float(version)] * 2
            assert json.loads(told.body)["model_version"] == version
        connection.break_off()

    with Served(run.path, "--agents", "old=blue@1,new=blue", "--no-reload") as server:
        assert "serving blue@1, blue@2 of " in server.line
        asyncio.run(play(server))


def test_a_memory_goes_on_where_weights_change_within_a_game(tmp_path):
    """With the same weights under another name, a game acts as if nothing had come."""
    run = make_run(tmp_path, POLE)
    give_weights(run, "blue", 1, seed=3)
    seen = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)

    async def play(server, changes):
        connection, actions = Connection(Address.of(server.url)), []
        await ask(connection, "g", "start")
        for t, observation in enumerate(seen):
            if changes and t in (10, 20):
                give_weights(run, "blue", t, seed=3)
                assert server.has_said(f"blue@{t} is served from now on")
            told = await ask(connection, "g", "tick", json.dumps({"observation": observation.tolist()}).encode())
            actions.append(json.loads(told.body)["action"])
        assert told.headers["version"] == f"blue@{20 if changes else 1}"
        connection.break_off()
        return actions

    options = ("--pin", "newest", "--poll", "0.05", "--sessions", "2")
    with Served(run.path, *options, "--no-reload") as server:
        expected = asyncio.run(play(server, changes=False))
    with Served(run.path, *options) as server:
        assert asyncio.run(play(server, changes=True)) == expected
    assert len(set(expected)) == 2
