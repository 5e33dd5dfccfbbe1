"""Served players with a trainer class of the user's own."""

from collections.abc import Mapping, Sequence
from typing import Any

from arena.common import registry
from arena.common.errors import ConfigError
from arena.config.run import RunConfig
from arena.evaluation.players import find_contestant
from arena.gateway.remote_seats import ServedModel
from arena.gateway.training.remote_agents import make_remote_model
from arena.records.player_files import newest_version
from arena.records.run_directory import RunDirectory
from arena.tensors.weights import read_state

TRAINER = "trainer."  # prefix of a trainer's own state in a checkpoint


def trainers_among(config: RunConfig, players: Sequence[str]) -> list[str]:
    """Return those of some players with a ``RemoteTrainer`` as class."""
    trainers = []
    for name in players:
        policy = config.players.get(name.partition("@")[0])
        own = policy is not None and registry.is_reference(policy.use)
        if policy is not None and own and hasattr(registry.policy_class(policy.use), "make_model"):
            trainers.append(name)
    return trainers


class TrainedModels:
    """Finds and loads the models of a run."""

    def __init__(self, run: RunDirectory, config: RunConfig) -> None:
        """Store the run."""
        self._run, self._config = run, config

    def load(self, name: str) -> ServedModel:
        """Return a player with its newest weights, or those of a snapshot (``snake@2000``).

        Raises:
          ConfigError: there are none, or they do not fit.
        """
        contestant = find_contestant(self._run, self._config, name)
        player, _, steps = name.partition("@")
        version = newest_version(self._run, player, contestant.policy.warm_start)
        if contestant.weights is None:
            raise ConfigError(f"player {player!r}: expected weights in {contestant.place}, found none; train it first")
        model = make_remote_model(player, registry.policy_class(contestant.policy.use), contestant.policy.settings)
        newest = "0" if version is None else str(version.steps)
        try:
            return ServedModel(player, model, steps or newest, _weights(contestant.weights))
        except RuntimeError as error:
            raise ConfigError(f"{contestant.weights}: its tensors do not fit the model: {error}") from error

    def newer(self, player: str, version: str) -> tuple[str, Mapping[str, Any]] | None:
        """Return a newer version than this one with its weights, or None.

        Raises:
          ConfigError: it is damaged.
        """
        newest = newest_version(self._run, player, self._config.players[player].warm_start)
        if newest is None or newest.steps <= int(version):
            return None
        return str(newest.steps), _weights(newest.weights)


def _weights(path: Any) -> dict[str, Any]:
    return {name: value for name, value in read_state(path).items() if not name.startswith(TRAINER)}
