"""Keys of the configuration file as a whole, and its rounds."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr

from arena.common.errors import ConfigError
from arena.common.trees import even_slices
from arena.common.validation import Count, CountOrAuto, Index, Model, Place
from arena.config.environment import EnvConfig, EnvOverride
from arena.config.evaluate import EvaluateConfig
from arena.config.league import LeagueSection
from arena.config.rounds import Round, TableRow, useful_replicas
from arena.config.sections import (
    EXTERNAL,
    CheckpointConfig,
    PolicyConfig,
    RecordsConfig,
    WaitConfig,
    device_name,
    file_name,
    not_empty,
    player_name,
)
from arena.config.table import MatchConfig, Matches, RoundConfig, RoundRobinConfig, Seat, listed
from arena.config.yaml_source import write

Keys = TypeVar("Keys", bound="RunKeys")


class RunKeys(Model):
    """Keys of the whole file, and what follows from them."""

    name: Annotated[str, BeforeValidator(file_name)] = Field(
        description="Name of the run; its directory is runs/<name>."
    )
    seed: Index = Field(1, description="Seed that all random streams derive from.")
    steps: Count = Field(description="Transition steps of each learning policy, summed over its workers.")
    env: EnvConfig = Field(description="The environment.")
    policies: Annotated[dict[Annotated[str, BeforeValidator(player_name)], PolicyConfig], AfterValidator(not_empty)] = (
        Field(description="The policies, by name. Each policy is a player.")
    )
    matches: Matches | None = Field(None, description="The table of matches: one item for each match.")
    round_robin: RoundRobinConfig | None = Field(
        None, description="Instead of matches: each listed policy plays against each other listed policy."
    )
    rounds: Annotated[tuple[RoundConfig, ...], AfterValidator(not_empty)] | None = Field(
        None, description="Instead of one table: several tables, played one after the other."
    )
    league: LeagueSection | None = Field(
        None, description="Instead of a table: a league decides what each match plays next."
    )
    checkpoint: CheckpointConfig = Field(CheckpointConfig(), description="Checkpoints.")
    waits: WaitConfig = Field(WaitConfig(), description="Settings of the waits between ranks.")
    records: RecordsConfig = Field(RecordsConfig(), description="Logs and scalars.")
    evaluate: EvaluateConfig | None = Field(
        None, description="Evaluations of the learning players while they train; null: none."
    )
    run_root: str = Field(
        "runs", description="Directory in which run directories are created, relative to the current directory."
    )
    device: Annotated[str, AfterValidator(device_name)] = Field(
        "auto",
        description="Device of the workers that learn: auto (a GPU if the node has one, else the CPU), cpu, "
        "cuda or cuda:<n>.",
    )
    verify_replicas: bool = Field(
        False,
        strict=True,
        description="Compare the weights of all workers of a policy after every update. For debugging; it costs time.",
    )
    deterministic: bool = Field(
        False,
        strict=True,
        description="Make the run independent of the clock. A run that was interrupted and resumed then ends "
        "with the same weights and records, bit for bit, as a run that was not. Not for leagues, "
        "nor for policies with a loop of their own.",
    )
    fault_tolerance: Literal["none", "ulfm"] = Field(
        "none",
        description="Reaction to the death of a rank: none ends the job; ulfm lets the other ranks continue "
        "(needs Open MPI, started with --with-ft ulfm). Not with deterministic.",
    )
    spares: Index = Field(0, description="Number of idle ranks that replace dead ranks; needs fault_tolerance: ulfm.")
    threads_per_rank: CountOrAuto = Field(
        "auto",
        description="Threads of torch in a worker. auto: the cores of the node, divided by its ranks.",
    )
    pin_matches: bool = Field(
        True,
        strict=True,
        description="On a machine with at least as many matches as cores, all of one kind, keep each match on"
        " one core; the matches of a core then take turns. false leaves the scheduling to the "
        "kernel.",
    )

    _cores: int | None = PrivateAttr(None)

    @cached_property
    def players(self) -> dict[str, PolicyConfig]:
        """Policy of every player that may learn: every policy in a table, those of the active players in a league."""
        return self.policies if self.league is None else self.league.players(self.seed, self.policies)

    def written_rounds(self) -> list[tuple[RoundConfig, Place]]:
        """Return the tables as written, with their places; a file without rounds has one, a league none."""
        if self.league is not None:
            return []
        if self.rounds is not None:
            return [(each, ("rounds", number)) for number, each in enumerate(self.rounds)]
        return [(RoundConfig.model_construct(matches=self.matches, round_robin=self.round_robin), ())]

    def round_list(self) -> tuple[Round, ...]:
        """Return the rounds in the order they are played; a file without ``rounds`` has one."""
        if self.league is not None:
            return (Round(0, self.steps, self._limited(self._league_rows(self.league)), {}, self._own_steps()),)
        rounds: list[Round] = []
        for each, _ in self.written_rounds():
            rows = self._limited([self._row(match) for match, _ in listed(each)])
            own = self._own_steps() if each.steps is None else {}
            for _ in range(each.repeat):
                rounds.append(Round(len(rounds), each.steps or self.steps, rows, dict(each.copy_weights), own))
        return tuple(rounds)

    def on_cores(self: Keys, cores: int | None) -> Keys:
        """Return the configuration for a job with this number of cores, which ``replicas: cores`` refers to.

        Raises:
          ConfigError: the number is unknown, and a match needs it.
        """
        if cores is None and any(row.replicas == "cores" for row in self.distinct_rows()):
            raise ConfigError(
                "replicas: cores: expected one machine, or a job of SLURM, whose cores are known before the run "
                "starts, found several hosts; state the number of ranks (-n N, arena slurm --ntasks-per-node N), or "
                "set replicas to a number or to auto"
            )
        changed = self.model_copy()
        changed._cores = cores
        return changed

    def _limited(self, rows: Sequence[TableRow]) -> tuple[TableRow, ...]:
        """Return the rows of a round with the largest number of replicas of each."""
        limits: dict[int, int] = {}
        by_cores = [number for number, row in enumerate(rows) if row.replicas == "cores"]
        if by_cores and self._cores is not None:
            learners = {player: count for row in rows for player, count in row.learners.items()}
            taken = sum(learners.values()) + sum(row.replicas for row in rows if isinstance(row.replicas, int))
            shares = even_slices(max(self._cores - taken, len(by_cores)), len(by_cores))
            limits = {number: share.stop - share.start for number, share in zip(by_cores, shares, strict=True)}
        return tuple(
            row._replace(limit=useful_replicas(row.env.copies, limits.get(number))) for number, row in enumerate(rows)
        )

    @property
    def evaluators(self) -> int:
        """Number of ranks that evaluate players while they train."""
        return 0 if self.evaluate is None else self.evaluate.ranks

    def distinct_rows(self) -> list[TableRow]:
        """Return the rows of all rounds, each distinct one once."""
        rows: list[TableRow] = []
        for round_ in self.round_list():
            rows += [row for row in round_.rows if row not in rows]
        return rows

    def evaluated_rows(self) -> list[TableRow]:
        """Return the rows that evaluations while training play; none without the key ``evaluate``."""
        if self.evaluate is None:
            return []
        rows = self.distinct_rows()
        if self.evaluate.row == "all":
            return [row for row in rows if not row.outside]
        return [row for row in rows[self.evaluate.row : self.evaluate.row + 1] if not row.outside]

    def evaluated_players(self) -> list[str]:
        """Return the learning players that evaluations while training play."""
        if self.evaluate is not None and self.evaluate.seats is not None:
            names = list(self.evaluate.seats)
        else:
            names = [seat.player for row in self.evaluated_rows() for seat in row.seats]
        return [name for name in dict.fromkeys(names) if name in self.players and self.players[name].learns]

    def filmed_row(self) -> tuple[int, list[str]]:
        """Return the number of the first row in which the filmed player plays, and the players on its seats.

        Raises:
          LookupError: there is none.
        """
        assert self.records.films is not None
        for number, row in enumerate(self.distinct_rows()):
            seats = [seat.player for seat in row.seats]
            if self.records.films.player in seats and not row.outside:
                return number, seats
        raise LookupError(self.records.films.player)

    def _own_steps(self) -> dict[str, int]:
        """Return the steps of the players that have a number of their own."""
        return {name: policy.steps for name, policy in self.players.items() if policy.steps is not None}

    def _row(self, match: MatchConfig) -> TableRow:
        seats: dict[bool, list[Seat]] = {False: [], True: []}
        for seat in match.seating():
            seats[self.policies[seat.player].use == EXTERNAL].append(seat)
        return TableRow(
            seats=tuple(seats[False]),
            replicas=match.replicas,
            env=self.environment_of(match.env),
            remapped=match.entities is not None,
            external=tuple(seats[True]),
            external_port=next((self.policies[seat.player].settings["port"] for seat in seats[True]), None),
            learners=self._learners_of(seats[False]),
        )

    def _learners_of(self, seats: Iterable[Seat]) -> dict[str, int]:
        """Return the number of learners of each player on some seats that has any."""
        counts = {seat.player: self.players[seat.player].learners for seat in seats}
        return {player: count for player, count in counts.items() if count}

    def _league_rows(self, league: LeagueSection) -> tuple[TableRow, ...]:
        """Return the matches of each active player."""
        env, sides = self.environment_of(league.env), league.sides(self.seed)
        rows = []
        for player in self.players:
            seats = league.seats(player, sides)
            rows.append(TableRow(seats, league.matches, env, learners=self._learners_of(seats)))
        return tuple(rows)

    def environment_of(self, override: EnvOverride | None) -> EnvConfig:
        """Return the file's environment with a match's changes."""
        return self.env if override is None else override.over(self.env)

    def to_yaml(self) -> str:
        """Return the file with all defaults written out; ``load_config`` reads it back to an equal config."""
        return write(self.model_dump(by_alias=True))
