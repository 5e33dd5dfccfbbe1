"""External games: learning over HTTP compared with learning without, games that vanish, and ticks per second.

python -m benchmarks.games_outside learning cartpole --seeds 1-3
python -m benchmarks.games_outside learning pong --seeds 1
python -m benchmarks.games_outside greedy
python -m benchmarks.games_outside vanish --ticks 200000
python -m benchmarks.games_outside speed
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
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
from arena.config.resumed import load_stored_config
from arena.envs.interface import EntitySpaces
from arena.evaluation.players import find_contestant
from arena.policies.loader import build, load_weights
from arena.records.run_directory import RunDirectory
from arena.report.plots import new_figure, running_mean, save_figure, thin
from benchmarks.gateway import by_wrk, start
from benchmarks.learning import read_curve, seeds
from benchmarks.tools import tally
from benchmarks.tools.games import Games
from benchmarks.tools.serving import Served

CARTPOLE = {
    "learning_rate": 1e-3,
    "learning_rate_schedule": "linear",
    "horizon": 256,
    "minibatches": 4,
    "epochs": 8,
    "gamma": 0.98,
    "gae_lambda": 0.9,
}
PONG = {
    "hidden": [128, 128],
    "activation": "relu",
    "learning_rate": 1e-3,
    "learning_rate_schedule": "linear",
    "horizon": 512,
    "minibatches": 4,
    "epochs": 8,
    "entropy_coefficient": 0.01,
    "target_kl": 0.03,
}
PONG_SETTINGS = {"obs_type": "ram", "frameskip": 4, "repeat_action_probability": 0.0}
SIDES = 64  # games at once for the measurement of speed
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
"""For each name: constructor of a game, games at once, steps, settings of PPO, and environment without a gateway.
gateway."""


class Run:
    """A run in the background.

    Attributes:
      directory: of the run.
    """

    def __init__(self, place: Path, config: dict[str, Any]) -> None:
        """Start the run."""
        self.directory = place / config["name"]
        path = place / f"{config['name']}.yaml"
        path.write_text(yaml.safe_dump({"run_root": str(place), **config}), encoding="utf-8")
        self._log = path.with_suffix(".log").open("w", encoding="utf-8")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "arena.launch", str(path)],
            stdout=self._log,
            stderr=subprocess.STDOUT,
            # The gateway is found by the environment that its process was started with, which a fork does not have.
            env={**os.environ, "OMP_NUM_THREADS": "1", "ARENA_START": "spawn"},
        )

    def url(self) -> str:
        """Return the URL of the gateway, once it accepts games."""
        file = self.directory / "gateway.json"
        while not file.is_file():
            if self._process.poll() is not None:
                raise SystemExit(f"the run has ended: {self._log.name}")
            time.sleep(0.05)
        return json.loads(file.read_text())[0]["url"]

    def gateway(self) -> int:
        """Return the process id of the gateway, the first rank behind the root."""
        for name in os.listdir("/proc"):
            with contextlib.suppress(OSError, ValueError):
                words = Path(f"/proc/{int(name)}/environ").read_bytes().split(b"\0")
                line = Path(f"/proc/{name}/cmdline").read_bytes()
                if b"OMPI_COMM_WORLD_RANK=1" in words and str(self.directory).encode() + b".yaml" in line:
                    return int(name)
        raise RuntimeError("the gateway was not found")

    def stop(self) -> None:
        """Request a stop, and wait until the run has ended."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait()
        self._log.close()

    def end(self) -> None:
        """Wait for the end of the run."""
        if self._process.wait() != 0:
            raise SystemExit(f"the run has failed: {self._log.name}")
        self._log.close()


def resident(process: int) -> int:
    """Return the bytes of a process's resident memory."""
    status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    return 1024 * int(status.partition("VmRSS:")[2].split()[0])


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
    """Return the configuration of external games with these spaces."""
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
    """Train with and without a gateway, and plot both."""
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
            print(
                f"{game} {how:<10} seed {seed}: {curve.first():.1f} at first, {curve.last():.1f} at last {told}",
                flush=True,
            )
            smooth = thin(np.array(curve.steps), running_mean(np.array(curve.returns), 50))
            axes[0].plot(*smooth, color=color, linewidth=1.4, label=how if seed == listed[0] else None)
    axes[0].set_title(f"{game}: return over steps, {places} games at once")
    axes[0].legend()
    print(save_figure(figure, FIGURES / f"games_outside_{game}.png"))


