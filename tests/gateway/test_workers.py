"""Several processes behind one port: games belong to one of them, whichever one their requests come to."""

import asyncio
import json
import os
import signal
import time
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from arena.gateway.client import Address, Connection
from arena.gateway.workers.peers import added_up
from benchmarks.tools.serving import Served
from benchmarks.tools.trained import give_weights, make_run

pytestmark = [pytest.mark.xdist_group("workers"), pytest.mark.tier("all")]
COUNT_PY = '''
from gymnasium import spaces
from arena.gateway import Actor, AgentSpaces


class Count(Actor):
    """Answers its game's name and how often it was asked."""

    @classmethod
    def spaces(cls, config):
        return {"blue": AgentSpaces(spaces.Box(-1, 1, (4,)), spaces.Discrete(2))}

    def __init__(self, agents, config, game_id, data):
        self.agent, self.game, self.ticks = agents["blue"], game_id, 0

    def tick(self, data):
        self.agent.act([0.0] * 4)
        self.ticks += 1
        return f"{self.game} {self.ticks}".encode()

    def end(self, data):
        return f"{self.game} {self.ticks} over".encode()
'''
RUN = """
name: counted
steps: 1000
env: {use: "env.py:Still"}
policies: {blue: {use: ppo, settings: {hidden: [8]}}}
matches: [{seats: [blue]}]
"""
STILL_PY = """
import gymnasium
import numpy as np
from gymnasium import spaces


class Still(gymnasium.Env):
    observation_space, action_space = spaces.Box(-1, 1, (4,)), spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        return np.zeros(4, np.float32), {}

    def step(self, action):
        return np.zeros(4, np.float32), 0.0, False, False, {}
"""
GAMES, TICKS, WORKERS = 200, 20, 4


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    root = tmp_path_factory.mktemp("workers")
    (root / "env.py").write_text(STILL_PY)
    (root / "count.py").write_text(COUNT_PY)
    found = make_run(root, RUN.replace("env.py", f"{root}/env.py"))
    give_weights(found, "blue", 1000)
    return found


def served(run, *options, flags=()):
    actor = f"{run.path.parent}/count.py:Count"
    return Served(run.path, "--actor", actor, "--workers", str(WORKERS), *options, flags=flags)


async def _game(url, number, *, new_connections):
    connection = Connection(Address.of(url))
    said = []
    for tick in range(TICKS + 2):
        kind = "start" if tick == 0 else "end" if tick > TICKS else "tick"
        headers = {"game_id": f"g{number}", "step_kind": kind, "tick_id": str(tick)}
        reply = await connection.post("/step", headers)
        if new_connections:
            connection.break_off()
        again = await connection.post("/step", headers)  # by another connection, maybe to another process
        assert (again.status, again.body) == (reply.status, reply.body) and again.headers.get("replayed") == "1"
        said.append((reply.status, reply.body.decode(), reply.headers.get("version")))
    connection.break_off()
    return said


async def _games(url, *, new_connections):
    return await asyncio.gather(*(_game(url, n, new_connections=new_connections) for n in range(GAMES)))


def metrics_of(served):
    with urllib.request.urlopen(f"{served.url}/metrics", timeout=10) as answer:
        families = text_string_to_metric_families(answer.read().decode())
        return {(s.name, *sorted(s.labels.items())): s.value for family in families for s in family.samples}


def processes_of(served):
    children = f"/proc/{served.process.pid}/task/{served.process.pid}/children"
    with open(children, encoding="ascii") as file:
        return [int(pid) for pid in file.read().split()]


