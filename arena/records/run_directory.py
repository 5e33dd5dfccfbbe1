"""The run directory: the location of every file of a run, and whether it can be created."""

import contextlib
import errno
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from arena.common.errors import ConfigError
from arena.common.files import write_text
from arena.records.checkpoints import Checkpoints
from arena.records.lease import Lease, check_is_free, is_lease

Resume = Literal["never", "always", "if possible"]
"""Whether a start continues from a checkpoint; ``if possible``: if there is one, and starts over otherwise."""

GIVEN_WEIGHTS = ("warm_start.safetensors", "encoder_weights.safetensors")
"""Copies of the weights of other runs, beside a player's snapshots."""


def training_state_of(weights: Path) -> Path:
    """Return the path of the training state, optimizer included, that belongs to a weights file of a league's player.

    It exists where the player may be rolled back to these weights.
    """
    return weights.parent / "states" / weights.name


class RunDirectory:
    """The directory ``<root>/<name>`` of one run.

    Attributes:
      name: name of the run.
      path: the directory.
      lease: the right to write there, held by the process that has called ``take_lease``.
    """

    lease: Lease | None = None

    def __init__(self, root: Path | str, name: str) -> None:
        """Build the paths only; ``create`` creates the directories.

        Raises:
          ConfigError: ``name`` cannot be the name of a directory.
        """
        if not name or name in (".", "..") or name != os.path.basename(name) or "\0" in name:
            raise ConfigError(f"name: expected a plain name for the run directory, found {name!r}; it may hold no '/'")
        self.name = name
        self.path = Path(root) / name

    def __str__(self) -> str:
        """Return the path, for messages."""
        return str(self.path)

    @classmethod
    def existing(cls, path: Path | str) -> "RunDirectory":
        """Return the run directory at ``path`` (``runs/quickstart``).

        Raises:
          ConfigError: there is none.
        """
        path = Path(path) if Path(path).name not in ("", "..") else Path(path).resolve()
        run = cls(path.parent, path.name)
        if not run.config.is_file():
            raise ConfigError(f"{path}: expected a run directory, found no {run.config.name} there{_others(path)}")
        return run

    @property
    def config(self) -> Path:
        """The configuration as requested, including every ``--set``."""
        return self.path / "config.yaml"

    @property
    def plan(self) -> Path:
        """The roles of all ranks."""
        return self.path / "plan.json"

    @property
    def database(self) -> Path:
        """The records, written by the root only."""
        return self.path / "arena.sqlite"

    @property
    def tensorboard(self) -> Path:
        """A directory of event files for each player."""
        return self.path / "tensorboard"

    @property
    def checkpoints(self) -> Path:
        """A directory for each checkpoint; see ``arena.records.checkpoints``."""
        return self.path / "checkpoints"

    @property
    def log(self) -> Path:
        """One log file per node, or per rank."""
        return self.path / "log"

    def output_of_rank(self, rank: int) -> Path:
        """Return the file with what a rank has printed, if each rank has its own."""
        return self.log / f"rank-{rank:05d}.out"

    @property
    def arena_log(self) -> Path:
        """The readable log of the whole run."""
        return self.log / "arena.log"

    @property
    def hang_report(self) -> Path:
        """The activity of every rank when the run hung."""
        return self.log / "hang-report.txt"

    @property
    def gateways(self) -> Path:
        """Addresses of the gateways: match and url of each."""
        return self.path / "gateway.json"

    @property
    def progress(self) -> Path:
        """The state of a run that was started from Python, while it runs; see ``arena.report.progress_file``."""
        return self.path / "progress.json"

    @property
    def code(self) -> Path:
        """Classes and functions of a notebook that has started the run; they exist before it."""
        from arena.config.files import CODE  # slow to import, and rarely needed

        return self.path / CODE

    @property
    def trackers(self) -> Path:
        """What was sent to experiment trackers, a file for each; it may not exist."""
        return self.path / "trackers"

    @property
    def plots(self) -> Path:
        """Pictures."""
        return self.path / "plots"

    @property
    def summary(self) -> Path:
        """The final table as text; ``summary.json`` lies beside it."""
        return self.path / "summary.txt"

    @property
    def players(self) -> Path:
        """A directory of snapshots for each player."""
        return self.path / "players"

    @property
    def ranks(self) -> Path:
        """Role, host and process id of each rank, as JSON; it exists once a run has begun."""
        return self.log / "ranks.json"

    def spaces(self, player: str) -> Path:
        """Return the path of a player's spaces as JSON, for serving and exporting it without its environment."""
        return self.players / player / "spaces.json"

    def observations(self, player: str) -> Path:
        """Return the path of a sample of a player's observations, for checks of exported files."""
        return self.players / player / "observations.safetensors"

    def snapshot(self, player: str, steps: int) -> Path:
        """Return the path of ``player``'s weights after ``steps`` transition steps; its directory may not exist."""
        return self.players / player / f"{steps}.safetensors"

    @property
    def films(self) -> Path:
        """Directory of the films; it may not exist."""
        return self.path / "films"

    def encoder_weights(self, player: str) -> Path:
        """Copy of the weights of another run that a player's encoder has started from."""
        return self.players / player / "encoder_weights.safetensors"

    def warm_start(self, player: str) -> Path:
        """Return the path of the copy of another run's weights that ``player`` has started from."""
        return self.players / player / "warm_start.safetensors"

    def best(self, player: str) -> Path:
        """Return the path of the weights of ``player`` with the highest mean return in an evaluation."""
        return self.players / player / "best.safetensors"

    def evaluated(self, player: str, steps: int) -> Path:
        """Return the path of weights that are to be evaluated while training; they are removed afterwards."""
        return self.waiting(player) / f"{steps}.safetensors"

    def waiting(self, player: str) -> Path:
        """Return the directory of weights that wait for their evaluation; it may not exist."""
        return self.players / player / "evaluation"

    def best_opponent(self, player: str, other: str) -> Path:
        """Return the path of another learning player's weights in the evaluation of ``best``."""
        return self.players / player / "best_opponents" / f"{other}.safetensors"

    def snapshots(self, player: str) -> list[Path]:
        """Return ``player``'s snapshots, oldest first."""
        directory = self.players / player
        if not directory.is_dir():
            return []
        paths = [path for path in directory.glob("*.safetensors") if path.stem.isdecimal()]
        return sorted(paths, key=lambda path: int(path.stem))

    def take_lease(self) -> None:
        """Create the directory, and take its lease: no other run may write there.

        Raises:
          ConfigError: another run writes there, or the directory is not writable.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self.lease = Lease.take(self.path)
        except OSError as error:
            raise self._cannot_write(error) from error

    def release_lease(self) -> None:
        """Release the lease, if this process holds it, and remove the directory if it is empty."""
        if self.lease is None:
            return
        self.lease.release()
        self.lease = None
        with contextlib.suppress(OSError):
            self.path.rmdir()

    def is_being_written(self) -> bool:
        """Return whether there is a lease: all ranks of a run have started when its root takes one."""
        return self.path.is_dir() and any(is_lease(path) for path in self.path.iterdir())

    def create(self, config_yaml: str, plan: Mapping[str, Any], resume: bool) -> None:
        """Create the directory and its content, or prepare the existing one for a resume. The root calls it, once.

        A configuration or plan of an earlier attempt that differs is kept as ``config.<n>.yaml`` or ``plan.<n>.json``.

        Raises:
          ConfigError: the run exists (without ``resume``), has no checkpoint (with it), or is not writable.
        """
        self._check_is_new(resume)
        try:
            for directory in (self.path, self.tensorboard, self.players, self.checkpoints, self.log, self.plots):
                directory.mkdir(parents=True, exist_ok=True)
            # Permissions do not restrict the root user, nor reflect a full or read-only disk: only a write shows
            # whether it works.
            keep_and_write(self.config, config_yaml)
            keep_and_write(self.plan, json.dumps(plan, indent=1) + "\n")
        except OSError as error:
            raise self._cannot_write(error) from error

    def continues(self, resume: Resume) -> bool:
        """Return whether this start continues from a checkpoint.

        With ``if possible``, an attempt that ended before its first checkpoint is removed: the name of a job that was
        preempted so early would stay taken otherwise.

        Raises:
          ConfigError: another run writes there.
        """
        if self.lease is None:
            check_is_free(self.path)
        if resume != "if possible":
            return resume == "always"
        if self._has_checkpoint():
            return True
        if self.config.is_file():
            self.forget(or_killed=True)
        return False

    def check(self, resume: bool) -> None:
        """Raise the errors of ``take_lease`` and ``create`` that can be detected before, and leave nothing behind.

        Raises:
          ConfigError: see ``create``.
        """
        check_is_free(self.path)
        self._check_is_new(resume)
        existing = next(place for place in (self.path, *self.path.absolute().parents) if place.exists())
        try:
            with tempfile.TemporaryFile(dir=existing) as file:
                file.write(b"arena")
        except OSError as error:
            raise self._cannot_write(error) from error

    def _check_is_new(self, resume: bool) -> None:
        if self.path.is_dir() and any(not is_lease(path) and path != self.code for path in self.path.iterdir()):
            self._check_can_continue(resume)
        elif resume:
            raise ConfigError(
                f"{self}: expected a run to resume, found none there; start it without --resume{_others(self.path)}"
            )

    def forget(self, *, or_killed: bool = False) -> None:
        """Remove the files of a run that ended with a user error before anything was learned.

        So the corrected configuration can be started under the same name. Checkpoints and snapshots are never removed,
        nor are files that do not belong to the run.

        Args:
          or_killed: whether also to remove a run that was killed while it wrote its first checkpoint, with the one
            snapshot of each player that belongs to that.
        """
        if self._has_checkpoint():
            return
        has_players = any(file.name not in GIVEN_WEIGHTS for file in self.players.glob("*/*"))
        if has_players and not (or_killed and self._was_killed_early()):
            return
        for directory in (self.tensorboard, self.players, self.checkpoints, self.log, self.plots, self.trackers):
            shutil.rmtree(directory, ignore_errors=True)
        # A run that was stopped in order before its first checkpoint has a summary.
        summaries = (self.summary, self.summary.with_suffix(".json"))
        own = (self.config, self.plan, self.progress, self.gateways, *summaries)
        copies = self.code.glob("*.py")  # classes of a notebook are there before the run, and belong to who wrote them
        for file in (*own, *copies, *self.path.glob(f"{self.database.name}*")):
            file.unlink(missing_ok=True)
        for directory in (self.code, self.path):
            with contextlib.suppress(OSError):
                directory.rmdir()

    def _was_killed_early(self) -> bool:
        """Return whether a run without checkpoints has no summary, and at most one snapshot of each player."""
        return not self.summary.is_file() and all(len(self.snapshots(path.name)) < 2 for path in self.players.glob("*"))

    def _has_checkpoint(self) -> bool:
        """Return whether there is a complete checkpoint, whole or damaged."""
        return any(manifest.parent.name.isdecimal() for manifest in self.checkpoints.glob("*/manifest.json"))

    def _check_can_continue(self, resume: bool) -> None:
        checkpoint = Checkpoints(self.checkpoints).newest() if resume else self._has_checkpoint()
        if resume and not checkpoint:
            raise ConfigError(
                f"{self}: expected a complete checkpoint to resume from, found none; "
                f"remove it (rm -r {self}) and start again without --resume, or choose another name (--set name=...)"
            )
        if not resume and checkpoint:
            raise ConfigError(f"{self} exists: continue it with --resume, or choose another name (--set name=...)")
        if not resume:
            raise ConfigError(
                f"{self} exists, and has no checkpoint to resume from: "
                f"remove it (rm -r {self}), or choose another name (--set name=...)"
            )

    def _cannot_write(self, error: OSError) -> ConfigError:
        if isinstance(error, FileExistsError | NotADirectoryError):
            in_the_way = next((place for place in (self.path, *self.path.parents) if place.is_file()), error.filename)
            return ConfigError(
                f"{self}: expected a directory, found the file {in_the_way} in the way; "
                f"remove it, or choose another place (--set run_root=..., --set name=...)"
            )
        remedy = {
            errno.ENOSPC: "free some space there, or",
            errno.EDQUOT: "free some of your quota there, or",
            errno.EACCES: "change its permissions, or",
            errno.EPERM: "change its permissions, or",
        }.get(error.errno or 0, "it may be read-only:")
        return ConfigError(
            f"{self}: expected a directory that can be written, found: {error.strerror or error}; "
            f"{remedy} choose another place (--set run_root=...)"
        )


def _others(path: Path) -> str:
    """Return a hint that names the runs beside ``path``, or an empty string."""
    if not path.parent.is_dir():
        return ""
    runs = sorted(config.parent.name for config in path.parent.glob("*/config.yaml"))
    return f"; runs in {path.parent}: {', '.join(runs)}" if runs else ""


def keep_and_write(path: Path, text: str) -> None:
    """Write a file; one with other content is kept, with a number in its name."""
    if path.is_file() and path.read_text(encoding="utf-8") != text:
        number = 1
        while (backup := path.with_name(f"{path.stem}.{number}{path.suffix}")).exists():
            number += 1
        os.rename(path, backup)
    write_text(path, text)
