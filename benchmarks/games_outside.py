"""Games outside: what is learned over HTTP beside what is learned without, games that vanish, and ticks per second.

python -m benchmarks.games_outside learning cartpole --seeds 1-3
python -m benchmarks.games_outside learning pong --seeds 1
python -m benchmarks.games_outside vanish --ticks 200000
python -m benchmarks.games_outside speed
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import yaml

from arena.common.space_json import space_to_json
from arena.records.run_directory import RunDirectory
from arena.report.plots import new_figure, save_figure
from benchmarks.learning import read_curve, seeds
from benchmarks.tools import tally
from benchmarks.tools.games import Games
from benchmarks.tools.serving import Served

CARTPOLE = {"learning_rate": 1e-3, "horizon": 256, "minibatches": 4, "epochs": 8, "gamma": 0.98, "gae_lambda": 0.9}
PONG = {
    "hidden": [128, 128],
    "activation": "relu",
    "learning_rate": 1e-3,
    "horizon": 512,
    "minibatches": 4,
    "epochs": 8,
    "entropy_coefficient": 0.01,
    "target_kl": 0.03,
}
PONG_SETTINGS = {"obs_type": "ram", "frameskip": 4, "repeat_action_probability": 0.0}
FIGURES = Path(__file__).parent / "figures"


def pole() -> gymnasium.Env:
    """Return CartPole."""
    return gymnasium.make("CartPole-v1")


def pong() -> gymnasium.Env:
    """Return Pong, two moments of the console's memory."""
    import ale_py

    gymnasium.register_envs(ale_py)
    console = gymnasium.make("ALE/Pong-v5", **PONG_SETTINGS)
    return gymnasium.wrappers.FrameStackObservation(console, stack_size=2)


GAMES: dict[str, tuple[Callable[[], gymnasium.Env], int, int, dict[str, Any], dict[str, Any]]] = {
    "cartpole": (pole, 4, 150_000, CARTPOLE, {"use": "gymnasium:CartPole-v1"}),
    "pong": (
        pong,
        2,
        300_000,
        PONG,
        {
            "use": "gymnasium:ALE/Pong-v5",
            "settings": PONG_SETTINGS,
            "wrappers": [{"use": "FrameStackObservation", "settings": {"stack_size": 2}}],
        },
    ),
}
"""Name -> what makes a game, how many at once, steps, settings of PPO, and the environment without a gateway."""


class Run:
    """A run in the background.

    Attributes:
      directory: of the run.
    """

    def __init__(self, place: Path, config: dict[str, Any]) -> None:
        """Start it."""
        self.directory = place / config["name"]
        path = place / f"{config['name']}.yaml"
        path.write_text(yaml.safe_dump({"run_root": str(place), **config}), encoding="utf-8")
        self._log = path.with_suffix(".log").open("w", encoding="utf-8")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "arena.launch", str(path)],
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    def url(self) -> str:
        """Return where games come to, once they may."""
        file = self.directory / "gateway.json"
        while not file.is_file():
            if self._process.poll() is not None:
                raise SystemExit(f"the run has ended: {self._log.name}")
            time.sleep(0.05)
        return json.loads(file.read_text())[0]["url"]

    def end(self) -> None:
        """Wait for its end."""
        if self._process.wait() != 0:
            raise SystemExit(f"the run has failed: {self._log.name}")
        self._log.close()


def config_of(name: str, policy: dict[str, Any], env: dict[str, Any], steps: int, seed: int = 1) -> dict[str, Any]:
    """Return the configuration of a run of one player."""
    return {
        "name": name,
        "seed": seed,
        "steps": steps,
        "env": env,
        "policies": {"learner": policy},
        "matches": [{"seats": ["learner"]}],
        "records": {"plots": False},
    }