def test_no_game_is_crossed_with_a_connection_for_each_tick(run):
    with served(run) as server:
        assert f"256 games in each of {WORKERS} processes)" in server.line
        for number, said in enumerate(asyncio.run(_games(server.url, new_connections=True))):
            expected = ["", *(f"g{number} {tick}" for tick in range(1, TICKS + 1)), f"g{number} {TICKS} over"]
            assert said == [(200, text, "blue@1000") for text in expected]
        found = metrics_of(server)
        assert found["arena_gateway_requests_total", ("kind", "tick"), ("status", "200")] == 2 * GAMES * TICKS
        assert found["arena_gateway_replayed_total",] == GAMES * (TICKS + 2)
        assert found["arena_gateway_sessions_total", ("end", "end")] == GAMES
        assert found["arena_gateway_version_info", ("player", "blue"), ("version", "1000")] == 1
        assert found["arena_gateway_sessions_limit",] == 256 * WORKERS
        request = urllib.request.Request(f"{server.url}/step", b"", {"game_id": "none", "step_kind": "tick"})
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=10)
        assert refused.value.code == 404 and json.load(refused.value)["code"] == "unknown_game"
        assert server.stop() == 0 and not server.failures()


def test_games_that_are_open_end_before_the_processes_do(run):
    async def play(server):
        connections = [Connection(Address.of(server.url)) for _ in range(32)]
        for number, connection in enumerate(connections):
            headers = {"game_id": f"g{number}", "step_kind": "start", "tick_id": "0"}
            assert (await connection.post("/step", headers)).status == 200
        server.process.send_signal(signal.SIGTERM)
        for tick in range(1, 40):
            for number, connection in enumerate(connections[:4]):
                headers = {"game_id": f"g{number}", "step_kind": "tick", "tick_id": str(tick)}
                reply = await connection.post("/step", headers)
                assert reply.body == f"g{number} {tick}".encode(), reply
            if tick == 1:  # most end at once, the last ones later
                for number, connection in enumerate(connections[4:], 4):
                    headers = {"game_id": f"g{number}", "step_kind": "end", "tick_id": "1"}
                    assert (await connection.post("/step", headers)).status == 200
            await asyncio.sleep(0.05)
        for number, connection in enumerate(connections[:4]):
            headers = {"game_id": f"g{number}", "step_kind": "end", "tick_id": "99"}
            assert (await connection.post("/step", headers)).status == 200

    with served(run, "--drain", "10") as server:
        asyncio.run(play(server))
        assert server.process.wait(20) == 0 and not server.failures()


def test_a_process_that_dies_ends_the_server_and_is_named(run):
    token = run.path.parent / "token"
    token.write_text("secret")
    # With -u the server is no fork of the shared parent, and its processes are its children.
    with served(run, "--drain", "1", "--token-file", str(token), flags=("-u",)) as server:
        request = urllib.request.Request(f"{server.url}/metrics", headers={"authorization": "Bearer secret"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            assert f"arena_gateway_sessions_limit {256.0 * WORKERS}" in answer.read().decode()
        os.kill(processes_of(server)[2], signal.SIGKILL)
        assert server.process.wait(20) == 1
        assert server.has_said("error: process 2 of the server has ended with exit code -9")
    with served(run, "--drain", "1", flags=("-u",)) as server:
        workers = processes_of(server)
        server.process.kill()
        until = time.monotonic() + 20
        while any(_lives(pid) for pid in workers) and time.monotonic() < until:
            time.sleep(0.05)
        assert not any(_lives(pid) for pid in workers), "they go with who has started them"


def _lives(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_what_is_wrong_is_said_once(run):
    with pytest.raises(AssertionError, match="there is no player 'red'") as failed:
        Served(run.path, "--workers", "3", "--player", "red")
    assert str(failed.value).count("there is no player") == 1


def test_counts_are_added_up():
    one = '# TYPE a counter\na_total{x="y \\"z\\""} 1.0\n# TYPE arena_gateway_loop_lag_seconds gauge\n'
    found = added_up([one + "arena_gateway_loop_lag_seconds 0.5\n", one + "arena_gateway_loop_lag_seconds 0.25\n", ""])
    assert b'a_total{x="y \\"z\\""} 2.0\n' in found and b"arena_gateway_loop_lag_seconds 0.5\n" in found
