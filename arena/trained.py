"""The players of a run as they can play: policies with their newest weights, built without a match."""

import logging
from collections.abc import Sequence
from pathlib import Path

from arena import registry
from arena.checkpoint import Checkpoints, read_tensors
from arena.config import PolicyConfig, RunConfig, TableRow
from arena.envs.interface import EntitySpaces
from arena.errors import ConfigError
from arena.exhibition import Acting
from arena.run_directory import RunDirectory
from arena.seeding import derive_seed
from arena.stand_in import LoneGroup, StandInError, stand_in_env
from arena.user_player import UserPlayer
from arena.wire import Block

logger = logging.getLogger(__name__)


def policy_of(config: RunConfig, player: str) -> PolicyConfig:
    """Return what a run's configuration says of a player's policy.

    Raises:
      ConfigError: it knows no such player.
    """
    if player not in config.policies:
        near = registry.nearest(player, config.policies)
        raise ConfigError(f"there is no player {player!r}{near}; players: {', '.join(config.policies)}")
    return config.policies[player]


class PolicyMaker:
    """Builds what plays a block of a seat's entities, with the player's newest weights."""

    def __init__(
        self,
        run: RunDirectory,
        name: str,
        policy: PolicyConfig,
        spaces: Sequence[EntitySpaces],
        row: TableRow,
        seed: int,
    ) -> None:
        """Prepare to build.

        Args:
          run: where the weights are.
          name: of the player.
          policy: what the configuration says of it.
          spaces: of the entities on its seat.
          row: the match that it plays.
          seed: of its random streams.
        """
        self._run, self._name, self._policy, self._spaces = run, name, policy, spaces
        self._row, self._seed = row, seed

    def __call__(self, block: Block, lanes: int) -> Acting:
        """Return what plays a block of the seat's entities in ``lanes`` lanes.

        Raises:
          ConfigError: the player has no weights, they do not fit, or its policy cannot play without a match.
        """
        weights = newest_weights(self._run, self._name, self._policy)
        cls = registry.policy_class(self._policy.use)
        try:
            if hasattr(cls, "run"):
                return self._open_door(cls, weights)
            from arena.policies import loader  # imports torch

            seed = derive_seed(self._seed, "block", *block.positions)
            policy = loader.build(self._policy.use, block.spaces, self._policy.settings, lanes=lanes, seed=seed)
            if weights is not None:
                loader.load_weights(policy, weights)
            elif policy.weights():
                raise ConfigError(self._untrained())
        except ConfigError as error:
            raise ConfigError(f"player {self._name!r}: {error}") from error
        return policy

    def _untrained(self) -> str:
        return (
            f"expected weights in {self._run.players / self._name} or in a checkpoint, found none; "
            "train it first, or let it finish its first checkpoint"
        )

    def _open_door(self, cls: type, weights: Path | None) -> Acting:
        if weights is None:
            raise ConfigError(self._untrained())
        keywords = dict(self._policy.settings)
        model = registry.policy_settings_model(self._policy.use)
        if model is not None:
            keywords = model(**keywords).model_dump()
        env = stand_in_env(self._spaces, self._row.env.num_envs, self._row.env.autoreset)
        try:
            policy = cls(env, LoneGroup(), **keywords)
        except StandInError as error:
            raise ConfigError(
                f"{self._policy.use} cannot be evaluated: it steps its environment while it is built, "
                "and there is no match here; move that into run"
            ) from error
        missing = [name for name in ("act", "load_state_dict") if not callable(getattr(policy, name, None))]
        if missing:
            raise ConfigError(
                f"{self._policy.use} cannot be evaluated: expected methods act(observations) and "
                f"load_state_dict(state), found no {' and no '.join(missing)}"
            )
        import torch

        policy.load_state_dict({name: torch.from_numpy(array) for name, array in read_tensors(weights).items()})
        return UserPlayer(policy)


def newest_weights(run: RunDirectory, player: str, policy: PolicyConfig) -> Path | None:
    """Return the file of a player's newest weights: a snapshot, its part of a checkpoint, or its warm start; or None.

    Raises:
      ConfigError: there are checkpoints, and all of them are damaged.
    """
    snapshots = run.snapshots(player)
    snapshot = snapshots[-1] if snapshots else None
    newest = Checkpoints(run.checkpoints).newest()
    if newest is not None:
        for warning in newest.warnings:
            logger.warning(warning)
        part = newest.path / f"{player}.safetensors"
        steps = newest.manifest.get("steps", {}).get(player, 0)
        if part.is_file() and (snapshot is None or steps > int(snapshot.stem)):
            return part
    if snapshot is not None:
        return snapshot
    return Path(policy.warm_start) if policy.warm_start is not None else None
