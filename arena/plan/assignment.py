"""Assignment of ranks to roles in one round: matches, roles, groups, and the whole plan."""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Literal, NamedTuple

from arena.common.trees import even_slices
from arena.config.rounds import TableRow
from arena.config.table import Seat

Role = Literal["root", "environment", "gateway", "worker", "runner", "learner", "evaluator", "idle"]


class Match(NamedTuple):
    """One environment and its seats.

    Attributes:
      index: position in ``Plan.matches``.
      row: index of its row of the table.
      replica: index among the row's replicas.
      seats: its seats, one worker each.
      external: the external seat, if there is one; it has no worker.
      copies: number of copies of its environment.
    """

    index: int  # type: ignore[assignment]  # shadows tuple.index
    row: int
    replica: int
    seats: tuple[Seat, ...]
    external: tuple[Seat, ...] = ()
    copies: int = 1

    @property
    def all_seats(self) -> tuple[Seat, ...]:
        """Seats of workers, and external ones."""
        return (*self.seats, *self.external)


class Assignment(NamedTuple):
    """Role of one rank.

    Attributes:
      rank: the MPI rank.
      node: number of the node it runs on.
      role: name of its role.
      match: index of its match; None for the root, learners and idle ranks.
      seat: index of its seat in the match; None unless it is a worker.
      player: the player on that seat, or of the learner; None unless it is a worker or a learner.
      in_worker: whether it steps the environment of its match itself: a worker, or a runner, which has all seats.
    """

    rank: int
    node: int
    role: Role
    match: int | None = None
    seat: int | None = None
    player: str | None = None
    in_worker: bool = False


ENVIRONMENTS = {"environment": "environment process", "gateway": "gateway"}
"""Names of the roles that have a match but no seat: stepping copies of an environment, or serving external games."""


def describe_part(me: Assignment) -> str:
    """Return a rank's role in a few words."""
    if me.role == "learner":
        return f"learner of player {me.player!r}"
    if me.match is None:
        return me.role
    if me.role == "runner":
        return f"runner of match {me.match}: all its seats, with its environment"
    if me.seat is None:
        return f"{ENVIRONMENTS[me.role]} of match {me.match}"
    its = ", with its environment" if me.in_worker else ""
    return f"worker of player {me.player!r} on seat {me.seat} of match {me.match}{its}"


class Plan(NamedTuple):
    """The whole job.

    Attributes:
      assignments: one for each rank, in rank order.
      matches: all matches: row after row of the table, and in a row replica after replica.
      groups: player -> ranks of its workers (frozen players too), in the order of matches and seats. A worker's
        position in it does not depend on the number of nodes, so random streams and checkpoints may use it. A runner is
        listed once for each of the player's seats.
      seating: for each match its ranks: the environment process, then one worker for each seat; or a single one, the
        worker (with several seats: the runner) that steps the environment itself.
      places: player -> (match, seat) of each of its workers, in the order of ``groups``.
      learners: player -> ranks of its learners, for players with learners apart.
    """

    assignments: tuple[Assignment, ...]
    matches: tuple[Match, ...]
    groups: dict[str, tuple[int, ...]]
    seating: tuple[tuple[int, ...], ...]
    places: dict[str, tuple[tuple[int, int], ...]]
    learners: dict[str, tuple[int, ...]]

    def match_ranks(self, match: int) -> tuple[int, tuple[int, ...]]:
        """Return the rank of a match's environment, and those of its workers by seat."""
        environment, *workers = self.seating[match]
        return environment, tuple(workers) or (environment,) * len(self.matches[match].seats)

    def leader(self, player: str) -> int:
        """Return the rank that reports to the root for a player: its first learner, else its first worker."""
        return (self.learners.get(player) or self.groups[player])[0]

    def samplers_of(self, player: str, learner: int) -> range:
        """Return the numbers of the workers that send experience to the player's learner number ``learner``."""
        part = even_slices(len(self.groups[player]), len(self.learners[player]))[learner]
        return range(part.start, part.stop)

    def learner_of(self, player: str, worker: int) -> int:
        """Return the number of the learner that gets the experience of the player's worker number ``worker``."""
        learners = range(len(self.learners[player]))
        return next(learner for learner in learners if worker in self.samplers_of(player, learner))

    def learning(self, players: Collection[str]) -> list[int]:
        """Return the ranks that compute gradients, if these players learn."""
        return [
            assignment.rank
            for assignment in self.assignments
            if assignment.player in players and (assignment.role == "learner" or assignment.player not in self.learners)
        ]

    @property
    def evaluator(self) -> int | None:
        """The rank that evaluates players while they train, if there is one."""
        return next((each.rank for each in self.assignments if each.role == "evaluator"), None)

    @property
    def idle(self) -> tuple[int, ...]:
        """Ranks without a role."""
        return tuple(assignment.rank for assignment in self.assignments if assignment.role == "idle")


def row_of(match: Match, rows: Sequence[TableRow]) -> TableRow:
    """Return the row of the table for one match: its environment has the copies of this replica only."""
    row = rows[match.row]
    return row._replace(env=row.env.with_num_envs(match.copies))


def shares_of_matches(matches: Sequence[Match]) -> dict[tuple[str, int], float]:
    """Return the number of a player's transition steps in the run for each one that it takes in one of its matches.

    That is the ratio of its entities in all matches, since workers of a group keep pace.

    Args:
      matches: matches of the round.

    Returns:
      (player, match) -> the factor.
    """
    lanes: Counter[tuple[str, int]] = Counter()
    totals: Counter[str] = Counter()
    for match in matches:
        for seat in match.seats:
            own = match.copies * len(seat.entities)
            lanes[seat.player, match.index] += own
            totals[seat.player] += own
    return {(player, match): totals[player] / part for (player, match), part in lanes.items()}


def lanes_of_group(plan_: Plan, player: str) -> tuple[int, int]:
    """Return the lanes of all workers of a player together, and the largest number of them in one copy."""
    seats = [(plan_.matches[match], plan_.matches[match].seats[seat]) for match, seat in plan_.places[player]]
    lanes = sum(match.copies * len(seat.entities) for match, seat in seats)
    return lanes, max(len(seat.entities) for _, seat in seats)


def port_number(plan_: Plan, rows: Sequence[TableRow], match: int) -> int:
    """Return how many earlier matches have external games on the same node and port."""

    def door(index: int) -> tuple[int, int | None]:
        row = rows[plan_.matches[index].row]
        node = plan_.assignments[plan_.match_ranks(index)[0]].node
        return node, row.port

    return sum(door(other) == door(match) for other in range(match) if rows[plan_.matches[other].row].outside)
