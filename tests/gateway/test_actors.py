"""Users' actors: plain, async and in threads, what happens when they fail, and models of their own."""

import asyncio
import json
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from torch import nn

from arena.gateway import RemoteModel
from arena.gateway.client import Address, Connection
from arena.launch import main
from benchmarks.tools.serving import Served
from benchmarks.tools.trained import give_weights, make_run

pytestmark = pytest.mark.tier("default")

CATCH = """
name: catch
steps: 1000
env: {use: "catch_env.py:Catch"}
policies: {snake: {use: ppo, settings: {hidden: [16]}}, other: {use: ppo, settings: {hidden: [16]}}}
matches: [{seats: [snake]}, {seats: [other]}]
"""

CATCH_ENV = """
import gymnasium
import numpy as np
from gymnasium import spaces


class Catch(gymnasium.Env):
    observation_space, action_space = spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(3)

    def reset(self, seed=None, options=None):
        return np.zeros(3, np.float32), {}

    def step(self, action):
        return np.zeros(3, np.float32), 0.0, False, False, {}
"""

ACTORS = '''
import asyncio
import json
import time

import numpy as np
from gymnasium import spaces
from torch import nn

from arena.gateway import Actor, AgentSpaces, BadRequest, RemoteModel


class CatchActor(Actor):
    """The game sends one JSON object per frame; the answer is one byte: 0 left, 1 stay, 2 right."""

    @classmethod
    def spaces(cls, config):
        return {"paddle": AgentSpaces(spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(3))}

    def __init__(self, agents, config, game_id, data):
        self.agents, self.agent, self.width = agents, agents["paddle"], config.get("width", 10)

    def tick(self, data):
        frame = self.read(data)
        self.agent.reward(frame["reward"])
        return bytes([int(self.agent.act(self.seen(frame)))])

    def seen(self, frame):
        return np.array([frame["x"], frame["y"], frame["paddle"]], np.float32) / self.width * 2 - 1

    def end(self, data):
        if self.agents.ending == "end":
            frame = self.read(data)
            self.agent.reward(frame["reward"], terminated=True, outcome="win" if frame["won"] else "loss")
        return str(self.agent.episode_return).encode()

    def read(self, data):
        try:
            return json.loads(data)
        except ValueError:
            raise BadRequest("expected one JSON object") from None


class AsyncCatch(CatchActor):
    async def tick(self, data):
        frame = self.read(data)
        self.agent.reward(frame["reward"])
        return bytes([int(await self.agent.act_async(self.seen(frame)))])

    async def end(self, data):
        return CatchActor.end(self, data)


class Pair(Actor):
    """Two agents by one player, asked in one batch."""

    @classmethod
    def spaces(cls, config):
        return dict.fromkeys(("head", "tail"), AgentSpaces(spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(3)))

    def __init__(self, agents, config, game_id, data):
        self.agents = agents

    def tick(self, data):
        seen = np.frombuffer(data, np.float32)
        actions = self.agents.act({"head": seen, "tail": -seen})
        return bytes([int(actions["head"]), int(actions["tail"])])


class Troubled(CatchActor):
    """Fails in every way."""

    def tick(self, data):
        if data == b"raise":
            raise RuntimeError("a fault")
        if data == b"text":
            return "no bytes"
        if data == b"shape":
            self.agent.act([0.0])
        if data == b"early":
            self.agent.reward(1.0)
        if data == b"unasked":
            self.agents["tail"]
        if data == b"hang":
            self.hang()
        if data == b"hold":
            time.sleep(0.6)
        if data == b"late":
            return self.late()
        return bytes([int(self.agent.act(np.zeros(3, np.float32)))])

    def hang(self):
        try:
            while True:  # it waits in what a plain method waits with
                self.agent.act(np.zeros(3, np.float32))
        except TimeoutError:
            type(self).told = True
            raise

    def late(self):
        return b"told" if getattr(type(self), "told", False) else b"untold"


class Sleeper(CatchActor):
    """Waits for something else than the players, as only a thread may."""

    def tick(self, data):
        time.sleep(float(data))
        return bytes([int(self.agent.act(np.zeros(3, np.float32)))])


class Doubler(nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = nn.Parameter(2.0 * __import__("torch").ones(1))
        self.largest = 0

    def forward(self, x):
        self.largest = max(self.largest, len(x["value"]))
        return {"twice": x["value"] * self.factor, "rows": x["value"].new_full((len(x["value"]), 1), self.largest)}


class OwnModel(Actor):
    def __init__(self, agents, config, game_id, data):
        self.model = RemoteModel("doubler", Doubler())

    def tick(self, data):
        said = self.model.forward({"value": np.array([float(data)], np.float32)})
        return json.dumps([float(said["twice"][0]), float(said["rows"][0]), self.model.version]).encode()
'''


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("actors")
    (folder / "actors.py").write_text(ACTORS)
    (folder / "catch_env.py").write_text(CATCH_ENV)
    run = make_run(folder, CATCH)
    give_weights(run, "snake", 1000, seed=3)
    give_weights(run, "other", 1000, seed=8)
    return run


