"""Players of a run for a server: their spaces, their weights, and newer ones as they appear."""

import os
from collections.abc import Mapping, Sequence

from arena.common import registry
from arena.common.errors import ConfigError
from arena.config.rounds import TableRow
from arena.config.run import RunConfig
from arena.config.sections import PolicyConfig
from arena.envs.interface import EntitySpaces, Team
from arena.evaluation.players import (
    Contestant,
    PolicyMaker,
    find_contestant,
    make_copy,
    split_entity,
)
from arena.experience.entity_json import read_entity
from arena.gateway.models import LoadedPlayer
from arena.protocol.wire import Block, blocks_of
from arena.records.player_files import NEWEST, newest_version, snapshot_of
from arena.records.run_directory import RunDirectory


class RunVersions:
    """Versions of a player as they appear in a run directory.

    It caches the state of the directory, since reading checkpoints takes long.
    """

    def __init__(self, run: RunDirectory, loader: "_Loader") -> None:
        """Start with the current version."""
        self._run, self._loader = run, loader
        self._seen: object = None
        self._found: str | None = None

    def newest(self) -> str | None:
        """Return the newest version, or None if there is none.

        Raises:
          ConfigError: all checkpoints are damaged.
        """
        state = self._state()
        if state != self._seen:
            version = newest_version(self._run, self._loader.player, self._loader.policy.warm_start)
            self._found = None if version is None else str(version.steps)
            self._seen = state
        return self._found

    def _state(self) -> object:
        """Return a value that changes with each new version."""
        place = self._run.players / self._loader.player
        published = place / "latest.safetensors"
        return (
            [path.name for path in self._run.snapshots(self._loader.player)],
            published.stat().st_mtime_ns if published.is_file() else None,
            sorted(os.listdir(self._run.checkpoints)) if self._run.checkpoints.is_dir() else None,
        )

    def load(self) -> LoadedPlayer:
        """Return the newest version, loaded.

        Raises:
          ConfigError: it is damaged, or does not fit.
        """
        return self._loader.load_newest()


class _Loader:
    """Builds a player's policies with their weights.

    Attributes:
      player: name of the player.
      name: name under which it is served: with the entity, if one is served.
      policy: configuration of its policy.
    """

    def __init__(
        self,
        run: RunDirectory,
        config: RunConfig,
        player: str,
        name: str,
        at: tuple[TableRow, Block],
        lanes: int,
        seed: int,
    ) -> None:
        self._run, self._config, self.player, self.name = run, config, player, name
        (self._row, self._block), self._lanes, self._seed = at, lanes, seed
        self.policy: PolicyConfig = config.players[player]

    def load_newest(self) -> LoadedPlayer:
        version = newest_version(self._run, self.player, self.policy.warm_start)
        weights = None if version is None else version.weights
        contestant = Contestant(self.player, self.policy, weights, self._run.players / self.player)
        try:
            return self._load(contestant, "0" if version is None else str(version.steps), fixed=False)
        except ConfigError:
            if weights is None or weights.exists():
                raise
            return self.load_newest()  # the run has replaced it by a newer one meanwhile

    def load_snapshot(self, at: str) -> LoadedPlayer:
        snapshot = snapshot_of(self._run, self.player, at)
        contestant = Contestant(self.player, self.policy, snapshot.weights, self._run.players / self.player)
        return self._load(contestant, str(snapshot.steps), fixed=True)

    def _load(self, contestant: Contestant, version: str, *, fixed: bool) -> LoadedPlayer:
        spaces = self._block.spaces
        return LoadedPlayer(
            name=self.name,
            version=version,
            observation=spaces.observation,
            action=spaces.action,
            flags=spaces.mask_size,
            policy=PolicyMaker(contestant, [spaces], self._row, self._seed)(self._block, self._lanes),
            platform=f"arena_{self.policy.use.rpartition(':')[2]}",
            fixed=fixed,
        )


