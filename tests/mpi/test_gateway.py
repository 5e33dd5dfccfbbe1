"""Games outside train: each tick counts once, whoever vanishes; a run is stopped and resumed; a seat over HTTP."""

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from arena.common.space_json import space_to_json
from arena.gateway.client import Address, Connection
from benchmarks.tools import tally
from benchmarks.tools.games import Games
from benchmarks.tools.serving import Served
from benchmarks.tools.tally import ACTION, OBSERVATION, Counting, what_is_wrong

from .launching import OPEN_MPI_AS_ROOT, write_config

pytestmark = pytest.mark.rooms("gateway", "worker", "root")

HORIZON, PLACES = 16, 8


class Run:
    """A run in the background, whose games come from this process."""

    def __init__(self, place: Path, config: dict, *arguments: str) -> None:
        self.directory = place / "runs" / config.get("name", "run")
        path = write_config(place, config)
        (self.directory / "gateway.json").unlink(missing_ok=True)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "arena.launch", str(path), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **OPEN_MPI_AS_ROOT, "OMP_NUM_THREADS": "1"},
            cwd=place,
        )

    def urls(self, matches: int = 1) -> list[str]:
        """Return where the games of so many matches come to, once they may."""
        until, file = time.monotonic() + 90, self.directory / "gateway.json"
        while time.monotonic() < until:
            if file.is_file() and len(found := json.loads(file.read_text())) == matches:
                return [match["url"] for match in found]
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        self.process.kill()
        raise AssertionError(f"no gateway has opened:\n{self.process.communicate()[0]}")

    def end(self, code: int = 0, within: float = 60) -> str:
        """Wait for the end of the run, and return its output."""
        try:
            said = self.process.communicate(timeout=within)[0]
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        assert self.process.returncode == code, said
        return said

    def steps(self, player: str) -> int:
        manifest = max(self.directory.glob("checkpoints/*/manifest.json"), key=lambda path: int(path.parent.name))
        return json.loads(manifest.read_text())["steps"][player]


def counting(path: Path, steps: int) -> dict:
    spaces = {"observation": space_to_json(OBSERVATION), "action": space_to_json(ACTION)}
    settings = {"port": 0, "idle_timeout": 1, "drain": 1, "spaces": {"player": spaces}}
    policy = {"use": f"{tally.__file__}:PlayerResults", "settings": {"path": str(path), "horizon": HORIZON}}
    return {
        "steps": steps,
        "env": {"use": "gateway", "num_envs": PLACES, "settings": settings},
        "policies": {"tally": policy},
        "matches": [{"seats": ["tally"]}],
        "checkpoint": {"every": 0.5},
    }


def query(run: Run, text: str) -> list[tuple]:
    with sqlite3.connect(run.directory / "arena.sqlite") as connection:
        return connection.execute(text).fetchall()


def wait_for_episodes(run: Run, count: int, condition: str = "1", within: float = 30) -> None:
    """Wait until the records hold so many episodes; games are reported once a second."""
    until = time.monotonic() + within
    while (found := query(run, f"SELECT count(*) FROM episodes WHERE {condition}")) != [(count,)]:
        assert time.monotonic() < until, f"expected {count} episodes, found {found}"
        time.sleep(0.1)


def test_every_tick_counts_once_and_a_stopped_run_goes_on(tmp_path: Path) -> None:
    made: list[Counting] = []

    def make() -> Counting:
        made.append(Counting(len(made)))
        return made[-1]

    path = tmp_path / "learned"
    config = counting(path, 100_000)
    run = Run(tmp_path, config)
    games = Games(run.urls()[0], make, kill=0.01, ticks=1200)
    asyncio.run(games.play(6))
    os.kill(run.process.pid, signal.SIGTERM)
    said = run.end(code=run.process.wait(60))
    assert "asked to stop" in said
    assert games.vanished and games.statuses.keys() <= {200, 503}
    learned = path.stat().st_size // 40
    assert what_is_wrong(path, made, left=PLACES * (HORIZON + 1) + games.vanished) == []
    causes = dict(query(run, "SELECT cause, count(*) FROM episodes WHERE truncated GROUP BY cause"))
    assert causes.keys() <= {"gateway:idle", "gateway:drain"}
    assert sum(causes.values()) == games.vanished
    ends = query(run, "SELECT count(*) FROM episodes WHERE NOT truncated")[0][0]
    assert ends == len(games.returns)
    before = run.steps("tally")
    assert learned <= before <= learned + games.vanished  # an action that was taken back was a step

    config["steps"] = before + 1000
    again = Run(tmp_path, config, "--resume")
    more = Games(again.urls()[0], make)
    asyncio.run(more.play(4))
    assert again.end().count("resumed from checkpoint") == 1
    assert again.steps("tally") >= before + 1000
    assert what_is_wrong(path, made, left=None) == []  # the last games were not learned from