def serve(run, actor, *options):
    return Served(run.path, "--actor", f"{run.path.parent}/actors.py:{actor}", *options)


async def ask(connection, game, kind, body=b""):
    return await connection.post("/step", {"game_id": game, "step_kind": kind}, body)


def frame(x, **others):
    return json.dumps({"x": x, "y": 3, "paddle": 5, "reward": 0} | others).encode()


@pytest.mark.xdist_group("actors")
def test_plain_async_and_threaded_actors_act_alike(run):
    async def play(server):
        connections = [Connection(Address.of(server.url)) for _ in range(16)]

        async def game(number, connection):
            assert (await ask(connection, f"g{number}", "start")).status == 200
            actions = []
            for x in range(10):
                told = await ask(connection, f"g{number}", "tick", frame(x, reward=float(x > 0)))
                assert (told.status, told.headers["version"]) == (200, "snake@1000"), told
                actions.append(told.body[0])
            assert (await ask(connection, f"g{number}", "tick", b"?")).body.count(b"expected one JSON object") == 1
            told = await ask(connection, f"g{number}", "end", frame(0, reward=1, won=True))
            assert told.body == b"10.0"
            connection.break_off()
            return actions

        return await asyncio.gather(*(game(*each) for each in enumerate(connections)))

    found = []
    for actor, options in (("CatchActor", ()), ("AsyncCatch", ()), ("CatchActor", ("--actor-threads", "4"))):
        with serve(run, actor, "--player", "snake", *options) as server:
            played = asyncio.run(play(server))
            assert all(actions == played[0] for actions in played)
            found.append(played[0])
            assert "Traceback" not in server.errors()
    assert found[0] == found[1] == found[2] and len(set(found[0])) > 1


@pytest.mark.xdist_group("actors")
def test_agents_act_by_the_players_that_they_are_given(run, capsys):
    seen = np.array([0.9, -0.2, 0.4], np.float32)

    async def play(server):
        connection = Connection(Address.of(server.url))
        await ask(connection, "g", "start")
        told = await ask(connection, "g", "tick", seen.tobytes())
        connection.break_off()
        return told

    actor = ("--actor", f"{run.path.parent}/actors.py:Pair", "--player", "snake", "--player", "other")
    with serve(run, "Pair", "--agents", "head=snake,tail=other") as server:
        mixed = asyncio.run(play(server))
        assert mixed.headers["version"] == "snake@1000,other@1000"
    with serve(run, "Pair", "--player", "snake") as server:
        alone = asyncio.run(play(server))
        assert alone.headers["version"] == "snake@1000" and alone.body[0] == mixed.body[0]
    for options, sentence in (
        (("--agents", "head=snake"), "agent 'tail' of Pair has no player; players: snake, other"),
        (("--agents", "head=snake,tial=other"), "Pair has no agent 'tial'; agents: head, tail"),
        (("--agents", "head=snak"), "there is no player 'snak'; players: snake, other"),
        (("--agents", "head"), "--agents: expected AGENT=PLAYER, found 'head'"),
    ):
        assert main(["serve", str(run.path), "--port", "0", *actor, *options]) == 2
        assert sentence in capsys.readouterr().err
    for reference, sentence in (
        ("actors.py:Doubler", "expected a class that derives from arena.gateway.Actor"),
        ("actors.py:Nobody", "has no 'Nobody'"),
        ("nowhere.py:Actor", "there is no file"),
    ):
        line = ["serve", str(run.path), "--port", "0", "--actor", f"{run.path.parent}/{reference}"]
        assert main(line) == 2
        assert sentence in capsys.readouterr().err


@pytest.mark.xdist_group("actors")
def test_actors_that_fail_two_hundred_times_fail_alone(run):
    async def play(server):
        connection, other = Connection(Address.of(server.url)), Connection(Address.of(server.url))
        await ask(other, "good", "start")
        for number in range(200):
            for body in (b"raise", b"text", b"shape", b"early", b"unasked"):
                game = f"{body.decode()}{number}"
                await ask(connection, game, "start")
                told = await ask(connection, game, "tick", body)
                assert (told.status, json.loads(told.body)["code"]) == (500, "actor_error")
                assert (await ask(connection, game, "tick", b"good")).status == 200
                await ask(connection, game, "stop")
            assert (await ask(other, "good", "tick", b"good")).status == 200
        connection.break_off()
        other.break_off()

    with serve(run, "Troubled", "--player", "snake") as server:
        asyncio.run(play(server))
        assert "expected shape [3], found [1]" in server.errors()


