"""Ticks per second of a server, compared with a bare uvicorn that only echoes, and with Ray Serve.

``python -m benchmarks.gateway``. A network of 64x64, 64 games over 64 connections, observations in JSON; the load comes
from ``wrk`` (a package of Debian), on the same cores. Ray Serve is measured if an interpreter of ``--peer-python`` has
it.
"""

import asyncio
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from arena.gateway.client import Address, Connection
from benchmarks.tools.measuring import ROOT, Contestant, MissingPeerError, Table, compete, conclude, options, parse
from benchmarks.tools.serving import Served
from benchmarks.tools.trained import give_weights, make_run

GAMES = 64
MANY_GAMES = 2048
OBSERVATION = '{"observation": [0.01, -0.02, 0.03, 0.04]}'
RUN = """
name: pole
steps: 1000
env: {use: gymnasium:CartPole-v1}
policies: {blue: {use: ppo, settings: {hidden: [64, 64]}}}
matches: [{seats: [blue]}]
"""
ACTOR = """
import json

from arena.gateway import Actor


class Plain(Actor):
    content_type = "application/json"

    def __init__(self, agents, config, game_id, data):
        self.agent = agents["blue"]

    def tick(self, data):
        return b'{"action": %d}' % self.agent.act(json.loads(data)["observation"])
"""
ASK = """
local games, number = {games}, 0
wrk.method, wrk.body = "POST", '{body}'
wrk.headers["step_kind"] = "tick"
request = function()
  number = (number + 1) % games
  wrk.headers["game_id"] = "g" .. number
  return wrk.format(nil, "/step")
end
"""


def by_wrk(url: str, games: int, seconds: int, process: int) -> dict[str, float]:
    """Return ticks per second, latencies in ms, and the CPU time of a tick in us of a process and its threads."""
    if shutil.which("wrk") is None:
        raise MissingPeerError("wrk is not installed (apt install wrk)")
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(ASK.replace("{games}", str(games)).replace("{body}", OBSERVATION))
        script.flush()
        line = ["wrk", "-t1", f"-c{GAMES}", f"-d{seconds}s", "--latency", "-s", script.name, url]
        before = _cpu_seconds(process)
        said = subprocess.run(line, capture_output=True, text=True, check=True, timeout=seconds + 60).stdout
        spent = _cpu_seconds(process) - before
    if "Non-2xx" in said or "Socket errors" in said:
        raise RuntimeError(said)
    rate = re.search(r"Requests/sec:\s+([\d.]+)", said)
    count = re.search(r"(\d+) requests in", said)
    assert rate is not None and count is not None, said
    return {
        "ticks/s": float(rate[1]),
        "p50 ms": _milliseconds(said, "50%"),
        "p99 ms": _milliseconds(said, "99%"),
        "CPU us": spent / int(count[1]) * 1e6,
    }


def _milliseconds(said: str, share: str) -> float:
    found = re.search(rf"{share}\s+([\d.]+)(us|ms|s)", said)
    assert found is not None, said
    return float(found[1]) * {"us": 1e-3, "ms": 1.0, "s": 1e3}[found[2]]


def _cpu_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def start(url: str, games: int) -> list[Connection]:
    """Start games, each over a connection of its own, and send one tick for each; return the open connections."""
    connections = [Connection(Address.of(url)) for _ in range(games)]
    for number, connection in enumerate(connections):
        for kind, body in (("start", b""), ("tick", OBSERVATION.encode())):
            told = await connection.post("/step", {"game_id": f"g{number}", "step_kind": kind}, body)
            if told.status != 200:
                raise RuntimeError(f"{kind} of game {number}: {told}")
    return connections


def arena(run: Path, seconds: int, games: int, *words: str) -> Contestant:
    """Return a turn of the arena."""

    def turn() -> Mapping[str, Any]:
        with Served(run, "--sessions", str(max(games, 256)), *words) as server:

            async def play() -> dict[str, float]:
                connections = await start(server.url, games)
                loop = asyncio.get_running_loop()
                found = await loop.run_in_executor(None, by_wrk, server.url, games, seconds, server.process.pid)
                for connection in connections:
                    connection.break_off()
                return found

            return {**asyncio.run(play()), "MB": server.memory() / 1e6}

    return turn


def peer(kind: str, pythons: Sequence[str], seconds: int) -> Contestant:
    """Return a turn of another server."""

    def turn() -> Mapping[str, Any]:
        for python in pythons:
            with _running(python, kind) as (process, url):
                if process is not None:
                    return by_wrk(url, GAMES, seconds, process)
        raise MissingPeerError(f"no interpreter has what {kind} needs")

    return turn


@contextmanager
def _running(python: str, kind: str) -> Iterator[tuple[int | None, str]]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    line = [python, "-m", "benchmarks.peers.serving", kind, str(port)]
    with subprocess.Popen(line, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield (process.pid if _answers(port, process) else None), f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(60)


def _answers(port: int, process: subprocess.Popen) -> bool:
    """Return True once a server answers with 200, or False if it ends instead."""
    until = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < until:
        connection = Connection(Address("127.0.0.1", port, None))
        told = asyncio.run(_once(connection))
        if told == 200:
            return True
        time.sleep(0.2)
    return False


async def _once(connection: Connection) -> int:
    reply = await connection.post("/step", {}, OBSERVATION.encode())
    connection.break_off()
    return reply.status


def main(argv: Sequence[str] | None = None) -> int:
    """Run and return the exit code."""
    args = parse(options("gateway", __doc__), argv)
    seconds = 3 if args.quick else 20
    with tempfile.TemporaryDirectory(prefix="arena-gateway-") as folder:
        run = make_run(Path(folder), RUN)
        give_weights(run, "blue", 1000)
        (Path(folder) / "actors.py").write_text(ACTOR, encoding="utf-8")
        plain = ("--actor", f"{folder}/actors.py:Plain")
        contestants: dict[str, Contestant] = {
            "arena: JSON actor": arena(run.path, seconds, GAMES),
            "arena: a plain actor": arena(run.path, seconds, GAMES, *plain),
            f"arena: JSON actor, {MANY_GAMES:,} games": arena(run.path, seconds, MANY_GAMES),
            "limit: uvicorn that echoes": peer("echo", [sys.executable], seconds),
            "Ray Serve": peer("ray", args.peer_python, seconds),
        }
        tables: list[Table] = [
            compete(
                f"Ticks of {GAMES} games, a network of 64x64",
                contestants,
                figure="ticks/s",
                unit="ticks per second",
                turns=args.turns,
                until=args.until,
            )
        ]
    return conclude("gateway", args, tables)


if __name__ == "__main__":
    sys.exit(main())