def load_players(
    run: RunDirectory, config: RunConfig, names: Sequence[str], *, lanes: Mapping[str, int], seed: int
) -> tuple[list[LoadedPlayer], dict[str, RunVersions]]:
    """Return players with their weights, and the sources of newer versions for those without a fixed one.

    Args:
      run: the run directory.
      config: configuration of the run.
      names: ``blue`` for the newest weights, ``blue@2000`` for a snapshot, ``blue@best`` for the best one;
        ``team.listener_0`` for the actor of one entity.
      lanes: name, as in ``names`` -> number of agents that it serves concurrently.
      seed: root of their random streams.

    Raises:
      ConfigError: a name or a snapshot is unknown or comes twice, a player has no weights, or cannot be served.
    """
    loaded: list[LoadedPlayer] = []
    sources: dict[str, RunVersions] = {}
    seats = SeatSpaces(run, config)
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"--player: expected each player once, found {name!r} twice")
        whole, entity = split_entity(config, name)
        find_contestant(run, config, whole)  # raises an error about the name
        player, _, at = whole.partition("@")
        loader = _Loader(run, config, player, name.partition("@")[0], seats.of(player, entity), lanes[name], seed)
        if at and at != NEWEST:
            loaded.append(loader.load_snapshot(at))
        else:
            loaded.append(loader.load_newest())
            sources[loader.name] = RunVersions(run, loader)
    return loaded, sources


def all_names(run: RunDirectory, config: RunConfig) -> list[str]:
    """Return the names of all players of a run, and of each entity of those with several actors."""
    names = []
    for player, policy in config.players.items():
        path = run.spaces(player)
        team = read_entity(path).team if path.is_file() else None
        if team is not None and _has_several_actors(policy, team):
            names += [f"{player}.{entity.name}" for entity in team.entities]
        else:
            names.append(player)
    return names


class SeatSpaces:
    """Spaces of players: as stored in training, else from the environments, each constructed once."""

    def __init__(self, run: RunDirectory, config: RunConfig) -> None:
        self._run, self._config = run, config
        self._rows = [row for round_ in config.round_list() for row in round_.rows]
        self._made: list[tuple[TableRow, tuple[EntitySpaces, ...]]] = []

    def of(self, player: str, entity: str | None = None) -> tuple[TableRow, Block]:
        """Return a row of a player, and its spaces there: those of one entity, or of all of them if they are equal.

        Raises:
          ConfigError: it has no seat, no such entity or several actors, the stored spaces are damaged, or its entities
            have different spaces.
        """
        for row in self._rows:
            seated = [index for seat in row.seats if seat.player == player for index in seat.entities]
            if not seated:
                continue
            path = self._run.spaces(player)
            if path.is_file():
                spaces = read_entity(path)
            else:
                entities = self._entities(row)
                spaces = blocks_of([entities[index] for index in seated])[0].spaces
            return row, Block((0,), _chosen(player, self._config.players[player], spaces, entity))
        raise ConfigError(f"player {player!r} has no seat in the table of matches, so its spaces are not known")

    def _entities(self, row: TableRow) -> tuple[EntitySpaces, ...]:
        for known, entities in self._made:
            if known.env == row.env:
                return entities
        environment = make_copy(row)
        environment.close()
        self._made.append((row, environment.entities))
        return environment.entities


def _has_several_actors(policy: PolicyConfig, team: Team) -> bool:
    model = registry.policy_settings_model(policy.use)
    return getattr(model, "is_joint", False) and (len(team.kinds()) > 1 or policy.settings.get("share") == "each")


def _chosen(player: str, policy: PolicyConfig, spaces: EntitySpaces, entity: str | None) -> EntitySpaces:
    """Return the spaces of one entity of a player, or of all of them if ``entity`` is None.

    Raises:
      ConfigError: there is no such entity; or None is named, and they have several actors or different spaces.
    """
    team = spaces.team or Team((spaces,), (0,))
    names = [each.name for each in team.entities]
    if entity is not None:
        if entity not in names:
            raise ConfigError(f"{player}.{entity}: expected an entity of the player ({', '.join(names)})")
        position = names.index(entity)
        return team.entities[position]._replace(team=Team(team.entities, (position,)))
    listed = ", ".join(f"{player}.{name}" for name in names)
    if _has_several_actors(policy, team):
        raise ConfigError(f"player {player!r} has several actors: name one of its entities, as {listed}")
    if len(team.kinds()) > 1:
        raise ConfigError(
            f"player {player!r} plays entities with different spaces ({', '.join(names)}), "
            "and outside its match a policy needs the same spaces for all of them"
        )
    return spaces
