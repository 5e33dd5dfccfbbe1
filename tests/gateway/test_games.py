"""Whole games: the built-in actor, thousands of games of which some vanish, and a server that is closed."""

import ast
import asyncio
import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter

import numpy as np
import pytest

from arena.config.run import load_config
from arena.evaluation.players import PolicyMaker, find_contestant
from arena.gateway.client import Address, Connection
from arena.launch import main
from arena.protocol.wire import Block
from benchmarks.tools.serving import Served
from benchmarks.tools.trained import give_weights, make_run

pytestmark = pytest.mark.tier("all")

POLE = """
name: pole
steps: 1000
env: {use: gymnasium:CartPole-v1}
policies:
  blue: {use: ppo, settings: {hidden: [8], lstm: 8}}
  red: {use: ppo, settings: {hidden: [8]}}
matches: [{seats: [blue]}, {seats: [red]}]
"""

ECHO = '''
from collections import Counter

from arena.gateway import Actor

SEEN, ENDED = Counter(), Counter()


class Echo(Actor):
    """Says whose tick it was; the game "counts" says what the others have seen."""

    def __init__(self, agents, config, game_id, data):
        self.agents, self.game_id, self.asked = agents, game_id, 0

    async def tick(self, data):
        if self.game_id == "counts":
            return f"{max(SEEN.values())} {len(SEEN)} {dict(ENDED)}".encode()
        SEEN[self.game_id, data] += 1
        self.asked += 1
        await self.agents["red"].act_async([0.1, 0.2, 0.3, 0.4])
        return f"{self.game_id} {self.asked} {data.decode()}".encode()

    async def end(self, data):
        ENDED[self.agents.ending] += 1
        return f"{self.game_id} {self.asked} end".encode()
'''


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("games")
    (folder / "echo.py").write_text(ECHO)
    run = make_run(folder, POLE)
    config = load_config(run.config)
    rows = config.round_list()[0].rows
    assert [row.seats[0].player for row in rows] == ["blue", "red"]
    give_weights(run, "blue", 1000, seed=3)
    give_weights(run, "red", 1000, seed=4)
    return run


async def ask(connection, game, kind, tick=None, body=b""):
    headers = {"game_id": game, "step_kind": kind} | ({} if tick is None else {"tick_id": str(tick)})
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return await connection.post("/step", headers, data)


@pytest.mark.xdist_group("games")
def test_a_memory_is_its_games_own_and_the_returns_are_told(run):
    """Two games of a player with memory, turn about, act as the player does that is alone with each of them."""
    rng = np.random.default_rng(0)
    seen = rng.normal(size=(2, 20, 4)).astype(np.float32)
    config = load_config(run.config)
    row = config.round_list()[0].rows[0]
    contestant = find_contestant(run, config, "blue")
    from arena.evaluation.players import make_copy

    environment = make_copy(row)
    spaces = environment.entities[0]
    environment.close()
    expected = []
    for game in range(2):
        policy = PolicyMaker(contestant, [spaces], row, 1)(Block((0,), spaces), 1)
        expected.append(
            [
                int(
                    policy.act(
                        seen[game, t][None], starts=np.array([t in (0, 12)]), lanes=slice(0, 1), deterministic=True
                    ).actions[0]
                )
                for t in range(20)
            ]
        )

    async def play(server):
        connection, found = Connection(Address.of(server.url)), [[], []]
        for game in (0, 1):
            assert (await ask(connection, f"m{game}", "start", 0)).status == 200
        for t in range(20):
            for game in (0, 1):
                if t == 12:  # another game begins in the same place
                    told = await ask(connection, f"m{game}", "end", 99, {"reward": 0.5, "terminated": True})
                    assert json.loads(told.body) == {"return": 11.5}
                    assert (await ask(connection, f"m{game}", "start", 100)).status == 200
                body = {"observation": seen[game, t].tolist(), "reward": 0 if t in (0, 12) else 1}
                told = await ask(connection, f"m{game}", "tick", 200 + t if t >= 12 else t + 1, body)
                assert told.status == 200, told
                found[game].append(json.loads(told.body)["action"])
        for game in (0, 1):
            told = await ask(connection, f"m{game}", "stop")
            assert json.loads(told.body) == {"return": 7.0} and told.headers["content-type"] == "application/json"
        refused = await ask(connection, "x", "auto", None, {"observation": [0, 0, 0, 0]})
        assert refused.status == 400 and json.loads(refused.body)["code"] == "needs_session"
        refused = await connection.post("/v2/models/blue/infer", {}, b"{}")
        assert refused.status == 400 and json.loads(refused.body)["code"] == "needs_session"
        connection.break_off()
        return found

    with Served(run.path, "--player", "blue", "--sessions", "2") as server:
        assert asyncio.run(play(server)) == expected


