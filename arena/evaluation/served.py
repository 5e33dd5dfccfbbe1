"""Players of a run as a server serves them: their spaces, their weights, and newer ones as they come."""

import os
from collections.abc import Mapping, Sequence

from arena.common.errors import ConfigError
from arena.config.run import PolicyConfig, RunConfig, TableRow
from arena.envs.interface import EntitySpaces
from arena.evaluation.players import Contestant, PolicyMaker, find_contestant, make_copy, newest_version
from arena.experience.entity_json import read_entity
from arena.gateway.models import LoadedPlayer
from arena.protocol.wire import Block, blocks_of
from arena.records.run_directory import RunDirectory


class RunVersions:
    """A player's versions as they come into a run directory.

    It remembers what the directory looked like, since looking at checkpoints takes long.
    """

    def __init__(self, run: RunDirectory, loader: "_Loader") -> None:
        """Begin with what there is now."""
        self._run, self._loader = run, loader
        self._seen: object = None
        self._found: str | None = None

    def newest(self) -> str | None:
        """Return the newest version, or None where there is none.

        Raises:
          ConfigError: all checkpoints are damaged.
        """
        seen = self._look()
        if seen != self._seen:
            found = newest_version(self._run, self._loader.player, self._loader.policy)
            self._found = None if found is None else str(found.steps)
            self._seen = seen
        return self._found

    def _look(self) -> object:
        """Return what changes when there is another version."""
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
      player: its name.
      policy: what the configuration says of it.
    """

    def __init__(
        self, run: RunDirectory, config: RunConfig, player: str, at: tuple[TableRow, Block], lanes: int, seed: int
    ) -> None:
        self._run, self._config, self.player = run, config, player
        (self._row, self._block), self._lanes, self._seed = at, lanes, seed
        self.policy: PolicyConfig = config.players[player]

    def load_newest(self) -> LoadedPlayer:
        found = newest_version(self._run, self.player, self.policy)
        weights = None if found is None else found.weights
        contestant = Contestant(self.player, self.policy, weights, self._run.players / self.player)
        try:
            return self._load(contestant, "0" if found is None else str(found.steps), fixed=False)
        except ConfigError:
            if weights is None or weights.exists():
                raise
            return self.load_newest()  # the run has put a newer one in its place meanwhile

    def load_snapshot(self, steps: str) -> LoadedPlayer:
        return self._load(find_contestant(self._run, self._config, f"{self.player}@{steps}"), steps, fixed=True)

    def _load(self, contestant: Contestant, version: str, *, fixed: bool) -> LoadedPlayer:
        spaces = self._block.spaces
        return LoadedPlayer(
            name=self.player,
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
    """Return players with their weights, and where newer ones come from of those that are served with the newest.

    Args:
      run: where the weights are.
      config: of the run.
      names: ``blue`` for the newest weights, ``blue@2000`` for a snapshot.
      lanes: name, as in ``names`` -> how many agents act by it at once.
      seed: their random streams derive from it.

    Raises:
      ConfigError: a name or a snapshot is unknown or comes twice, a player has no weights, or cannot be served.
    """
    loaded: list[LoadedPlayer] = []
    sources: dict[str, RunVersions] = {}
    seats = SeatSpaces(run, config)
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"--player: expected each player once, found {name!r} twice")
        find_contestant(run, config, name)  # says what is wrong with the name
        player, _, steps = name.partition("@")
        loader = _Loader(run, config, player, seats.of(player), lanes[name], seed)
        if steps:
            loaded.append(loader.load_snapshot(steps))
        else:
            loaded.append(loader.load_newest())
            sources[player] = RunVersions(run, loader)
    return loaded, sources


class SeatSpaces:
    """The spaces of players: as training has kept them, else from the environments, each of which is made once."""

    def __init__(self, run: RunDirectory, config: RunConfig) -> None:
        self._run = run
        self._rows = [row for round_ in config.round_list() for row in round_.rows]
        self._made: list[tuple[TableRow, tuple[EntitySpaces, ...]]] = []

    def of(self, player: str) -> tuple[TableRow, Block]:
        """Return a row that a player plays, and what it sees and does there.

        Raises:
          ConfigError: it sits nowhere, what was kept is damaged, or it plays entities of different spaces.
        """
        for row in self._rows:
            seated = [index for seat in row.seats if seat.player == player for index in seat.entities]
            if seated:
                kept = self._run.spaces(player)
                if kept.is_file():
                    return row, Block((0,), read_entity(kept))
                entities = self._entities(row)
                blocks = blocks_of([entities[index] for index in seated])
                if len(blocks) > 1:
                    names = ", ".join(entities[seated[block.positions[0]]].name for block in blocks)
                    raise ConfigError(
                        f"player {player!r} plays entities with different spaces ({names}), "
                        "and arena serve needs the same spaces for all of them"
                    )
                return row, Block((0,), blocks[0].spaces)
        raise ConfigError(f"player {player!r} has no seat in the table of matches, so its spaces are not known")

    def _entities(self, row: TableRow) -> tuple[EntitySpaces, ...]:
        for known, entities in self._made:
            if known.env == row.env:
                return entities
        environment = make_copy(row)
        environment.close()
        self._made.append((row, environment.entities))
        return environment.entities
