"""How long ``arena page`` takes for a long run, and what it costs a run that goes on.

python -m benchmarks.page write RUN          records ten million episodes of a league of 1,000 players
python -m benchmarks.page open RUN           seconds to the first curve, and to all: the first time, and again
python -m benchmarks.page poll RUN           milliseconds of the server's processor for a poll
python -m benchmarks.page training           steps per second of a training with the page open and shut, in turns
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import numpy as np
import psutil

import arena
from arena.protocol.messages import Episode, Episodes, Progress
from arena.records.database import Database
from arena.records.player_statistics import PlayerInfo
from arena.records.readers.run import open_records
from arena.records.run_directory import RunDirectory
from arena.records.writers.run import RecordWriter

EPISODES = 10_000_000
PLAYERS = 1_000
LEARNING = 12
"""Players of the league that learn; the others are their snapshots."""

STEPS = 30
"""Steps of an episode."""

TURN = 6.0
"""Seconds of a turn with the page open or shut."""

WARM_UP = 15.0
"""Seconds of a training before the first turn."""

METRICS = ("loss/policy", "loss/value", "entropy", "kl", "explained_variance", "clip_fraction", "grad_norm")


def write(path: Path, episodes: int) -> None:
    """Record a league: each episode is one of a learning player against any other."""
    run = RunDirectory(path.parent, path.name)
    run.create(f"name: {path.name}\nsteps: 10\nenv: {{use: touchdown}}\npolicies: {{main: ppo}}\n", {}, resume=False)
    learning = [f"main_{number}" for number in range(LEARNING)]
    names = [*learning, *(f"main_{n % LEARNING}@{n}" for n in range(PLAYERS - LEARNING))]
    budget = STEPS * episodes // LEARNING
    colors = [f"#{random.Random(name).randrange(1 << 24):06x}" for name in names]
    players = {
        name: PlayerInfo("ppo", color, name in learning, budget if name in learning else None)
        for name, color in zip(names, colors, strict=True)
    }
    records = RecordWriter(run, players, host="node1", ranks=64, tensorboard=False)
    records.begin_round(0)
    chance = random.Random(1)
    ended_at = time.time() - episodes / 1000
    for number in range(0, episodes, 500):
        batch = []
        for each in range(number, number + 500):
            player, other = names[each % LEARNING], names[chance.randrange(PLAYERS)]
            if other == player:
                other = names[-1]
            steps = STEPS * (each // LEARNING)
            value = chance.gauss(steps / budget, 0.5)
            outcome = ("win", "loss") if value > 0 else ("loss", "win")
            ended_at += 0.001
            batch.append(
                Episode(
                    match=0,
                    copy=each % 64,
                    length=STEPS,
                    seconds=0.2,
                    players=(player, other),
                    returns=(value, -value),
                    lengths=(STEPS, STEPS),
                    outcomes=outcome,
                    truncated=False,
                    cause=None,
                    ended_at=ended_at,
                    steps={player: steps},
                )
            )
        for worker, player in enumerate(learning):
            metrics = {name: chance.random() for name in METRICS}
            steps = STEPS * (number // LEARNING)
            records.progress(Progress(player, worker, steps, number // 500, True, metrics))
        records.episodes(Episodes(0, tuple(batch), 500 * STEPS))
        if not number % 50_000:
            records.flush(force=True)
            print(f"{number:,} episodes", end="\r", flush=True)
    if not records.close(0):
        raise SystemExit("the records could not be written")
    _write_league(run, names, learning)
    print(f"{path}: {episodes:,} episodes, {run.database.stat().st_size / 1e9:.2f} GB")


def _write_league(run: RunDirectory, names: list[str], learning: list[str]) -> None:
    """Write a standing of all players: each pair has met, and ratings have a history."""
    chance, now = random.Random(2), time.time()
    database = Database(run.database)
    strengths = {name: chance.gauss(25, 6) for name in names}
    for number, name in enumerate(names):
        parent = None if name in learning else name.partition("@")[0]
        row = (name, "MainPlayer", "default", parent, name in learning, 1000 * number, f"players/{name}", now + number)
        database.add("INSERT INTO league_players VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
        for other in names[number + 1 :]:
            games = chance.randrange(4, 60)
            wins = games / (1 + 10 ** ((strengths[other] - strengths[name]) / 16))
            row = (name, other, wins, 0.0, games - wins, float(games), 0.1)
            database.add("INSERT INTO payoff VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        for at in range(100 if name in learning else 5):
            mu = 25 + (strengths[name] - 25) * min(1, at / 5)
            row = (now + 60 * at, name, 1000 * at, 10 * at, mu, 8.0 / (1 + at) ** 0.5, 40 * mu)
            database.add("INSERT INTO ratings VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        database.flush(force=True)
    database.close()


class Served:
    """An ``arena page`` process, and requests to it.

    Attributes:
      process: the server.
      link: its address.
    """

    def __init__(self, path: Path) -> None:
        """Start it, and wait for its address."""
        line = [sys.executable, "-m", "arena.launch", "page", str(path)]
        self.process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.link = next(word for word in self.process.stdout.readline().split() if word.startswith("http"))
        self.name = quote(path.resolve().name)

    def get(self, path: str) -> dict:
        """Return the answer to a request."""
        with urllib.request.urlopen(f"{self.link}api/{path}", timeout=600) as response:
            return json.load(response)

    def curves(self, players: list[str], since: str = "") -> dict:
        """Return the answer that the page of curves requests."""
        return self.get(f"curves?run={self.name}&since={since}" + "".join(f"&player={quote(name)}" for name in players))

    def processor_seconds(self) -> float:
        """Return the processor time that the server has used."""
        times = psutil.Process(self.process.pid).cpu_times()
        return times.user + times.system


@contextmanager
def served(path: Path) -> Iterator[Served]:
    """Serve a run."""
    server = Served(path)
    try:
        yield server
    finally:
        server.process.terminate()
        server.process.wait()


def open_twice(path: Path) -> None:
    """Print the seconds from the start of the command to the first curve and to the last row, twice."""
    for label in ("first time", "again"):
        began = time.perf_counter()
        with served(path) as server:
            players = [f"main_{number}" for number in range(6)]
            answer = server.curves(players)
            ready = time.perf_counter() - began
            while not answer["series"]:
                answer = server.curves(players)
            first = time.perf_counter() - began
            while answer["progress"] < 1:
                time.sleep(0.3)
                answer = server.curves(players, answer["since"])
            whole = time.perf_counter() - began
            memory = psutil.Process(server.process.pid).memory_info().rss / 1e6
        print(f"{label}: answer {ready:.2f} s, first curve {first:.2f} s, all rows {whole:.1f} s, {memory:.0f} MB")


def poll(path: Path) -> None:
    """Print the server's processor time of a poll: without news, and while a run records 200 episodes a second."""
    with served(path) as server:
        players = [f"main_{number}" for number in range(6)]
        answer = server.curves(players)
        while answer["progress"] < 1:
            time.sleep(0.3)
            answer = server.curves(players, answer["since"])
        database = Database(path / "arena.sqlite")
        for label, news in (("no news", 0), ("400 new episodes", 400)):
            used = []
            for _ in range(10):
                if news:
                    _append(database, news)
                before = server.processor_seconds()
                answer = server.curves(players, answer["since"])
                time.sleep(0.5)
                used.append(server.processor_seconds() - before)
            print(f"poll, {label}: {1e3 * statistics.mean(used):.1f} ms of processor time")
        database.close()


