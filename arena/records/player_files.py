"""Weights of a run's players: the newest ones, snapshots, and the best ones of evaluations."""

import logging
from pathlib import Path
from typing import NamedTuple

from arena.common.errors import ConfigError
from arena.records.checkpoints import Checkpoints
from arena.records.run_directory import RunDirectory
from arena.tensors.weights import read_metadata

logger = logging.getLogger(__name__)

BEST, NEWEST = "best", "newest"
"""Weights with the highest mean return in an evaluation while training, and the newest ones: ``blue@best``."""


class Version(NamedTuple):
    """Weights of a player.

    Attributes:
      steps: transition steps that they have learned from.
      weights: their file.
    """

    steps: int
    weights: Path


def snapshot_of(run: RunDirectory, player: str, at: str) -> Version:
    """Return a snapshot of a player: that at so many steps, or the best one of its evaluations.

    Raises:
      ConfigError: there is none; the message lists those that there are.
    """
    best = run.best(player)
    if at == BEST and best.is_file():
        return Version(int(read_metadata(best).get("steps", "0")), best)
    known = [path.stem for path in run.snapshots(player)]
    if at in known:
        return Version(int(at), run.snapshot(player, int(at)))
    listed = ", ".join([BEST, *known] if best.is_file() else known) or "none"
    remedy = "; the key evaluate keeps the best weights while training" if at == BEST else ""
    raise ConfigError(
        f"{player}@{at}: expected the steps of a snapshot in {run.players / player}; there are {listed}{remedy}"
    )


def newest_version(run: RunDirectory, player: str, warm_start: str | None = None) -> Version | None:
    """Return a player's newest weights: a snapshot, its part of a checkpoint, or its warm start; None without any.

    In a league that is running, they are the published ones.

    Raises:
      ConfigError: there are checkpoints, and all of them are damaged.
    """
    snapshots = run.snapshots(player)
    snapshot = snapshots[-1] if snapshots else None
    published = run.players / player / "latest.safetensors"
    if published.is_file() and (snapshot is None or published.stat().st_mtime > snapshot.stat().st_mtime):
        return Version(int(read_metadata(published).get("steps", "0")), published)
    newest = Checkpoints(run.checkpoints).newest()
    if newest is not None:
        for warning in newest.warnings:
            logger.warning(warning)
        part = newest.path / f"{player}.safetensors"
        steps = int(newest.manifest.get("steps", {}).get(player, 0))
        if part.is_file() and (snapshot is None or steps > int(snapshot.stem)):
            return Version(steps, part)
    if snapshot is not None:
        return Version(int(snapshot.stem), snapshot)
    return None if warm_start is None else Version(0, Path(warm_start))