@pytest.mark.xdist_group("actors")
def test_actors_that_hang_are_late_alone_and_are_told_so(run):
    async def play(server):
        connections = [Connection(Address.of(server.url)) for _ in range(200)]

        async def hang(number, connection):
            await ask(connection, f"h{number}", "start")
            told = await ask(connection, f"h{number}", "tick", b"hang")
            assert (told.status, json.loads(told.body)["code"]) == (504, "tick_timeout"), told
            told = await ask(connection, f"h{number}", "tick", b"late")
            assert told.body == b"told"
            connection.break_off()

        await asyncio.gather(*(hang(*each) for each in enumerate(connections)))

    with serve(run, "Troubled", "--player", "snake", "--tick-timeout", "1") as server:
        asyncio.run(play(server))
        connection = Connection(Address.of(server.url))

        async def hold():
            await ask(connection, "hold", "start")
            await ask(connection, "hold", "tick", b"hold")
            connection.break_off()

        asyncio.run(hold())
        assert server.has_said("all games have waited for 0.")
        assert server.has_said("time.sleep(0.6)"), "the stack says where"


@pytest.mark.xdist_group("actors")
def test_threads_let_others_go_on_and_a_late_one_is_waited_for(run):
    async def play(server):
        connections = [Connection(Address.of(server.url)) for _ in range(4)]
        for number, connection in enumerate(connections):
            await ask(connection, f"{number}", "start")
        began = time.monotonic()
        asked = [ask(connection, f"{number}", "tick", b"0.5") for number, connection in enumerate(connections)]
        assert {told.status for told in await asyncio.gather(*asked)} == {200}
        assert time.monotonic() - began < 2, "one after the other they take two seconds"
        told = await ask(connections[0], "0", "tick", b"1.5")
        assert (told.status, json.loads(told.body)["code"]) == (504, "tick_timeout")
        assert (await ask(connections[0], "0", "tick", b"0")).status == 200  # behind the late one
        assert (await ask(connections[1], "1", "tick", b"0")).status == 200
        for connection in connections:
            connection.break_off()

    with serve(run, "Sleeper", "--player", "snake", "--actor-threads", "4", "--tick-timeout", "1") as server:
        asyncio.run(play(server))
        assert "time.sleep" not in server.errors(), "no game held up the others"


@pytest.mark.xdist_group("actors")
def test_a_model_of_ones_own_is_shared_by_games_and_asked_in_batches(run):
    async def play(server):
        connections = [Connection(Address.of(server.url)) for _ in range(32)]
        for number, connection in enumerate(connections):
            assert (await ask(connection, f"{number}", "start")).status == 200
        largest = 0
        for _ in range(20):
            asked = [ask(c, f"{number}", "tick", str(number).encode()) for number, c in enumerate(connections)]
            for number, told in enumerate(await asyncio.gather(*asked)):
                twice, rows, version = json.loads(told.body)
                assert (twice, version) == (2.0 * number, "0")
                largest = max(largest, rows)
        for connection in connections:
            connection.break_off()
        return largest

    with serve(run, "OwnModel", "--player", "snake") as server:
        assert asyncio.run(play(server)) > 1
        assert "Traceback" not in server.errors()


def test_a_model_of_ones_own_works_in_a_plain_script():
    module = nn.Linear(3, 2)
    model = RemoteModel("m", module)
    x = np.array([1, 2, 3], np.float32)
    np.testing.assert_array_equal(model.forward(x), module(torch.from_numpy(x)).detach().numpy())
    model.load({name: torch.zeros_like(value) for name, value in module.state_dict().items()})
    assert model.forward(x).tolist() == [0, 0] and model.version == "1"
    with pytest.raises(ValueError, match="model 'other': expected a module, found none"):
        RemoteModel("other")

    async def several():
        found = await asyncio.gather(*(model.forward_async(x) for _ in range(5)))
        with pytest.raises(ValueError, match=r"expected float32 \[3\], as it was first asked, found float32 \[2\]"):
            await model.forward_async(x[:2])
        return found

    assert len(asyncio.run(several())) == 5


def test_a_fake_actor_answers_every_game_alike(capsys):
    line = [
        sys.executable,
        "-u",
        "-m",
        "arena.launch",
        "fake-actor",
        "--port",
        "0",
        "--tick",
        "yes",
        "--fail-every",
        "5",
    ]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            url = server.stdout.readline().split(" at ")[1].split()[0]
            assert main(["fake-gamecore", url, "--ticks", "4", "--games", "3"]) == 0
            assert "statuses  200: 18" in capsys.readouterr().out
            assert main(["fake-gamecore", url, "--ticks", "10"]) == 1
            assert "200: 10, 500: 2" in capsys.readouterr().out
            assert server.poll() is None
        finally:
            server.terminate()
            assert server.wait(20) == 0
