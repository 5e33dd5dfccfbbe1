"""The configuration file as a whole: a validated, frozen model, and the rounds that it asks for."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator

from arena.common import registry
from arena.common.errors import ConfigError
from arena.common.text import did_you_mean
from arena.common.validation import Count, CountOrAuto, Index, Model, Place, Problem, problems, refusal
from arena.config.league import LeagueSection
from arena.config.sections import (
    BEST,
    EXTERNAL,
    OTHERS,
    OUTSIDE,
    CheckpointConfig,
    EnvConfig,
    EnvOverride,
    PolicyConfig,
    RecordsConfig,
    WaitConfig,
    WrapperConfig,
    device_name,
    file_name,
    not_empty,
    player_name,
)
from arena.config.table import (
    MatchConfig,
    Matches,
    RoundConfig,
    RoundRobinConfig,
    Seat,
    Table,
    exactly_one,
    listed,
    named,
)
from arena.config.yaml_source import Source, read, write

__all__ = [
    "CheckpointConfig",
    "EnvConfig",
    "EnvOverride",
    "LeagueSection",
    "MatchConfig",
    "PolicyConfig",
    "RecordsConfig",
    "Round",
    "RoundConfig",
    "RoundRobinConfig",
    "RunConfig",
    "TableRow",
    "WaitConfig",
    "WrapperConfig",
    "load_config",
]

MANY = 2**31  # more workers than any job has: what ``auto`` may become

TABLES = ("matches", "round_robin", "rounds", "league")  # the kinds of table: a file has exactly one of these keys


class TableRow(NamedTuple):
    """A row of the table, ready for the layout.

    Attributes:
      seats: who sits where and plays which entities.
      replicas: how many such matches.
      env: its environment: what the match changes put over the file's.
      remapped: whether the match says which entities are played; it may then leave some out.
      external: the seat whose actions come over HTTP, if there is one: no worker sits there.
      external_port: where they come to.
      learners: how many learners each of its players has that has any.
    """

    seats: tuple[Seat, ...]
    replicas: int | Literal["auto"]
    env: EnvConfig
    remapped: bool = False
    external: tuple[Seat, ...] = ()
    external_port: int | None = None
    learners: Mapping[str, int] = {}

    @property
    def in_worker(self) -> bool:
        """Whether the rank that has the seats of a match steps the environment itself."""
        return self.env.in_worker

    @property
    def outside(self) -> bool:
        """Whether games, or a guest who plays them, come over HTTP, so that nothing is stepped in turn."""
        return self.env.use == OUTSIDE or bool(self.external)

    @property
    def port(self) -> int | None:
        """Where games outside come to; None where there are none."""
        return self.env.settings["port"] if self.env.use == OUTSIDE else self.external_port

    @property
    def all_seats(self) -> tuple[Seat, ...]:
        """Who plays: on the seats of workers, and outside."""
        return (*self.seats, *self.external)


class Round(NamedTuple):
    """A period in which ranks keep their assignment.

    Attributes:
      index: position in the run.
      steps: transition steps for each learning policy.
      rows: the table.
      copy: {to: from}, weights to copy when it ends and another round follows, ``best`` and ``others`` as
        written.
      own_steps: of the policies that have a number of their own.
    """

    index: int  # type: ignore[assignment]  # tuple.index is of no use here
    steps: int
    rows: tuple[TableRow, ...]
    copy: dict[str, str]
    own_steps: Mapping[str, int] = {}

    def budget(self, player: str) -> int:
        """Return the transition steps that a learning player takes in it."""
        return self.own_steps.get(player, self.steps)


class RunConfig(Model):
    """The whole file."""

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

    @model_validator(mode="after")
    def _consistent(self) -> "RunConfig":
        wrong = exactly_one(self, TABLES)
        for each, place in self._rounds():
            wrong += self._unknown_names(each, place)
            wrong += self._check_playable(each, place)
            wrong += self._check_copies(each, (*place, "copy"))
        if wrong:
            raise refusal(wrong)
        if self.league is not None:
            self.league.check(self.seed, self.policies)
            wrong = self._check_override(self.league.env, ("league",))
            sides = self.league.sides(self.seed)
            for player in self.players:
                seats = [seat.player for seat in self.league.seats(player, sides)]
                if len(seats) > 1 and self._env(self.league.env).in_worker:
                    text = f"expected false in a league whose matches have {len(seats)} seats, found true"
                    wrong = wrong or [Problem(("env", "in_worker"), text)]
        wrong += [problem for round_ in self.round_list() for problem in self._check_learners(round_)]
        wrong += self._check_warm_up()
        if self.deterministic:
            wrong += self._check_deterministic()
        if self.spares and self.fault_tolerance == "none":
            text = "expected fault_tolerance: ulfm, without which nobody takes a dead rank's place, found none"
            wrong.append(Problem(("spares",), text, self.spares))
        if wrong:
            raise refusal(wrong)
        return self

    def _check_warm_up(self) -> list[Problem]:
        """Say which policies would still fill their replay when their budget is spent."""
        wrong = []
        for round_ in self.round_list():
            for player in {seat.player for row in round_.rows for seat in row.seats} & self.policies.keys():
                policy = self.policies[player]
                model = registry.policy_settings_model(policy.use) if policy.learns else None
                warmup = 0 if model is None else getattr(model(**policy.settings), "warmup", 0)
                budget = round_.budget(player)
                if warmup >= budget:
                    text = f"expected less than the budget of {budget:,} steps, or nothing is learned; found"
                    wrong.append(Problem(("policies", player, "settings", "warmup"), f"{text} {warmup:,}", warmup))
        return wrong

    def _check_deterministic(self) -> list[Problem]:
        """Say what cannot be made a function of counts."""
        if self.fault_tolerance != "none":
            text = f"expected none in a deterministic run, which no death may change, found {self.fault_tolerance}"
            return [Problem(("fault_tolerance",), text, self.fault_tolerance)]
        if self.checkpoint.replay is False:
            text = "expected auto or true in a deterministic run, which resumes from every checkpoint, found false"
            return [Problem(("checkpoint", "replay"), text, False)]
        if self.league is not None:
            text = "expected a table of matches, found a league, which goes by what it hears first"
            return [Problem(("deterministic",), text, self.deterministic)]
        environments: list[tuple[EnvConfig | EnvOverride | None, Place]] = [(self.env, ())]
        environments += [
            (match.env, (*place, *where)) for each, place in self._rounds() for match, where in listed(each)
        ]
        if any(row.outside for round_ in self.round_list() for row in round_.rows):
            text = "expected false with games outside, which come when they come, found true"
            return [Problem(("deterministic",), text, self.deterministic)]
        timed = [
            Problem((*place, "env", "wait_timeout"), "expected none in a deterministic run, which has no clock")
            for env, place in environments
            if env is not None and env.wait_timeout is not None
        ]
        return timed + [
            Problem(
                (*place, *where),
                "expected a policy that learns in every match of a deterministic run, since its updates say how long "
                "the match lasts, found none; leave the match to arena eval",
            )
            for each, place in self._rounds()
            for match, where in listed(each)
            if not any(self.policies[name].learns for names in match.seats for name in names)
        ]

    @cached_property
    def players(self) -> dict[str, PolicyConfig]:
        """The policy of every player that may learn: of each policy's own in a table, of a league's active ones."""
        return self.policies if self.league is None else self.league.players(self.seed, self.policies)

    def _rounds(self) -> list[tuple[RoundConfig, Place]]:
        """Return the tables as they are written, and where; a file without rounds has one, a league none."""
        if self.league is not None:
            return []
        if self.rounds is not None:
            return [(each, ("rounds", number)) for number, each in enumerate(self.rounds)]
        return [(RoundConfig.model_construct(matches=self.matches, round_robin=self.round_robin), ())]

    def _unknown_names(self, table: Table, place: Place) -> list[Problem]:
        return [
            Problem(
                (*place, *where),
                f"there is no policy {name!r} in policies; {did_you_mean(name, list(self.policies))}",
                name,
            )
            for name, where in named(table)
            if name not in self.policies
        ]

    def _check_playable(self, table: Table, place: Place) -> list[Problem]:
        """Check each match's environment once what it changes is put over the file's."""
        wrong: dict[Problem, None] = {}
        for match, where in listed(table):
            found = self._check_override(match.env, (*place, *where)) or self._check_external_seat(
                match, (*place, *where)
            )
            players = [names[0] for names in match.seats]
            wrong.update(dict.fromkeys(found or self._check_in_worker(match.env, players, (*place, *where))))
        return list(wrong)

    def _check_external_seat(self, match: MatchConfig, place: Place) -> list[Problem]:
        """Say where a seat that is taken over HTTP cannot be."""
        external = [name for names in match.seats for name in names[:1] if self._is_external(name)]
        if not external:
            return []
        env = self._env(match.env)
        wrong = []
        if len(external) > 1:
            wrong.append(Problem((*place, "seats"), f"expected at most one external seat, found {len(external)}"))
        elif len(match.seats) == 1:
            wrong.append(
                Problem((*place, "seats"), f"expected a seat beside the external one ({external[0]}), found none")
            )
        if env.use == OUTSIDE:
            text = f"expected none in a game outside, where the game itself asks for actions, found {external[0]}"
            wrong.append(Problem((*place, "seats"), text))
        for name, usual in (("in_worker", False), ("manager", "serial"), ("autoreset", "next_step")):
            if getattr(env, name) != usual:
                text = f"expected {str(usual).lower()} beside an external seat, found {getattr(env, name)}"
                wrong.append(Problem(("env", name), text))
        return wrong

    def _is_external(self, name: str) -> bool:
        return name in self.policies and self.policies[name].use == EXTERNAL

    def _check_in_worker(self, env: EnvOverride | None, players: Sequence[str], place: Place) -> list[Problem]:
        """Say where a match has no single rank to step its environment: a worker, or a runner, which only acts."""
        if len(players) == 1 or not self._env(env).in_worker:
            return []
        known = {name: self.players[name] for name in players if name in self.players}
        alone = [name for name, policy in known.items() if policy.learns and not policy.learners]
        drawn = [name for name, one in known.items() if one.frozen and one.use != "random" and one.warm_start is None]
        if drawn and not alone:
            text = "expected the weights that it plays with in a match whose seats share a rank, found none"
            return [Problem(("policies", name, "warm_start"), text) for name in drawn]
        if not alone:
            return []
        inside = (*place, "env", "in_worker") if env is not None and env.in_worker else ("env", "in_worker")
        text = (
            "expected matches of one seat, or learners for each policy that learns, found a match of "
            f"{len(players)} seats and no learners for {', '.join(alone)}"
        )
        return [Problem(inside, text)]

    def _check_learners(self, round_: Round) -> list[Problem]:
        """Say which policies have learners that nothing would come to."""
        wrong = []
        workers: Counter[str] = Counter()
        for row in round_.rows:
            for seat in row.seats:
                workers[seat.player] += row.replicas if row.replicas != "auto" else MANY
                if row.outside and seat.player in row.learners:
                    text = "expected 0 in matches with games outside, which go at their own pace, found"
                    found = row.learners[seat.player]
                    wrong.append(Problem(("policies", seat.player, "learners"), f"{text} {found}", found))
        for player, learners in {name: n for row in round_.rows for name, n in row.learners.items()}.items():
            if learners > workers[player]:
                text = f"expected at most one for each of the policy's {workers[player]} workers, found {learners}"
                wrong.append(Problem(("policies", player, "learners"), text, learners))
        return wrong

    def _check_override(self, env: EnvOverride | None, place: Place) -> list[Problem]:
        try:
            if env is not None:
                env.over(self.env)
        except ValidationError as error:
            return [Problem((*place, "env", *found.place), found.text) for found in problems(error, EnvConfig)]
        return []

    def _check_copies(self, each: RoundConfig, place: Place) -> list[Problem]:
        wrong = []
        seated = {name: self.policies[name] for name, _ in named(each) if name in self.policies}
        learning = {name: policy.use for name, policy in seated.items() if policy.learns}
        for to, source in each.copy_weights.items():
            for name, word in ((to, OTHERS), (source, BEST)):
                if name != word and name not in self.policies:
                    text = f"there is no policy {name!r} in policies; {did_you_mean(name, [*self.policies, word])}"
                    wrong.append(Problem((*place, to), text))
            if to == source:
                wrong.append(Problem((*place, to), f"expected two different policies, found {to!r} twice"))
            kinds = {name: self.policies[name].use for name in (to, source) if name in self.policies}
            if to == OTHERS or source == BEST:
                kinds |= learning
            if len(set(kinds.values())) > 1:
                told = ", ".join(f"{name} ({use})" for name, use in kinds.items())
                wrong.append(Problem((*place, to), f"weights fit policies of the same kind only, found {told}"))
        return wrong

    def round_list(self) -> tuple[Round, ...]:
        """Return the rounds in the order they are played; a file without ``rounds`` has one."""
        if self.league is not None:
            return (Round(0, self.steps, self._league_rows(self.league), {}, self._own_steps()),)
        rounds: list[Round] = []
        for each, _ in self._rounds():
            rows = tuple(self._row(match) for match, _ in listed(each))
            own = self._own_steps() if each.steps is None else {}
            for _ in range(each.repeat):
                rounds.append(Round(len(rounds), each.steps or self.steps, rows, dict(each.copy_weights), own))
        return tuple(rounds)

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
            env=self._env(match.env),
            remapped=match.entities is not None,
            external=tuple(seats[True]),
            external_port=next((self.policies[seat.player].settings["port"] for seat in seats[True]), None),
            learners=self._learners_of(seats[False]),
        )

    def _learners_of(self, seats: Iterable[Seat]) -> dict[str, int]:
        """Return how many learners the players on some seats have, of those that have any."""
        found = {seat.player: self.players[seat.player].learners for seat in seats}
        return {player: count for player, count in found.items() if count}

    def _league_rows(self, league: LeagueSection) -> tuple[TableRow, ...]:
        """Return the matches of each active player."""
        env, sides = self._env(league.env), league.sides(self.seed)
        found = []
        for player in self.players:
            seats = league.seats(player, sides)
            found.append(TableRow(seats, league.matches, env, learners=self._learners_of(seats)))
        return tuple(found)

    def _env(self, override: EnvOverride | None) -> EnvConfig:
        return self.env if override is None else override.over(self.env)

    def to_yaml(self) -> str:
        """Return the file with all defaults written out; :func:`load_config` reads it back to an equal config."""
        return write(self.model_dump(by_alias=True))


def load_config(path: Path, overrides: Sequence[str] = ()) -> RunConfig:
    """Read a configuration file.

    Args:
      path: the file.
      overrides: ``key.key=value`` items that replace what the file says; values are YAML, list items go by index.

    Raises:
      ConfigError: all that is wrong with the file, one line each: where, what was expected and what was found.
    """
    source = read(Path(path), overrides, named=["policies"])
    context = {"folder": Path(path).resolve().parent}
    try:
        return RunConfig.model_validate(source.data, context=context)
    except ValidationError as error:
        wrong = problems(error, RunConfig)
    wrong += _hidden(source.data, wrong, context)
    wrong.sort(key=lambda problem: source.order(problem.place))
    raise ConfigError("\n".join(dict.fromkeys(_line(source, problem) for problem in wrong)))


def _line(source: Source, problem: Problem) -> str:
    """Return a problem as ``file.yaml:12: a.b.c: what is wrong``."""
    origin, key = source.where(problem.place), ".".join(map(str, problem.place))
    return f"{origin}: {problem.text}" if not key or origin == f"--set {key}" else f"{origin}: {key}: {problem.text}"


def _hidden(data: dict[str, Any], wrong: Sequence[Problem], context: dict[str, Any]) -> list[Problem]:
    """Return what only shows once the problems ``wrong`` are out of the way, so that one start names everything.

    What a section says wrongly is left to its default and the file is checked again. Where that would make up new
    problems (a list item or a whole section would be missing) the first ones stand alone.
    """
    data = deepcopy(data)
    places = {problem.place for problem in wrong}
    for place in places:
        section = _at(data, place[:-1])
        if len(place) < 2 or place[:-1] == ("policies",) or not isinstance(section, dict):
            return []
        section.pop(place[-1], None)
    try:
        RunConfig.model_validate(data, context=context)
    except ValidationError as error:
        return [
            problem
            for problem in problems(error, RunConfig)
            if _at(data, problem.place) is not None  # else it is missing because it was left out just now
            and not any(place[: len(problem.place)] == problem.place for place in places)
        ]
    return []


def _at(data: Any, place: Place) -> Any:
    """Return what is at a place, None if nothing is."""
    for part in place:
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            return None
    return data