@pytest.mark.tier("default")
def test_cartpole_over_http_learns_and_is_served_by_the_same_contract(tmp_path: Path) -> None:
    run = Run(
        tmp_path,
        {
            "steps": 12_000,
            "env": {
                "use": "gateway",
                "num_envs": 4,
                "settings": {"port": 0, "drain": 0, "game": "gymnasium:CartPole-v1"},
            },
            "policies": {"learner": {"use": "ppo", "settings": {"learning_rate": 1e-3, "gamma": 0.98}}},
            "matches": [{"seats": ["learner"]}],
        },
    )
    games = Games(run.urls()[0], lambda: gymnasium.make("CartPole-v1"))
    asyncio.run(games.play(4))
    said = run.end()
    assert np.mean(games.returns[-20:]) > 2 * np.mean(games.returns[:20])
    assert f"arena serve {run.directory}" in said
    assert run.steps("learner") >= 12_000
    with Served(run.directory) as served:
        asked = Games(served.url, lambda: gymnasium.make("CartPole-v1"), ticks=100)
        asyncio.run(asked.play(2))
        assert asked.statuses.keys() == {200}


def post(url: str, game: str, kind: str, said: dict | None = None) -> tuple[int, dict]:
    body = b"" if said is None else json.dumps(said).encode()
    request = urllib.request.Request(f"{url}/step", body, {"game_id": game, "step_kind": kind})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            found = answer.read()
            return answer.status, json.loads(found) if found else {}
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def play_a_seat(url: str, game: str) -> float:
    """Play a game of connect four at random, with the first legal action; return what it has earned."""
    assert post(url, game, "start")[0] == 200
    _, seen = post(url, game, "tick")
    full = [column for column, allowed in enumerate(seen["action_mask"]) if not allowed]
    assert not full
    while not seen["terminated"]:
        legal = [column for column, allowed in enumerate(seen["action_mask"]) if allowed]
        for column in {0, 1, 2, 3, 4, 5, 6} - set(legal):
            status, refused = post(url, game, "tick", {"action": column})
            assert status == 400
            assert f"expected one of {', '.join(map(str, legal))}" in refused["error"]
        status, seen = post(url, game, "tick", {"action": legal[0]})
        assert status == 200, seen
    status, refused = post(url, game, "tick", {"action": 0})
    assert (status, refused["code"]) == (400, "bad_body")
    _, ended = post(url, game, "end")
    return ended["return"]


def test_a_seat_over_http_against_a_learning_and_a_frozen_player(tmp_path: Path) -> None:
    config = {
        "steps": 10**9,
        "env": {"use": "pettingzoo:classic.connect_four_v3", "num_envs": 2},
        "policies": {
            "learner": {"use": "ppo", "settings": {"horizon": 16}},
            "past": {"use": "random"},
            "human": {"use": "external", "settings": {"port": 0, "drain": 0}},
        },
        "matches": [{"seats": ["learner", "past"]}, {"seats": ["human", "learner"]}, {"seats": ["past", "human"]}],
    }
    run = Run(tmp_path, config)
    first, second = run.urls(2)
    returns = [play_a_seat(url, f"g{number}") for url in (first, second) for number in range(4)]
    assert set(returns) <= {-1.0, 0.0, 1.0}
    assert post(second, "left", "start")[0] == 200  # and is not seen again
    wait_for_episodes(run, 8, "match > 0")
    os.kill(run.process.pid, signal.SIGTERM)
    run.end(code=run.process.wait(60))
    played = query(
        run,
        "SELECT match, group_concat(player), sum(return) FROM episodes JOIN episode_entities ON id = episode "
        "WHERE match > 0 GROUP BY id",
    )
    assert sorted(played) == [(1, "human,learner", 0.0)] * 4 + [(2, "past,human", 0.0)] * 4
    mine = query(run, "SELECT return FROM episode_entities JOIN episodes ON id = episode WHERE player = 'human'")
    assert sorted(value for (value,) in mine) == sorted(returns)
    learned = query(run, "SELECT DISTINCT player FROM metrics")
    assert learned == [("learner",)]