def gateway(places: int, spaces: tuple[Any, Any], **settings: Any) -> dict[str, Any]:
    """Return the environment of games outside with these spaces."""
    described = {"observation": space_to_json(spaces[0]), "action": space_to_json(spaces[1])}
    return {
        "use": "gateway",
        "num_envs": places,
        "settings": {"port": 0, "drain": 0, "spaces": {"player": described}, **settings},
    }


def spaces_of(make: Callable[[], gymnasium.Env]) -> tuple[Any, Any]:
    """Return the spaces of a game."""
    game = make()
    game.close()
    return game.observation_space, game.action_space


def learn(game: str, listed: Sequence[int], place: Path) -> None:
    """Train with and without a gateway, and draw both."""
    make, places, steps, settings, env = GAMES[game]
    figure, axes = new_figure(1, 1, (7.0, 4.0))
    policy = {"use": "ppo", "settings": settings}
    for seed in listed:
        for how, color in (("without", "#8a8f98"), ("over HTTP", "#1f77b4")):
            name = f"{game}-{how.split()[0]}-{seed}"
            outside = how == "over HTTP"
            chosen = gateway(places, spaces_of(make)) if outside else {**env, "num_envs": places}
            run = Run(place, config_of(name, policy, chosen, steps, seed))
            if outside:
                asyncio.run(Games(run.url(), make, seed=seed).play(places))
            run.end()
            curve = read_curve(RunDirectory.existing(run.directory).database, "learner")
            reached = curve.reached(475.0) if game == "cartpole" else None
            told = f"475 after {reached:,} steps" if reached else ""
            print(f"{game} {how:<10} seed {seed}: first {curve.first:.1f}, last {curve.last:.1f} {told}", flush=True)
            axes[0].plot(curve.steps, curve.means, color=color, label=how if seed == listed[0] else None)
    axes[0].set_title(f"{game}: return over steps, {places} games at once")
    axes[0].legend()
    print(save_figure(figure, FIGURES / f"games_outside_{game}.png"))


def vanish(ticks: int, place: Path) -> None:
    """Play games of which one in a hundred vanishes in each tick's place, and hold what was learned against them."""
    made: list[tally.Counting] = []

    def make() -> tally.Counting:
        made.append(tally.Counting(len(made), longest=100))
        return made[-1]

    horizon, places, path = 64, 32, place / "learned"
    policy = {"use": f"{tally.__file__}:Tally", "settings": {"path": str(path), "horizon": horizon}}
    env = gateway(places, (tally.OBSERVATION, tally.ACTION), idle_timeout=0.5)
    run = Run(place, config_of("vanish", policy, env, 10**9))
    games = Games(run.url(), make, kill=0.0002, ticks=ticks)
    memory: list[int] = []

    async def play() -> None:
        watch = asyncio.get_running_loop().create_task(_watch(memory, run))
        await games.play(places)
        watch.cancel()

    asyncio.run(play())
    run.stop()
    wrong = tally.what_is_wrong(path, made, left=places * (horizon + 1) + games.vanished)
    print(f"{games.ticks:,} ticks of {games.games:,} games, {games.vanished:,} vanished; statuses {dict(games.statuses)}")
    print(f"gateway's memory after a tenth {memory[len(memory) // 10] / 1e6:.1f} MB, at the end {memory[-1] / 1e6:.1f} MB")
    print("lost, crossed, twice: 0" if not wrong else "\n".join(wrong))


async def _watch(memory: list[int], run: Run) -> None:
    while True:
        memory.append(run.memory())
        await asyncio.sleep(1)


def play_apart(url: str, ticks: int, places: int, results: Any) -> None:
    """Play CartPole in a process of its own."""
    games = Games(url, pole, ticks=ticks)
    began = time.perf_counter()
    asyncio.run(games.play(places))
    results.put(games.ticks / (time.perf_counter() - began))


def speed(place: Path) -> None: ...


def main(argv: Sequence[str] | None = None) -> None:
    """Run what is asked for."""


if __name__ == "__main__":
    main()
