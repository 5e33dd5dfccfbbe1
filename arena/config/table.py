"""The table in the configuration file: its matches, listed, abbreviated, or in rounds."""

import itertools
from collections.abc import Sequence
from typing import Annotated, NamedTuple, Protocol

from pydantic import AfterValidator, BeforeValidator, Field, field_serializer, field_validator, model_validator

from arena.common.validation import Count, Index, Model, Place, Problem, Replicas, refusal
from arena.config.environment import EnvOverride
from arena.config.sections import not_empty

SeatNames = Annotated[tuple[str, ...], BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)]


class Seat(NamedTuple):
    """A seat of a match.

    Attributes:
      player: name of the player on the seat.
      entities: indices of the entities that its one worker plays, in the worker's order.
    """

    player: str
    entities: tuple[int, ...]


class MatchConfig(Model):
    """A line of the table: the players of a match by seat."""

    seats: Annotated[tuple[SeatNames, ...], AfterValidator(not_empty)] = Field(
        description="The policy on each seat. A nested list [blue, blue] is one worker that plays several entities.",
        json_schema_extra={"items": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}},
    )
    replicas: Replicas = Field(
        1,
        description="Number of such matches at the same time. auto: as many as the ranks allow. cores: as many as the "
        "job has cores, less those of learners and of matches with a number, as far as the ranks allow.",
    )
    entities: tuple[Index, ...] | None = Field(
        None,
        description="Index of the entity that each listed name plays; null: 0, 1, 2, ... in the order of the seats.",
    )
    env: EnvOverride | None = Field(
        None,
        description="Changes of the file's env for this match. settings are merged key by key, other keys are"
        " replaced. Another use drops the file's settings and wrappers.",
    )

    @model_validator(mode="after")
    def _consistent(self) -> "MatchConfig":
        wrong = []
        for number, names in enumerate(self.seats):
            if len(set(names)) != 1:
                names_found = ", ".join(dict.fromkeys(names)) or "none"
                wrong.append(
                    Problem(
                        ("seats", number),
                        f"one worker plays one policy: expected one name, or one several times, found {names_found}",
                    )
                )
        listed = sum(map(len, self.seats))
        if self.entities is not None:
            if len(self.entities) != listed:
                text = f"expected {listed} indices, one for each name in seats, found {len(self.entities)}"
                wrong.append(Problem(("entities",), text))
            twice = sorted({index for index in self.entities if self.entities.count(index) > 1})
            if twice:
                wrong.append(Problem(("entities",), f"expected each entity once, found {twice[0]} twice"))
        if wrong:
            raise refusal(wrong)
        return self

    @field_serializer("seats")
    def _as_written(self, seats: tuple[tuple[str, ...], ...]) -> list[str | list[str]]:
        return [names[0] if len(names) == 1 else list(names) for names in seats]

    def seating(self) -> tuple[Seat, ...]:
        """Return the seats with their entities."""
        entities = iter(self.entities if self.entities is not None else range(sum(map(len, self.seats))))
        return tuple(Seat(names[0], tuple(itertools.islice(entities, len(names)))) for names in self.seats)


class RoundRobinConfig(Model):
    """All pairs of the listed policies."""

    policies: tuple[str, ...] = Field(description="Names of two or more policies; each pair of them makes a match.")
    team_size: Count = Field(
        1, description="Number of seats on each side; the first policy of a pair takes the first seats."
    )
    replicas: Replicas = Field(
        1,
        description="Number of matches of each pair at the same time. auto: as many as the ranks allow. cores: all "
        "pairs together as many as the job has cores, less those of learners, as far as the ranks allow.",
    )
    env: EnvOverride | None = Field(None, description="Changes of the file's env for these matches.")

    @field_validator("policies")
    @classmethod
    def _distinct(cls, policies: tuple[str, ...]) -> tuple[str, ...]:
        if len(policies) < 2 or len(set(policies)) < len(policies):
            raise ValueError(f"expected two or more different policies, found {', '.join(policies) or 'none'}")
        return policies

    def expand(self) -> tuple[MatchConfig, ...]:
        """Return one match for each pair, in the order of the list."""
        return tuple(
            MatchConfig(
                seats=((first,),) * self.team_size + ((second,),) * self.team_size, replicas=self.replicas, env=self.env
            )
            for first, second in itertools.combinations(self.policies, 2)
        )


class Table(Protocol):
    """The matches of a table, listed or abbreviated."""

    @property
    def matches(self) -> tuple[MatchConfig, ...] | None:
        """The matches one by one."""

    @property
    def round_robin(self) -> RoundRobinConfig | None:
        """The policies that all play each other."""


def listed(table: Table) -> list[tuple[MatchConfig, Place]]:
    """Return the matches of a table, each with the place to which problems with its environment belong."""
    if table.matches is not None:
        return [(match, ("matches", number)) for number, match in enumerate(table.matches)]
    if table.round_robin is not None:
        return [(match, ("round_robin",)) for match in table.round_robin.expand()]
    return []


def named(table: Table) -> list[tuple[str, Place]]:
    """Return every policy that a table names, and its place."""
    if table.matches is None and table.round_robin is not None:
        names: Sequence[str] = table.round_robin.policies
        return [(name, ("round_robin", "policies", number)) for number, name in enumerate(names)]
    return [
        (name, (*place, "seats", seat, *((number,) if len(names) > 1 else ())))
        for match, place in listed(table)
        for seat, names in enumerate(match.seats)
        for number, name in enumerate(names)
    ]


def exactly_one(model: Model, keys: Sequence[str]) -> list[Problem]:
    """Return a problem unless exactly one of the keys is given."""
    present = [key for key in keys if getattr(model, key) is not None]
    if len(present) == 1:
        return []
    return [Problem((), f"expected exactly one of {', '.join(keys)}, found {' and '.join(present) or 'none'}")]


Matches = Annotated[tuple[MatchConfig, ...], AfterValidator(not_empty)]


class RoundConfig(Model):
    """A period in which ranks keep their assignment."""

    matches: Matches | None = Field(None, description="The table of this round.")
    round_robin: RoundRobinConfig | None = Field(None, description="A round robin instead of matches, as in the file.")

    steps: Count | None = Field(
        None, description="Transition steps of each learning policy in this round; null: the number of the file."
    )
    copy_weights: dict[str, str] = Field(
        {},
        alias="copy",
        description="A mapping {to: from}: weights that are copied when the round ends and another round "
        "follows. from may be best (the learning policy with the highest mean return in this "
        "round), to may be others (all other learning policies).",
    )
    repeat: Count = Field(1, description="Number of such rounds, one after the other.")

    @model_validator(mode="after")
    def _has_a_table(self) -> "RoundConfig":
        wrong = exactly_one(self, ("matches", "round_robin"))
        if wrong:
            raise refusal(wrong)
        return self