def test_a_model_and_a_trainer_of_ones_own_train_and_serve(tmp_path: Path) -> None:
    snake = Path(__file__).parents[2] / "examples/snake"
    config = {
        "steps": 4000,
        "env": {
            "use": "gateway",
            "num_envs": 4,
            "settings": {"port": 0, "drain": 0, "actor": f"{snake}/actor.py:SnakeActor", "agents": ["snake"]},
        },
        "policies": {"snake": {"use": f"{snake}/trainer.py:SnakeTrainer", "settings": {"batch_size": 128}}},
        "matches": [{"seats": ["snake"]}],
    }
    run = Run(tmp_path, config)
    game = [sys.executable, str(snake / "game.py")]
    subprocess.run([*game, run.urls()[0], "4"], timeout=60, check=True)
    run.end()
    assert run.steps("snake") == 4096
    names = {name for (name,) in query(run, "SELECT DISTINCT name FROM metrics WHERE player = 'snake'")}
    assert {"loss/policy", "loss/value"} <= names
    both = "SELECT count(*), min(return), max(return) FROM episodes JOIN episode_entities ON id = episode"
    games, worst, best = query(run, both)[0]
    assert games > 20
    assert worst < best  # how much was eaten is luck

    again = Run(tmp_path, {**config, "steps": 6000}, "--resume")
    subprocess.run([*game, again.urls()[0], "4"], timeout=60, check=True)
    again.end()
    assert 6000 <= again.steps("snake") < 6500

    with Served(run.directory) as served:
        assert f"snake@{again.steps('snake')}" in served.line
        done = subprocess.run([*game, served.url, "2", "3"], timeout=60, check=True, capture_output=True, text=True)
        assert done.stdout.startswith("6 games")


async def play_both_sides(url: str, games: int) -> list[str]:
    """Play rock-paper-scissors, in which both sides are agents; return the versions that have acted."""
    connection, versions = Connection(Address.of(url)), set()
    both, number = json.dumps({"observations": {"a": [0.5], "b": [0.5]}}).encode(), 0
    while number < games:
        head = {"game_id": f"g{number}", "step_kind": "start"}
        if (await connection.post("/step", head)).status != 200:
            await asyncio.sleep(0.2)
            continue
        answer = await connection.post("/step", {**head, "step_kind": "tick"}, both)
        versions.update(answer.headers["version"].split(","))
        actions = json.loads(answer.body)["actions"]
        won = (0, 1, -1)[(actions["a"] - actions["b"]) % 3]
        outcomes = {"a": ("draw", "win", "loss")[won], "b": ("draw", "loss", "win")[won]}
        end = {"rewards": {"a": won, "b": -won}, "terminated": True, "outcomes": outcomes}
        ended = await connection.post("/step", {**head, "step_kind": "end"}, json.dumps(end).encode())
        assert ended.status == 200, ended
        number += 1
    return sorted(versions)


def test_a_league_says_who_plays_a_game_outside(tmp_path: Path) -> None:
    one = {
        "observation": space_to_json(spaces.Box(0, 1, (1,), np.float32)),
        "action": space_to_json(spaces.Discrete(3)),
    }
    phases = {"one_phase_step": 100}
    config = {
        "steps": 10**9,
        "env": {"use": "gateway", "num_envs": 2, "settings": {"port": 0, "drain": 0, "spaces": {"a": one, "b": one}}},
        "policies": {"learner": {"use": "ppo", "settings": {"horizon": 8, "hidden": []}}},
        "league": {"use": "self_play", "episodes": 16, "settings": {"players": {"self_player": phases}}},
    }
    run = Run(tmp_path, config)
    versions = asyncio.run(play_both_sides(run.urls()[0], 300))
    wait_for_episodes(run, 300)
    os.kill(run.process.pid, signal.SIGTERM)
    run.end(code=run.process.wait(60))
    player = "self_player_default_0"
    assert f"{player}_0@0" in versions
    assert len([version for version in versions if version.startswith(f"{player}@")]) > 2
    assert query(run, "SELECT count(*) FROM league_players WHERE NOT active")[0][0] >= 1
    assert query(run, "SELECT sum(games) > 30 FROM payoff") == [(1,)]
    assert query(run, "SELECT count(*), sum(counted) > 20 FROM episodes") == [(300, 1)]
    learned = query(run, "SELECT count(*) FROM episode_entities WHERE player = 'self_player_default_0'")[0][0]
    assert 0 < run.steps(player) <= learned  # no action of an opponent is a step of the player


def test_clients_are_told_when_the_learner_fails(tmp_path: Path) -> None:
    run = Run(tmp_path, counting(tmp_path / "nowhere" / "learned", 10**6))
    games = Games(run.urls()[0], Counting)
    began = time.monotonic()
    asyncio.run(games.play(6))
    assert time.monotonic() - began < 30
    assert "No such file or directory" in run.end(code=1)
    assert games.statuses[500] >= 1  # those that waited
    assert games.statuses.keys() <= {0, 200, 500, 503}
    assert games.refusals["internal"] == games.statuses[500]
