"""Players of a run as a server serves them: their spaces, their weights, a policy that acts in any lane."""

from collections.abc import Mapping, Sequence

from arena.common.errors import ConfigError
from arena.config.run import RunConfig, TableRow
from arena.envs.interface import EntitySpaces
from arena.evaluation.players import Contestant, PolicyMaker, find_contestant, make_copy, newest_version
from arena.gateway.models import LoadedPlayer
from arena.protocol.wire import Block, blocks_of
from arena.records.run_directory import RunDirectory


def load_players(
    run: RunDirectory, config: RunConfig, names: Sequence[str], *, lanes: Mapping[str, int], seed: int
) -> list[LoadedPlayer]:
    """Return players with their weights.

    Args:
      run: where the weights are.
      config: of the run.
      names: ``blue`` for the newest weights, ``blue@2000`` for a snapshot.
      lanes: player -> how many agents it plays at once.
      seed: their random streams derive from it.

    Raises:
      ConfigError: a name or a snapshot is unknown or comes twice, a player has no weights, or cannot be served.
    """
    players: list[LoadedPlayer] = []
    seats = _SeatSpaces(config)
    for name in names:
        contestant = find_contestant(run, config, name)
        player, _, frozen = name.partition("@")
        if any(player == other.name for other in players):
            raise ConfigError(f"--player: expected each player once, found {player!r} twice")
        newest = newest_version(run, player, contestant.policy) if not frozen else None
        row, block = seats.of(player)
        policy = PolicyMaker(contestant, [block.spaces], row, seed)(block, lanes[player])
        players.append(
            LoadedPlayer(
                name=player,
                version=frozen or str(newest.steps if newest else 0),
                observation=block.spaces.observation,
                action=block.spaces.action,
                flags=block.spaces.mask_size,
                policy=policy,
                platform=_platform(contestant),
            )
        )
    return players


def _platform(contestant: Contestant) -> str:
    return f"arena_{contestant.policy.use.rpartition(':')[2]}"


class _SeatSpaces:
    """The spaces of players, from the environments that they play; each environment is made once."""

    def __init__(self, config: RunConfig) -> None:
        self._rows = [row for round_ in config.round_list() for row in round_.rows]
        self._made: list[tuple[TableRow, tuple[EntitySpaces, ...]]] = []

    def of(self, player: str) -> tuple[TableRow, Block]:
        """Return a row that a player plays, and what it sees and does there.

        Raises:
          ConfigError: it sits nowhere, or plays entities of different spaces.
        """
        for row in self._rows:
            seated = [index for seat in row.seats if seat.player == player for index in seat.entities]
            if seated:
                entities = self._entities(row)
                blocks = blocks_of([entities[index] for index in seated])
                if len(blocks) > 1:
                    names = ", ".join(entities[seated[block.positions[0]]].name for block in blocks)
                    raise ConfigError(
                        f"player {player!r} plays entities that see or do different things ({names}), "
                        "and a server serves one kind"
                    )
                return row, Block((0,), blocks[0].spaces)
        raise ConfigError(f"player {player!r} sits in no match of the table, so that nothing says what it sees")

    def _entities(self, row: TableRow) -> tuple[EntitySpaces, ...]:
        for known, entities in self._made:
            if known.env == row.env:
                return entities
        environment = make_copy(row)
        environment.close()
        self._made.append((row, environment.entities))
        return environment.entities
