"""Warm starts from players of other runs: the weights file of each, and a copy of it in the run directory."""

import shutil
from pathlib import Path

from arena.common.errors import ConfigError
from arena.common.text import suggestion
from arena.config.resumed import load_stored_config
from arena.config.run import RunConfig
from arena.records.player_files import NEWEST, newest_version, snapshot_of
from arena.records.player_names import split_run
from arena.records.run_directory import RunDirectory


def weights_file(player: str, warm_start: str) -> Path:
    """Return the weights file of a player's ``warm_start``: a file, or ``RUN:PLAYER``, with ``@best`` or ``@STEPS``.

    Raises:
      ConfigError: the other run has no such player or weights.
    """
    folder, name = split_run(warm_start)
    if not name or warm_start.endswith(".safetensors"):
        return Path(warm_start)
    try:
        run = RunDirectory.existing(folder)
        source, _, at = name.partition("@")
        config = load_stored_config(run.config)
        if source not in config.players:
            near = suggestion(source, config.players)
            raise ConfigError(f"there is no player {source!r}{near} in {run}; players: {', '.join(config.players)}")
        if at not in ("", NEWEST):
            return snapshot_of(run, source, at).weights
        version = newest_version(run, source, config.players[source].warm_start)
    except ConfigError as error:
        raise ConfigError(f"policies.{player}.warm_start: {error}") from error
    if version is None:
        raise ConfigError(f"policies.{player}.warm_start: expected weights of {source!r} in {run}, found none yet")
    return version.weights


class WarmStarts:
    """Copies of the weights of other runs: a run must not depend on files that others remove or replace.

    Attributes:
      config: the configuration with the copies as warm starts.
    """

    def __init__(self, config: RunConfig, run: RunDirectory) -> None:
        """Find the weights; ``copy`` writes the copies.

        Raises:
          ConfigError: another run has no such player or weights.
        """
        self._copies: dict[Path, Path] = {}
        policies = dict(config.policies)
        for name, policy in config.policies.items():
            if policy.warm_start is None or policy.warm_start.endswith(".safetensors"):
                continue
            copy = run.warm_start(name).absolute()
            if not copy.is_file():  # that of an earlier attempt counts
                self._copies[copy] = weights_file(name, policy.warm_start)
            policies[name] = policy.model_copy(update={"warm_start": str(copy)})
        self.config = config
        if policies != config.policies:
            self.config = config.model_copy(update={"policies": policies})
            self.config.__dict__.pop("players", None)  # cached from the other policies

    def copy(self) -> None:
        """Write the copies, once the run directory exists.

        Raises:
          ConfigError: a file cannot be read or written.
        """
        for copy, source in self._copies.items():
            try:
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, copy)
            except OSError as error:
                raise ConfigError(f"warm_start: {source} cannot be copied to {copy}: {error.strerror}") from error