def _append(database: Database, episodes: int) -> None:
    """Add episodes to the records, as the root of a run that goes on."""
    number, steps = database.highest("id", "episodes"), database.highest("steps", "episode_entities")
    for each in range(1, episodes + 1):
        row = (number + each, 1, 0, 0, 0, time.time(), STEPS, 0.2, False, None, None, True)
        database.add("INSERT INTO episodes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        row = (number + each, 0, f"main_{each % LEARNING}", 1.0, STEPS, "win", steps + STEPS, None)
        database.add("INSERT INTO episode_entities VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
    database.flush(force=True)


def training(pairs: int) -> None:
    """Print the steps per second of a training while a page of it is polled and while not, in turns of some seconds.

    Whole trainings differ by a tenth and more; turns within one differ less.
    """
    turns = [bool((number + number // 2) % 2) for number in range(2 * pairs)]  # shut, open, open, shut: against drift
    with tempfile.TemporaryDirectory() as root:
        run = Path(root) / "run"
        config = {
            "name": "run",
            "run_root": root,
            "steps": 10**9,
            "env": {"use": "gymnasium:CartPole-v1", "num_envs": 8},
            "policies": {"learner": {"use": "ppo"}},
            "matches": [{"seats": ["learner"]}],
            "records": {"plots": False},
        }
        learning = arena.train(config, progress=False, wait=False)
        time.sleep(WARM_UP)
        began, cost = _look(run, turns)
        time.sleep(2.0)  # until the metrics of the last turn are on record
        learning.stop()
        learning.wait()
        with open_records(run / "arena.sqlite") as connection:
            query = "SELECT time, max(steps) FROM metrics GROUP BY time ORDER BY time"
            times, steps = np.array(connection.execute(query).fetchall(), np.float64).T
    speeds = np.diff(np.interp(began, times, steps)) / np.diff(began)
    seen, unseen = speeds[np.array(turns)], speeds[~np.array(turns)]
    ratios = seen / unseen
    error = ratios.std(ddof=1) / np.sqrt(pairs)
    print(f"open {np.median(seen):,.0f}, shut {np.median(unseen):,.0f} steps/s: medians of {pairs} turns of {TURN:g} s")
    print(f"open / shut: mean {ratios.mean():.3f} ± {error:.3f}, median {np.median(ratios):.3f}")
    print(f"the server: {100 * cost / (TURN * pairs):.2f} % of a core while it is polled")


def _look(run: Path, turns: list[bool]) -> tuple[list[float], float]:
    """Poll the page in every turn that says so, as often as a browser does.

    Returns:
      Unix times of the beginnings of the turns, and of the end; and the server's processor seconds while it was polled.
    """
    began, cost = [], 0.0
    with served(run) as server:
        answer = server.curves(["learner"])
        for is_open in turns:
            began.append(time.time())
            before = server.processor_seconds()
            while (left := began[-1] + TURN - time.time()) > 0:
                if is_open:
                    answer = server.curves(["learner"], answer["since"])
                time.sleep(min(2.0, left))
            if is_open:
                cost += server.processor_seconds() - before
        began.append(time.time())
    return began, cost


def main() -> None:
    """Run the part that the command line names."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    parser = argparse.ArgumentParser("python -m benchmarks.page", description=__doc__)
    parser.add_argument("part", choices=("write", "open", "poll", "training"))
    parser.add_argument("run", type=Path, nargs="?", default=Path("runs/ten_million"))
    parser.add_argument("--episodes", type=int, default=EPISODES)
    parser.add_argument("--pairs", type=int, default=15, help="turns of a training, with the page open and shut")
    arguments = parser.parse_args()
    if arguments.part == "training":
        training(arguments.pairs)
    elif arguments.part == "write":
        write(arguments.run, arguments.episodes)
    else:
        {"open": open_twice, "poll": poll}[arguments.part](arguments.run)


if __name__ == "__main__":
    main()
