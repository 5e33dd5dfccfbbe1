"""Experiment trackers beside a run: their curves are whole, and have each point once, after a kill and a resume."""

import json
import os
import signal
import sqlite3
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import arena
from arena.records.checkpoints import Checkpoints
from arena.records.lease import holder_of

from .launching import run_arena, write_config

pytestmark = pytest.mark.rooms("trackers", "root")

CONFIG = {
    "steps": 12_000,
    "checkpoint": {"every": 0.3},
    "env": {"use": "gymnasium:CartPole-v1", "num_envs": 2, "in_worker": True},
    "policies": {"solo": {"use": "ppo", "settings": {"hidden": [8], "horizon": 512}}},
    "matches": [{"seats": ["solo"]}],
    "records": {"plots": False, "tensorboard": False, "trackers": ["wandb", "mlflow", "trackio"]},
}
CURVE = "solo/loss/policy"


def records_of_wandb(path: Path) -> Iterator[bytes]:
    """Yield the records of a file of wandb's offline mode: a LevelDB log of blocks of 32 KiB, after 7 bytes."""
    data, place, record = path.read_bytes(), 7, b""
    while place + 7 <= len(data):
        left = 32768 - place % 32768
        if left < 7:  # filled with zeros
            place += left
            continue
        length, kind = struct.unpack("<xxxxHB", data[place : place + 7])
        record += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or its last part
            yield record
            record = b""


def curve_of_wandb(run: Path) -> list[tuple[int, float]]:
    """Return the curve in the files of wandb's offline mode."""
    from wandb.proto.wandb_internal_pb2 import Record

    found = []
    for path in sorted((run / "wandb").glob("offline-run-*/*.wandb")):
        for data in records_of_wandb(path):
            record = Record()
            record.ParseFromString(data)
            values = {item.key or ".".join(item.nested_key): item.value_json for item in record.history.item}
            if CURVE in values:
                found.append((int(values["solo/steps"]), float(values[CURVE])))
    return found


def curve_of_mlflow(store: Path, run: str) -> list[tuple[int, float]]:
    (path,) = store.glob(f"*/{run}/metrics/{CURVE}")
    lines = [line.split() for line in path.read_text().splitlines()]
    return [(int(steps), float(value)) for _, value, steps, *_ in lines]


def curve_of_trackio(folder: Path) -> list[tuple[int, float]]:
    (path,) = folder.glob("arena*.db")
    with sqlite3.connect(path) as database:
        rows = database.execute("SELECT step, metrics FROM metrics ORDER BY id").fetchall()
    return [(steps, json.loads(metrics)[CURVE]) for steps, metrics in rows if CURVE in json.loads(metrics)]


@pytest.mark.tier("default")
def test_each_tracker_has_the_curve_once_and_whole_after_a_kill_and_a_resume(tmp_path, monkeypatch):
    """The process of each tracker reads a run that goes on, dies with it, and is started by the resumed one."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    run = tmp_path / "runs" / "run"
    endless = write_config(tmp_path, {**CONFIG, "steps": 10**8})
    process = subprocess.Popen(
        [sys.executable, "-m", "arena.launch", str(endless)],
        cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        until = time.monotonic() + 60
        files = [run / "trackers" / f"{tracker}.json" for tracker in ("wandb", "mlflow", "trackio")]
        while not all(path.is_file() and json.loads(path.read_text())["points"] for path in files):
            assert time.monotonic() < until and process.poll() is None
            time.sleep(0.1)
        holder = holder_of(run)
        assert holder is not None
        os.kill(holder.process, signal.SIGKILL)
        process.wait(30)
    finally:
        process.kill()
    ids = [json.loads(path.read_text())["id"] for path in files]
    manifest = Checkpoints(run / "checkpoints").newest_manifest()
    assert manifest is not None
    reached = manifest["steps"]["solo"]
    outcome = run_arena(tmp_path, {**CONFIG, "steps": reached + 20_000}, "--resume")
    assert outcome.code == 0, outcome.errors
    assert [json.loads(path.read_text())["id"] for path in files] == ids, "it is the same run there"
    own = arena.Run(run).metrics("solo", "loss/policy")
    expected = list(zip(own["steps"].tolist(), own["value"].tolist(), strict=True))
    assert len(arena.Run(run).attempts) == 2 and len(expected) > 10
    for curve in (
        curve_of_wandb(run),
        curve_of_mlflow(tmp_path / "mlruns", ids[1]),
        curve_of_trackio(tmp_path / "trackio"),
    ):
        assert [steps for steps, _ in curve] == [steps for steps, _ in expected]
        assert [value for _, value in curve] == pytest.approx([value for _, value in expected])