def vanish(ticks: int, place: Path) -> None:
    """Play games of which one in a hundred vanishes at each tick, and compare what was learned with what was played."""
    made: list[tally.Counting] = []

    def make() -> tally.Counting:
        made.append(tally.Counting(len(made), longest=100))
        return made[-1]

    horizon, places, path = 64, 32, place / "learned"
    policy = {"use": f"{tally.__file__}:PlayerResults", "settings": {"path": str(path), "horizon": horizon}}
    env = gateway(places, (tally.OBSERVATION, tally.ACTION), idle_timeout=0.5)
    run = Run(place, config_of("vanish", policy, env, 10**9))
    games = Games(run.url(), make, kill=0.0002, ticks=ticks)
    memory: list[int] = []
    process = run.gateway()

    async def play() -> None:
        watch = asyncio.get_running_loop().create_task(_watch(memory, process))
        await games.play(places)
        watch.cancel()

    asyncio.run(play())
    run.stop()
    wrong = tally.what_is_wrong(path, made, left=places * (horizon + 1) + games.vanished)
    print(f"{games.ticks:,} ticks of {games.games:,} games ({games.vanished:,} vanished); {dict(games.statuses)}")
    early, late = memory[len(memory) // 10] / 1e6, memory[-1] / 1e6
    print(f"memory of the gateway: {early:.1f} MB after a tenth of the time, {late:.1f} MB at the end")
    print("lost, crossed, twice: 0" if not wrong else "\n".join(wrong))


async def _watch(memory: list[int], process: int) -> None:
    while True:
        memory.append(resident(process))
        await asyncio.sleep(1)


class Noted(gymnasium.Wrapper):
    """A game that records its observations and actions."""

    def __init__(self, env: gymnasium.Env) -> None:
        """Begin with empty records."""
        super().__init__(env)
        self.seen: list[np.ndarray] = []
        self.done: list[int] = []

    def reset(self, **options: Any) -> tuple[Any, dict]:
        """See Gymnasium."""
        observation, info = self.env.reset(**options)
        self._last = observation
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict]:
        """See Gymnasium."""
        self.seen.append(self._last)
        self.done.append(int(action))
        self._last, *rest = self.env.step(action)
        return (self._last, *rest)  # type: ignore[return-value]


def greedy(place: Path) -> None:
    """Train over HTTP, serve with the same actor, and compare its actions with those of the policy."""
    settings = {**CARTPOLE, "learning_rate": 3e-4}
    run = Run(place, config_of("greedy", {"use": "ppo", "settings": settings}, gateway(4, spaces_of(pole)), 20_000))
    asyncio.run(Games(run.url(), pole).play(4))
    run.end()
    games: list[Noted] = []

    def make() -> Noted:
        games.append(Noted(pole()))
        return games[-1]

    with Served(run.directory) as served:
        asyncio.run(Games(served.url, make, ticks=10_000).play(4))
    directory = RunDirectory.existing(run.directory)
    config = load_stored_config(directory.config)
    weights = find_contestant(directory, config, "learner").weights
    spaces = EntitySpaces("player", *spaces_of(pole))
    policy = build("ppo", spaces, settings, lanes=1, seed=0)
    load_weights(policy, str(weights))
    seen, done = (np.concatenate([getattr(game, name) for game in games])[:10_000] for name in ("seen", "done"))
    native = policy.act(seen.astype(np.float32), deterministic=True).actions
    print(f"equal greedy actions: {int((native == done).sum()):,} of {len(done):,}; {np.bincount(done)} of each")


def speed(seconds: int, place: Path) -> None:
    """Measure ticks per second while a run learns, and then while its players are served, with the same client."""
    policy = {"use": "ppo", "settings": {"hidden": [64, 64]}}
    run = Run(place, config_of("speed", policy, gateway(SIDES, spaces_of(pole)), 10**9))
    training = _ticks(run.url(), seconds, run.gateway())
    run.stop()
    with Served(run.directory) as served:
        serving = _ticks(served.url, seconds, served.process.pid)
    for how, found in (("while it learns", training), ("while it serves", serving)):
        told = ", ".join(f"{name} {value:,.1f}" for name, value in found.items())
        print(f"{how}: {told}")
    print(f"training over serving: {training['ticks/s'] / serving['ticks/s']:.2f}")


def _ticks(url: str, seconds: int, process: int) -> dict[str, float]:
    async def play() -> dict[str, float]:
        connections = await start(url, SIDES)
        found = await asyncio.get_running_loop().run_in_executor(None, by_wrk, url, SIDES, seconds, process)
        for connection in connections:
            connection.break_off()
        return found

    return asyncio.run(play())


def main(argv: Sequence[str] | None = None) -> None:
    """Run the requested measurement."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.games_outside", description=__doc__.partition("\n")[0])
    kinds = parser.add_subparsers(dest="kind", required=True)
    learning = kinds.add_parser("learning", help="curves with and without a gateway")
    learning.add_argument("game", choices=GAMES)
    learning.add_argument("--seeds", type=seeds, default=[1])
    kinds.add_parser("vanish", help="games that vanish").add_argument("--ticks", type=int, default=200_000)
    kinds.add_parser("greedy", help="actions of the server beside those of the policy")
    kinds.add_parser("speed", help="ticks per second").add_argument("--seconds", type=int, default=15)
    chosen = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="arena-games-") as folder:
        if chosen.kind == "learning":
            learn(chosen.game, chosen.seeds, Path(folder))
        elif chosen.kind == "vanish":
            vanish(chosen.ticks, Path(folder))
        elif chosen.kind == "greedy":
            greedy(Path(folder))
        else:
            speed(chosen.seconds, Path(folder))


if __name__ == "__main__":
    main()
