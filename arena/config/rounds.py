"""Rounds of a run, and rows of their tables, as they follow from the file."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from arena.config.environment import OUTSIDE, EnvConfig
from arena.config.table import Seat


class TableRow(NamedTuple):
    """A row of the table, ready for the layout.

    Attributes:
      seats: seats of workers, with their players and entities.
      replicas: number of such matches, as written.
      env: its environment: the file's with the match's changes.
      remapped: whether the match has the key ``entities``, which may omit some.
      external: the external seat, if there is one; it has no worker.
      external_port: port of the external seat.
      learners: number of learners of each of its players that has any.
      limit: largest number of replicas that the cores and ``env.copies`` allow; None for none, or if it is written.
    """

    seats: tuple[Seat, ...]
    replicas: int | Literal["auto", "cores"]
    env: EnvConfig
    remapped: bool = False
    external: tuple[Seat, ...] = ()
    external_port: int | None = None
    learners: Mapping[str, int] = {}
    limit: int | None = None

    @property
    def in_worker(self) -> bool:
        """Whether the rank that has the seats of a match steps the environment itself."""
        return self.env.in_worker

    @property
    def outside(self) -> bool:
        """Whether games, or a guest on a seat, connect over HTTP, so that steps are not in lock-step."""
        return self.env.use == OUTSIDE or bool(self.external)

    @property
    def port(self) -> int | None:
        """Port of external games or seats; None without any."""
        return self.env.settings["port"] if self.env.use == OUTSIDE else self.external_port

    @property
    def all_seats(self) -> tuple[Seat, ...]:
        """Seats of workers, and external ones."""
        return (*self.seats, *self.external)


class Round(NamedTuple):
    """A period in which ranks keep their assignment.

    Attributes:
      index: position in the run.
      steps: transition steps for each learning policy.
      rows: the table.
      copy: {to: from}, weights to copy when it ends and another round follows, ``best`` and ``others`` as
        written.
      own_steps: steps of the policies that have a number of their own.
    """

    index: int  # type: ignore[assignment]  # shadows tuple.index
    steps: int
    rows: tuple[TableRow, ...]
    copy: dict[str, str]
    own_steps: Mapping[str, int] = {}

    def budget(self, player: str) -> int:
        """Return the transition steps that a learning player takes in it."""
        return self.own_steps.get(player, self.steps)


def useful_replicas(copies: int | None, cores: int | None) -> int | None:
    """Return the largest useful number of replicas: of those with equally many copies at most, the smallest."""
    if copies is None or cores is None:
        return copies or cores
    return -(-copies // -(-copies // cores))