BAD_JSON = [
    (b"", "expected one JSON object"),
    (b"\xff\xfe", "expected one JSON object"),
    (b"[]", "expected one JSON object, found []"),
    ({}, "expected observation"),
    ({"observation": [0, 0, 0]}, "observation: expected shape [4], found [3]"),
    ({"observation": [0, 0, 0, [0]]}, "expected lists of equal lengths"),
    ({"observation": {"a": 1}}, "expected"),
    (b'{"observation": [0, 0, 0, NaN]}', "expected finite numbers, found NaN"),
    (b'{"observation": [0, 0, 0, 1e999]}', "expected finite numbers"),
    ({"observation": [0, 0, 0, 0], "reward": "1"}, "reward: expected a finite number"),
    ({"observation": [0, 0, 0, 0], "reward": True}, "reward: expected a finite number"),
    ({"observation": [0, 0, 0, 0], "reward": 1}, "reward: expected 0 before the first action, found 1"),
    ({"observation": [0, 0, 0, 0], "action_mask": [1, 1]}, "action_mask: expected none"),
    ({"observation": [0, 0, 0, 0], "color": 1}, 'expected the keys observation, reward, action_mask, found "color"'),
    ({"observations": {"green": [0, 0, 0, 0]}}, 'there is no agent "green"; agents: red'),
]


@pytest.mark.xdist_group("games")
def test_json_that_the_actor_cannot_read_is_told_and_the_game_goes_on(run):
    async def play(server):
        connection = Connection(Address.of(server.url))
        await ask(connection, "g", "start")
        for body, sentence in BAD_JSON:
            told = await ask(connection, "g", "tick", None, body)
            said = json.loads(told.body)
            assert (told.status, said.get("code")) == (400, "bad_body") and sentence in said["error"], (body, told)
        told = await ask(connection, "g", "tick", None, {"observations": {"red": [0, 0, 0, 0]}})
        assert json.loads(told.body)["actions"].keys() == {"red"}
        for body, sentence in (
            ({"terminated": 1}, "terminated: expected true or false, found 1"),
            ({"outcome": []}, "outcome: expected win, draw, loss or a rank"),
            ({"observation": [1]}, "expected shape [4], found [1]"),
            ({"truncated": True}, 'expected the keys reward, terminated, observation, outcome, found "truncated"'),
        ):
            told = await ask(connection, "g", "end", None, body)
            assert told.status == 400 and sentence in json.loads(told.body)["error"], told
        last = {"reward": 2, "terminated": False, "observation": [0, 0, 0, 0], "outcome": "win"}
        assert json.loads((await ask(connection, "g", "end", None, last)).body) == {"return": 2.0}
        connection.break_off()

    with Served(run.path, "--player", "red") as server:
        asyncio.run(play(server))
        assert "Traceback" not in server.errors()


GAMES, SIDES, TICKS = 2000, 50, 5


