"""Comparison, bit for bit, of deterministic runs that were killed and resumed with a run that was not.

    python -m benchmarks.determinism                  # 20 interruptions of each run
    python -m benchmarks.determinism --times 5 --only cartpole

Every run of a kind is killed once with SIGKILL, all of its processes, at a random moment between its start and its end,
and resumed; then its final weights and records are hashed. All hashes of a kind must be equal to that of an
uninterrupted run.
"""

import argparse
import hashlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from arena.tensors.weights import read_tensors

NORMALIZED = {"normalize_observations": True}
OWN_ENCODER = f"{Path(__file__).parents[1] / 'tests' / 'policies' / 'own_networks.py'}:Small"
"""An encoder as users write them."""

KINDS: dict[str, dict[str, Any]] = {
    "cartpole": {
        "steps": 12_000,
        "checkpoint": {"updates": 2},
        "env": {"use": "gymnasium:CartPole-v1", "num_envs": 8},
        "policies": {"p": {"use": "ppo", "settings": {"horizon": 64, "normalize_rewards": True, **NORMALIZED}}},
        "matches": [{"seats": ["p"], "replicas": 2}],
    },
    "2v2": {
        "steps": 2_000,
        "checkpoint": {"updates": 2},
        "env": {"use": "touchdown", "settings": {"team_size": 2}, "num_envs": 4},
        "policies": {
            "blue": {"use": "ppo", "settings": {"horizon": 32, "encoder": OWN_ENCODER}},
            "red": {"use": "ppo", "settings": {"horizon": 48, "lstm": 16, "burn_in": 8, **NORMALIZED}},
        },
        "matches": [{"seats": ["blue", "blue", "red", "red"]}],
    },
    "dqn": {
        "steps": 12_000,
        "verify_replicas": True,
        "checkpoint": {"updates": 20},
        "env": {"use": "gymnasium:CartPole-v1", "num_envs": 4},
        "policies": {
            "p": {"use": "dqn", "settings": {"horizon": 16, "n_step": 3, "warmup": 500, "capacity": 3000}},
        },
        "matches": [{"seats": ["p"], "replicas": 2}],
    },
    "sac": {
        "steps": 4_000,
        "verify_replicas": True,
        "checkpoint": {"updates": 20},
        "env": {"use": "gymnasium:Pendulum-v1", "num_envs": 2},
        "policies": {
            "p": {
                "use": "sac",
                "settings": {
                    "hidden": [32, 32],
                    "horizon": 16,
                    "warmup": 200,
                    "capacity": 2000,
                    "batch_size": 64,
                    "noise": "pink",
                    "policy_delay": 2,
                    **NORMALIZED,
                },
            }
        },
        "matches": [{"seats": ["p"], "replicas": 2}],
    },
    "apart": {
        "steps": 6_000,
        "verify_replicas": True,
        "checkpoint": {"updates": 10},
        "env": {"use": "touchdown", "settings": {"team_size": 1}, "num_envs": 4, "batches": 1},
        "policies": {
            "blue": {
                "use": "ppo",
                "learners": 2,
                "max_lag": 2,
                "settings": {"horizon": 16, "normalize_rewards": True, **NORMALIZED},
            },
            "red": {"use": "dqn", "learners": 1, "settings": {"horizon": 8, "warmup": 300, "capacity": 2000}},
        },
        "matches": [{"seats": ["blue", "red"], "replicas": 2}],
    },
    "teams": {
        "steps": 4_000,
        "verify_replicas": True,
        "checkpoint": {"updates": 10},
        "env": {
            "use": "pettingzoo:mpe2.simple_speaker_listener_v4",
            "settings": {"continuous_actions": True},
            "num_envs": 2,
            "in_worker": True,
        },
        "policies": {
            "maddpg": {
                "use": "maddpg",
                "settings": {"hidden": [16], "warmup": 100, "capacity": 1000, "noise": "pink", "priority": 0.6},
            },
            "masac": {
                "use": "masac",
                "settings": {"hidden": [16], "warmup": 100, "capacity": 1000, "share": "each", **NORMALIZED},
            },
        },
        "matches": [
            {"seats": [["maddpg", "maddpg"]]},
            {"seats": [["masac", "masac"]], "replicas": 2, "env": {"settings": {"continuous_actions": False}}},
        ],
    },
}
"""The runs: two workers of one player in matches of their own; two against two at different paces, one with memory; two
workers that learn from replays, with discrete and with continuous actions; two players whose learners are apart, with
workers that are behind; and teams of entities with different spaces."""

