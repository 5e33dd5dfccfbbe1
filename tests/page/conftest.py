"""Runs that are recorded without being played, a page that serves them, and a browser."""

import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from arena.protocol.messages import Episode, Episodes, Progress
from arena.records.database import Database
from arena.records.player_statistics import PlayerInfo
from arena.records.run_directory import RunDirectory
from arena.records.writers.rank_rows import RankRow
from arena.records.writers.run import RecordWriter

CONFIG = "name: {name}\nsteps: 1000\nenv: {{use: touchdown}}\npolicies: {{blue: ppo, red: random}}\n"
PLAYERS = {
    "blue": PlayerInfo("ppo", "#3b82f6", budget=10_000),
    "red": PlayerInfo("random", "#ef4444", learns=False),
}


def episode(blue: float, steps: int, ended_at: float, players: Sequence[str] = ("blue", "red"), **changes) -> Episode:
    """Return an episode of two players; ``blue`` is the first one's return."""
    plain = Episode(
        match=0,
        copy=0,
        length=10,
        seconds=0.5,
        players=tuple(players),
        returns=(blue, -blue)[: len(players)],
        lengths=(10, 10)[: len(players)],
        outcomes=(("win", "loss") if blue > 0 else ("loss", "win"))[: len(players)],
        truncated=False,
        cause=None,
        ended_at=ended_at,
        steps={players[0]: steps},
    )
    return plain._replace(**changes)


def record(run: RunDirectory, episodes: int = 400, players: dict[str, PlayerInfo] = PLAYERS) -> RecordWriter:
    """Record episodes whose returns rise from -1 to 1, 20 steps after each other, and a metric; return the writer."""
    run.create(CONFIG.format(name=json.dumps(run.name)), {"rounds": [{}]}, resume=False)
    records = RecordWriter(run, players, host="node1", ranks=6, tensorboard=False)
    records.begin_round(0)
    add(records, 0, episodes, tuple(players)[:2])
    return records


def add(records: RecordWriter, first: int, last: int, players: Sequence[str] = ("blue", "red")) -> None:
    """Record the episodes ``first`` to ``last`` of 400."""
    began = time.time() - 400
    for number in range(first, last):
        records.progress(
            Progress(players[0], 0, 20 * (number + 1), number + 1, True, {"loss/policy": 1.0 / (number + 1)})
        )
        value = -1 + 2 * number / 399
        records.episodes(Episodes(0, (episode(value, 20 * number, began + number, players),), 10))


def ranks() -> list[RankRow]:
    """Return a measurement of three ranks: the learning worker is the one that waits least."""
    return [
        RankRow(0, "node1", "root", None, None, None, 0.0, 0.0, 0.0, 0.1, 0.9, 250.0, None, None),
        RankRow(1, "node1", "environment", 0, None, None, 0.4, 0.0, 0.0, 0.0, 0.6, 300.0, 5000.0, "seat 0, 3 s"),
        RankRow(2, "node2", "worker", 0, 0, "main", 0.0, 0.2, 0.7, 0.0, 0.1, 400.0, None, None),
    ]


