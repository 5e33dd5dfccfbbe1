"""Warm starts from players of other runs: the weights file of each, and a copy of it in the run directory."""

import shutil
from pathlib import Path
from typing import Any

from arena.common import registry
from arena.common.errors import ConfigError
from arena.common.text import suggestion
from arena.config.resumed import load_stored_config
from arena.config.run import RunConfig
from arena.config.sections import PolicyConfig
from arena.records.player_files import NEWEST, newest_version, snapshot_of
from arena.records.player_names import split_run
from arena.records.run_directory import RunDirectory

ENCODER = "encoder_weights"
"""Setting with the first weights of an encoder alone."""


def weights_file(player: str, warm_start: str, key: str = "warm_start") -> Path:
    """Return the weights file of a player's ``warm_start``: a file, or ``RUN:PLAYER``, with ``@best`` or ``@STEPS``.

    Args:
      player: the player.
      warm_start: where its weights are.
      key: key of the player's policy, for messages.

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
        raise ConfigError(f"policies.{player}.{key}: {error}") from error
    if version is None:
        raise ConfigError(f"policies.{player}.{key}: expected weights of {source!r} in {run}, found none yet")
    return version.weights


def is_player(weights: Any) -> bool:
    """Return whether first weights are those of a player of another run."""
    return isinstance(weights, str) and not weights.endswith(".safetensors")


def encoder_weights(policy: PolicyConfig) -> str | None:
    """Return where the first weights of a policy's encoder are; None for random ones, and for a user's own policy."""
    return policy.settings.get(ENCODER) if policy.use in registry.POLICIES else None


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
            if is_player(policy.warm_start):
                copy = self._copy(run.warm_start(name), name, str(policy.warm_start), "warm_start")
                policies[name] = policies[name].model_copy(update={"warm_start": copy})
            encoder = encoder_weights(policy)
            if is_player(encoder):
                copy = self._copy(run.encoder_weights(name), name, str(encoder), f"settings.{ENCODER}")
                settings = {**policy.settings, ENCODER: copy}
                policies[name] = policies[name].model_copy(update={"settings": settings})
        self.config = config
        if policies != config.policies:
            self.config = config.model_copy(update={"policies": policies})
            self.config.__dict__.pop("players", None)  # cached from the other policies

    def _copy(self, copy: Path, player: str, source: str, key: str) -> str:
        """Return where the copy of a player's weights will be."""
        copy = copy.absolute()
        if not copy.is_file():  # that of an earlier attempt counts
            self._copies[copy] = weights_file(player, source, key)
        return str(copy)

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
                raise ConfigError(f"{source} cannot be copied to {copy}: {error.strerror}") from error