QUESTIONS = (
    "SELECT id, round, match, copy, length, truncated, cause FROM episodes ORDER BY id",
    'SELECT episode, entity, player, "return", length, outcome, metrics FROM episode_entities ORDER BY episode, entity',
    "SELECT episode, entity, steps FROM episode_entities ORDER BY episode, entity",
    "SELECT player, steps, updates, name, value FROM metrics ORDER BY player, updates, name",
)
"""Columns of the records, without times and without the attempts in which rows were written."""


def manifests(run: Path) -> list[Path]:
    """Return the manifests of a run's checkpoints that are whole, oldest first; ``<n>.partial`` is being written."""
    found = run.glob("checkpoints/*/manifest.json")
    return sorted((path for path in found if path.parent.name.isdecimal()), key=lambda path: int(path.parent.name))


def fingerprint(run: Path) -> str:
    """Return a hash of a run's final state, of every player's weights, and of its records."""
    digest = hashlib.sha256()
    newest = manifests(run)[-1]
    for path in [*sorted(newest.parent.glob("*.safetensors")), *sorted((run / "players").glob("*/*.safetensors"))]:
        digest.update(path.name.encode())
        for name, array in sorted(read_tensors(path).items()):
            digest.update(name.encode() + np.ascontiguousarray(array).tobytes())
    manifest = json.loads(newest.read_text("utf-8"))
    digest.update(repr([manifest["number"], sorted(manifest["steps"].items())]).encode())
    with sqlite3.connect(run / "arena.sqlite") as database:
        for question in QUESTIONS:
            digest.update(repr(database.execute(question).fetchall()).encode())
    return digest.hexdigest()[:16]


def start(path: Path, name: str) -> subprocess.Popen:
    """Start or resume a run, in a session of its own."""
    return subprocess.Popen(
        # With -u it is no fork of a parent of a series, whose children are not this process's descendants.
        [sys.executable, "-u", "-m", "arena.launch", str(path), "--set", f"name={name}", "--resume-or-start"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def finish(process: subprocess.Popen, timeout: float = 300) -> None:
    """Wait for a run's end.

    Raises:
      RuntimeError: it failed.
    """
    _, errors = process.communicate(timeout=timeout)
    if process.returncode != 0:
        raise RuntimeError(f"the run ended with exit code {process.returncode}:\n{errors[-2000:]}")


def descendants(pid: int) -> list[int]:
    """Return a process and all its descendants, according to ``/proc``."""
    parents = {}
    for entry in Path("/proc").iterdir():
        try:
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
    found = [pid]
    for known in found:
        found += [child for child, parent in parents.items() if parent == known]
    return found


def kill_everything(process: subprocess.Popen) -> None:
    """Send SIGKILL to every process of a run at once, and return when none is left."""
    victims = descendants(process.pid)
    for victim in victims:
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it had ended already
    process.communicate()
    while any(Path(f"/proc/{victim}/exe").exists() for victim in victims):
        time.sleep(0.02)


def interrupted(path: Path, name: str, moment: float) -> bool:
    """Start a run, kill all of it after ``moment`` seconds and resume it; return whether it was still running."""
    process = start(path, name)
    try:
        finish(process, moment)
        return False
    except subprocess.TimeoutExpired:
        kill_everything(process)
    finish(start(path, name))
    return True


def main(argv: Sequence[str] | None = None) -> int:
    """Interrupt and compare; return 0 if all hashes of each kind are equal."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.determinism", description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=20, metavar="N", help="interruptions of each run (default: 20)")
    parser.add_argument("--only", choices=KINDS, help="one of the runs")
    parser.add_argument("--seed", type=int, default=1, help="of the moments (default: 1)")
    args = parser.parse_args(argv)
    moments = random.Random(args.seed)
    equal = True
    for kind in [args.only] if args.only else KINDS:
        with tempfile.TemporaryDirectory(prefix="arena-determinism-") as place:
            path = Path(place) / "config.yaml"
            config = {"name": kind, "run_root": place, "deterministic": True, **KINDS[kind]}
            path.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
            began = time.monotonic()
            finish(start(path, "whole"))
            seconds = time.monotonic() - began
            expected = fingerprint(Path(place) / "whole")
            print(f"{kind:<9} in one go, {seconds:.1f} s: {expected}", flush=True)
            hits = attempts = 0
            found = {expected}
            while hits < args.times:
                name, moment = f"run-{attempts}", moments.uniform(0.0, seconds)
                attempts += 1
                hit = interrupted(path, name, moment)
                hits += hit
                told = fingerprint(Path(place) / name)
                found.add(told)
                print(f"{kind:<9} {'killed' if hit else 'not killed'} after {moment:5.1f} s: {told}", flush=True)
            told = "all hashes are equal" if len(found) == 1 else f"{len(found)} DIFFERENT HASHES"
            print(f"{kind:<9} {hits} interruptions: {told}", flush=True)
            equal = equal and len(found) == 1
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