@pytest.mark.xdist_group("games")
def test_of_two_thousand_games_none_is_lost_or_crossed_where_some_vanish(run):
    chance = random.Random(5)
    killed = []

    async def side(server, number):
        connection = Connection(Address.of(server.url))
        for round_ in range(GAMES // SIDES):
            game = f"{number}-{round_}"
            assert (await ask(connection, game, "start", 0)).status == 200
            dies_at = chance.randrange(1, TICKS + 1) if chance.random() < 0.01 else None
            for tick in range(1, TICKS + 1):
                headers = {"game_id": game, "step_kind": "tick", "tick_id": str(tick)}
                if tick == dies_at:
                    await connection.post_and_disconnect("/step", headers, f"t{tick}".encode())
                    killed.append(game)
                    break
                told = await connection.post("/step", headers, f"t{tick}".encode())
                assert (told.status, told.body) == (200, f"{game} {tick} t{tick}".encode()), told
                if chance.random() < 0.02:  # a client that has not seen the answer
                    again = await connection.post("/step", headers, f"t{tick}".encode())
                    assert (again.body, again.headers["replayed"]) == (told.body, "1")
            else:
                told = await ask(connection, game, "end", TICKS + 1)
                assert told.body == f"{game} {TICKS} end".encode()
        connection.break_off()

    async def storm(server):
        await asyncio.gather(*(side(server, number) for number in range(SIDES)))
        connection = Connection(Address.of(server.url))
        until = time.monotonic() + 30
        while True:  # the vanished ones are idle, and end
            told = await ask(connection, "counts", "start")
            told = await ask(connection, "counts", "tick")
            most, _, ended = told.body.decode().split(" ", 2)
            ended = ast.literal_eval(ended)
            if ended.get("idle", 0) == len(killed) or time.monotonic() > until:
                break
            await asyncio.sleep(0.2)
        places = [(await ask(connection, f"p{n}", "start")).status for n in range(128 - 1)]
        connection.break_off()
        return int(most), ended, places

    options = ["--actor", f"{run.path.parent}/echo.py:Echo", "--player", "red", "--sessions", "128"]
    with Served(run.path, *options, "--idle-timeout", "2") as server:
        most, ended, places = asyncio.run(storm(server))
        assert most == 1, "no tick has reached an actor twice"
        assert len(killed) > 5 and ended == {"end": GAMES - len(killed), "idle": len(killed)}
        assert set(places) == {200}, "every place is free again"
        assert "Traceback" not in server.errors()


@pytest.mark.xdist_group("games")
def test_a_server_that_is_told_to_close_answers_everything_first(run):
    statuses, codes = Counter(), Counter()

    async def side(server, number):
        connection = Connection(Address.of(server.url))
        for round_ in range(100_000):
            game = f"{number}-{round_}"
            told = await ask(connection, game, "start")
            statuses[told.status] += 1
            if told.status != 200:
                codes[json.loads(told.body)["code"] if told.body.startswith(b"{") else told.body.decode()] += 1
                break
            for tick in range(20):
                told = await ask(connection, game, "tick", tick + 1, b"x")
                statuses[told.status] += 1
                assert told.body == f"{game} {tick + 1} x".encode(), told
            statuses[(await ask(connection, game, "end")).status] += 1
        connection.break_off()

    async def load(server):
        sides = [asyncio.create_task(side(server, number)) for number in range(32)]
        while statuses[200] < 1000 and not any(each.done() for each in sides):  # most are in the midst of a game then
            await asyncio.sleep(0.01)
        server.process.send_signal(signal.SIGTERM)
        await asyncio.gather(*sides)

    options = ["--actor", f"{run.path.parent}/echo.py:Echo", "--player", "red", "--drain", "10"]
    with Served(run.path, *options) as server:
        asyncio.run(load(server))
        assert server.process.wait(20) == 0
        assert not server.failures()
    assert statuses.keys() == {200, 503} and codes == {"draining": 32}, (statuses, codes)


@pytest.mark.xdist_group("games")
def test_games_that_do_not_end_are_ended_and_a_second_signal_ends_at_once(run):
    async def start(server):
        connection = Connection(Address.of(server.url))
        for number in range(5):
            assert (await ask(connection, f"{number}", "start")).status == 200
        return connection

    with Served(run.path, "--player", "red", "--drain", "0.3") as server:
        asyncio.run(start(server))
        began = time.monotonic()
        assert server.stop() == 0 and time.monotonic() - began < 5
    with Served(run.path, "--player", "red", "--drain", "60") as server:
        asyncio.run(start(server))
        server.process.send_signal(signal.SIGINT)
        time.sleep(0.5)
        assert server.stop() == 130


@pytest.mark.xdist_group("games")
def test_fake_gamecore_plays_the_games_side(run, tmp_path, capsys):
    lines = tmp_path / "ticks.txt"
    lines.write_text('{"observation": [0, 0, 0, 0]}\n{"observation": [1, 1, 1, 1], "reward": 1}\n')
    with Served(run.path, "--player", "red") as server:
        line = ["fake-gamecore", server.url, "--games", "4", "--rounds", "5", "--ticks", "6", "--data", str(lines)]
        assert main(line) == 0
        told = capsys.readouterr().out
        assert "games     20\n" in told and "ticks     120 in " in told and "statuses  200: 160\n" in told
        assert main([*line, "--kill", "0.2", "--new-connection", "--no-tick-id", "--seed", "2"]) == 0
        assert " vanished)" in capsys.readouterr().out
        assert main(["fake-gamecore", server.url, "--ticks", "2"]) == 1
        told = capsys.readouterr().out
        assert "400: 2" in told and "expected one JSON object" in told
    assert main(["fake-gamecore", server.url]) == 1  # nobody is there
    assert "no answer: 1" in capsys.readouterr().out
    assert main(["fake-gamecore", "ftp://x"]) == 2
    assert "expected a URL such as http://localhost:8000" in capsys.readouterr().err
    line = [sys.executable, "-X", "importtime", "-m", "arena.launch", "fake-gamecore", server.url]
    told = subprocess.run(line, capture_output=True, check=False, timeout=60)
    assert told.returncode == 1 and b"torch" not in told.stderr