def record_league(run: RunDirectory) -> None:
    """Record a league: main learns and beats its snapshots, and rarely the exploiter; its games with that one rise."""
    players = {"main": PlayerInfo("ppo", "#3b82f6"), "exploiter": PlayerInfo("ppo", "#ef4444")}
    records = record(run, 0, players)
    began = time.time() - 400
    for _ in range(3):
        records.ranks.add(time.time(), ranks())
    for number in range(400):
        other = ("exploiter", "main@1000", "main@2000")[number % 3]
        value = 1.0 if other != "exploiter" or number % 10 == 0 else -1.0
        records.episodes(Episodes(0, (episode(value, 20 * number, began + number, ("main", other)),), 10))
    records.close(0)
    database = Database(run.database)
    for name, parent, steps in (
        ("main", None, 8000),
        ("exploiter", None, 8000),
        ("main@1000", "main", 1000),
        ("main@2000", "main", 2000),
    ):
        created = began + (steps / 20 if parent else 0)
        row = (name, "MainPlayer", "default", parent, parent is None, steps, f"players/{name}", created)
        database.add("INSERT INTO league_players VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
        row = (began + 300, name, steps, 40, 25.0 + steps / 1000, 2.0, 1000.0)
        database.add("INSERT INTO ratings VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    for away, wins, losses in (("exploiter", 5.0, 45.0), ("main@1000", 50.0, 0.0)):
        row = ("main", away, wins, 0.0, losses, 50.0, 0.0)
        database.add("INSERT INTO payoff VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    for home, away, wins, losses, effective in (
        ("main", "exploiter", 3.0, 12.0, 50.0),
        ("main", "main@1000", 60.0, 2.0, 50.0),
        ("exploiter", "main@2000", 7.0, 9.0, 0.0),
    ):
        row = (home, away, wins, 0.0, losses, wins + losses, 0.0, effective)
        database.add("INSERT INTO game_totals VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
    database.add("INSERT INTO resets VALUES (1, ?, ?, ?)", (began, "exploiter", 4000))
    database.add("INSERT INTO rollbacks VALUES (1, ?, ?, ?, ?)", (began - 900, "main", 5000, "main@2000"))
    for text, ended in (("loses to its own snapshots", None), ("loses, and hardly tries anything else", began)):
        row = (began, "main", text.split()[0], text, ended)
        database.add("INSERT INTO concerns VALUES (1, ?, ?, ?, ?, ?)", row)
    for sides in ([["main"], ["exploiter"]], [["main"], ["exploiter"]], [["main"], ["main@1000"]]):
        job = json.dumps({"launch_player": "main", "sides": sides})
        database.add("INSERT INTO jobs VALUES (NULL, 1, 0, ?, NULL, ?, NULL)", (began, job))
    database.flush(force=True)
    database.close()


@pytest.fixture
def run(tmp_path) -> RunDirectory:
    """A finished run of 400 episodes."""
    run = RunDirectory(tmp_path, "first")
    record(run).close(0)
    return run


class Answer(NamedTuple):
    """Answer of the server.

    Attributes:
      status: HTTP status.
      headers: headers, names in lower case.
      body: text of the body.
    """

    status: int
    headers: dict[str, str]
    body: str

    @property
    def json(self) -> Any:
        """The body as JSON, with arrays."""
        return _decoded(json.loads(self.body))


def _decoded(value: Any) -> Any:
    import base64

    if isinstance(value, dict):
        if set(value) == {"type", "data"}:
            return np.frombuffer(base64.b64decode(value["data"]), f"<{value['type']}")
        return {key: _decoded(item) for key, item in value.items()}
    return [_decoded(item) for item in value] if isinstance(value, list) else value


class Page(NamedTuple):
    """A running ``arena page``.

    Attributes:
      link: the printed link.
      port: its port.
      process: the server.
    """

    link: str
    port: int
    process: subprocess.Popen

    def get(self, path: str, method: str = "GET", **headers: str) -> Answer:
        """Return the answer to a request of exactly this path."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, headers={name.replace("_", "-"): text for name, text in headers.items()})
            response = connection.getresponse()
            body = response.read().decode()
            return Answer(response.status, {name.lower(): text for name, text in response.getheaders()}, body)
        finally:
            connection.close()


@pytest.fixture
def serve(forks: None) -> Iterator[Callable[..., Page]]:
    """Start pages: ``serve(*arguments of arena page)``."""
    pages: list[subprocess.Popen] = []

    def start(*arguments: Any) -> Page:
        line = [sys.executable, "-m", "arena.launch", "page", *map(str, arguments)]
        process = subprocess.Popen(
            line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=dict(os.environ)
        )
        pages.append(process)
        assert process.stdout is not None
        printed = process.stdout.readline()
        assert "http://" in printed, printed + process.stdout.read()
        link = next(word for word in printed.split() if word.startswith("http://"))
        return Page(link, int(link.split("/")[2].rpartition(":")[2]), process)

    yield start
    for process in pages:
        process.terminate()
        rest, _ = process.communicate(timeout=10)
        assert (process.returncode, rest) == (0, ""), "the page ends in order"


def chromium() -> Path | None:
    """Return the browser of this machine."""
    names = (
        os.environ.get("ARENA_CHROMIUM", ""),
        "/usr/bin/chromium",
        "/usr/bin/chromium-browser",
        "/usr/bin/google-chrome",
    )
    return next((Path(name) for name in names if name and Path(name).is_file()), None)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A real browser; for one module, since other tests need an event loop of their own, and playwright keeps one."""
    sync_api = pytest.importorskip("playwright.sync_api")
    path = chromium()
    if path is None:
        pytest.skip("needs a Chromium: apt install chromium, or ARENA_CHROMIUM=/path/to/it")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(path), args=["--no-sandbox"])
        yield browser
        browser.close()
