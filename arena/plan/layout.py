"""Layout: from the table of matches and the nodes of the ranks to one assignment for each rank; pure."""

import math
import operator
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Literal, NamedTuple

from arena.common.errors import ConfigError
from arena.common.text import count_of
from arena.common.trees import even_slices
from arena.config.rounds import TableRow
from arena.config.run import RunConfig
from arena.config.table import Seat

Role = Literal["root", "environment", "gateway", "worker", "runner", "learner", "evaluator", "idle"]
ROOT = 0


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


def ranks_needed(rows: Sequence[TableRow]) -> int:
    """Return the smallest number of ranks for the table; ``auto`` and ``cores`` count as one replica."""
    return 1 + sum(_wanted(rows).values()) + sum(_least(row) * ranks_of_match(row) for row in rows)


def ranks_for_cores(rows: Sequence[TableRow]) -> int:
    """Return the number of ranks that the table can use; ``auto`` counts as one replica, ``cores`` as its limit."""
    more = ((row.limit or 1) - 1 for row in rows if row.replicas == "cores")
    sizes = (ranks_of_match(row) for row in rows if row.replicas == "cores")
    return ranks_needed(rows) + sum(map(operator.mul, more, sizes))


def _wanted(rows: Sequence[TableRow]) -> dict[str, int]:
    """Return the configured number of learners of each player that has any."""
    return {player: count for row in rows for player, count in row.learners.items()}


def _learners(rows: Sequence[TableRow], replicas: Sequence[int]) -> dict[str, int]:
    """Return the number of learners of each player: as configured, at most one for each worker."""
    configured = _wanted(rows)
    workers: Counter[str] = Counter()
    if configured:
        for row, times in zip(rows, replicas, strict=True):
            for seat in row.seats:
                workers[seat.player] += times
    return {player: min(count, workers[player]) for player, count in configured.items() if workers[player]}


def ranks_of_run(config: RunConfig) -> int:
    """Return the smallest number of ranks for every round, including spare ones and that of an evaluator."""
    return max(ranks_needed(each.rows) for each in config.round_list()) + config.spares + config.evaluators


def ranks_to_start(config: RunConfig, available: int | None = None) -> int:
    """Return the number of ranks to start if none is given: with ``replicas: cores``, as many as use the cores.

    Args:
      config: the configuration, with the number of cores (``on_cores``).
      available: number of ranks that the batch job has; None for no limit.
    """
    useful = max(ranks_for_cores(each.rows) for each in config.round_list()) + config.spares + config.evaluators
    return useful if available is None else max(min(useful, available), ranks_of_run(config))


def reduced(rows: Sequence[TableRow], ranks: int) -> list[int]:
    """Return how many replicas of each row fit into ``ranks``: the most numerous row is reduced first.

    Returns:
      The replicas of each row, 0 for dropped rows: the last ones, if each has one replica left.
    """
    replicas = [_least(row) for row in rows]
    sizes = [ranks_of_match(row) for row in rows]
    while any(replicas):
        learners = sum(_learners(rows, replicas).values())
        if 1 + learners + sum(map(operator.mul, replicas, sizes)) <= ranks:
            break
        most = max(range(len(rows)), key=lambda number: (replicas[number], number))
        replicas[most] -= 1
    return replicas


def plan(
    rows: Sequence[TableRow],
    node_of_rank: Sequence[int],
    spares: int = 0,
    replicas: Sequence[int] | None = None,
    evaluators: int = 0,
) -> Plan:
    """Assign every rank.

    Rank 0 is the root. A match stays within a node if one has room for it: larger matches choose first, each takes the
    first node that fits; those that fit nowhere come last and span nodes in order.

    Args:
      rows: rows of the table.
      node_of_rank: node number of each rank, from 0; the ranks of a node need not be neighbours.
      spares: number of ranks that stay idle although ``auto`` could use them.
      replicas: replicas of each row, if they differ from the configured ones (``reduced``).
      evaluators: number of ranks that evaluate players, the last ones without another role; fewer with ``replicas``,
        if too few ranks are left.

    Raises:
      ConfigError: there are too few ranks; the message states the required number.
    """
    if replicas is None:
        replicas = _affordable(rows, len(node_of_rank), spares, evaluators)
    matches = _repeated(rows, replicas)
    places: dict[str, list[tuple[int, int]]] = {}
    for match in matches:
        for number, seat in enumerate(match.seats):
            places.setdefault(seat.player, []).append((match.index, number))
    attached = _attached(places, _learners(rows, replicas))
    sizes = [ranks_of_match(rows[match.row]) for match in matches]
    rooms = _seat([size + len(attached.get(match, ())) for match, size in enumerate(sizes)], node_of_rank)
    assignments = [Assignment(rank, node, "idle") for rank, node in enumerate(node_of_rank)]
    assignments[ROOT] = Assignment(ROOT, node_of_rank[ROOT], "root")
    groups: dict[str, list[int]] = {}
    learners: dict[str, dict[int, int]] = {}
    for match, size, room in zip(matches, sizes, rooms, strict=True):
        environment, *workers = room[:size]
        if workers:
            role: Role = "gateway" if rows[match.row].outside else "environment"
            assignments[environment] = Assignment(environment, node_of_rank[environment], role, match.index)
        elif len(match.seats) > 1:
            node = node_of_rank[environment]
            assignments[environment] = Assignment(environment, node, "runner", match.index, in_worker=True)
        for number, seat in enumerate(match.seats):
            rank = workers[number] if workers else environment
            node, inside = node_of_rank[rank], not workers
            if assignments[rank].role != "runner":
                assignments[rank] = Assignment(rank, node, "worker", match.index, number, seat.player, inside)
            groups.setdefault(seat.player, []).append(rank)
        for rank, (player, number) in zip(room[size:], attached.get(match.index, ()), strict=True):
            assignments[rank] = Assignment(rank, node_of_rank[rank], "learner", player=player)
            learners.setdefault(player, {})[number] = rank
    left = [each.rank for each in assignments if each.role == "idle"]
    for rank in left[len(left) - evaluators :] if evaluators else ():
        assignments[rank] = Assignment(rank, node_of_rank[rank], "evaluator")
    return Plan(
        assignments=tuple(assignments),
        matches=tuple(matches),
        groups={player: tuple(ranks) for player, ranks in groups.items()},
        seating=tuple(room[:size] for size, room in zip(sizes, rooms, strict=True)),
        places={player: tuple(where) for player, where in places.items()},
        learners={player: tuple(ranks[number] for number in sorted(ranks)) for player, ranks in learners.items()},
    )


def _attached(places: dict[str, list[tuple[int, int]]], learners: dict[str, int]) -> dict[int, list[tuple[str, int]]]:
    """Return the learners (player, number) that take ranks along with each match: that of their first worker.

    A learner serves workers that are neighbours in the plan, and these are on one node as a rule.
    """
    attached: dict[int, list[tuple[str, int]]] = {}
    for player, count in learners.items():
        for number, part in enumerate(even_slices(len(places[player]), count)):
            match, _ = places[player][part.start]
            attached.setdefault(match, []).append((player, number))
    return attached


def ranks_of_match(row: TableRow) -> int:
    """Return the number of ranks of a match of a row, without learners."""
    return 1 if row.in_worker else len(row.seats) + 1


def _least(row: TableRow) -> int:
    return row.replicas if isinstance(row.replicas, int) else 1


def _affordable(rows: Sequence[TableRow], ranks: int, spares: int, evaluators: int) -> list[int]:
    """Return the replicas of each row that fit into a number of ranks.

    Raises:
      ConfigError: there are too few ranks.
    """
    needed = ranks_needed(rows) + spares + evaluators
    if ranks < needed:
        environments = sum(_least(row) for row in rows if not row.in_worker and not row.outside)
        gateways = sum(_least(row) for row in rows if row.outside)
        inside = sum(_least(row) for row in rows if row.in_worker and len(row.seats) > 1)
        learners = sum(_wanted(rows).values())
        workers = needed - 1 - environments - gateways - inside - learners - spares - evaluators
        parts = [
            "1 root",
            *([count_of(environments, "environment process", "environment processes")] if environments else []),
            *([count_of(gateways, "gateway")] if gateways else []),
            *([count_of(inside, "runner")] if inside else []),
            *([count_of(workers, "worker")] if workers or not inside else []),
            *([count_of(learners, "learner")] if learners else []),
            *([count_of(evaluators, "evaluator")] if evaluators else []),
            *([count_of(spares, "spare")] if spares else []),
        ]
        raise ConfigError(
            f"this table needs {count_of(needed, 'rank')} ({' + '.join(parts)}), found {ranks:,}; "
            f"start it with mpirun -n {needed}"
        )
    return _replicas(rows, ranks - needed)


def _repeated(rows: Sequence[TableRow], replicas: Sequence[int]) -> list[Match]:
    matches: list[Match] = []
    for number, (row, times) in enumerate(zip(rows, replicas, strict=True)):
        matches += [
            Match(len(matches) + replica, number, replica, row.seats, row.external, copies)
            for replica, copies in enumerate(row.env.divided(times) if times else ())
        ]
    return matches


def _replicas(rows: Sequence[TableRow], spare: int) -> list[int]:
    """Return the replicas of each row: those with ``auto`` or ``cores`` take turns at the ``spare`` ranks.

    The turns end when no match fits, or all rows have as many as their limits allow.
    """
    replicas = [_least(row) for row in rows]
    sizes = [ranks_of_match(row) for row in rows]

    def missing(number: int) -> float:
        limit = rows[number].limit
        return math.inf if limit is None else limit - replicas[number]

    growing = [number for number, row in enumerate(rows) if not isinstance(row.replicas, int) and missing(number) > 0]
    while growing:
        full_turns = min(spare // sum(sizes[number] for number in growing), *map(missing, growing))
        for number in growing:
            replicas[number] += int(full_turns)
            spare -= int(full_turns) * sizes[number]
        for number in growing:
            fits = sizes[number] <= spare and missing(number) > 0
            replicas[number] += fits
            spare -= fits * sizes[number]
        growing = [number for number in growing if sizes[number] <= spare and missing(number) > 0]
    return replicas


def _seat(sizes: Sequence[int], node_of_rank: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the ranks of each match, given the number that each needs."""
    free: dict[int, list[int]] = {node: [] for node in sorted(set(node_of_rank))}
    for rank in reversed(range(ROOT + 1, len(node_of_rank))):
        free[node_of_rank[rank]].append(rank)  # lowest rank last, so that pop() returns it first
    nodes = list(free.values())
    seating: list[tuple[int, ...]] = [()] * len(sizes)
    spanning: list[int] = []
    size, node = 0, 0
    for match in sorted(range(len(sizes)), key=lambda match: -sizes[match]):
        if sizes[match] != size:
            size, node = sizes[match], 0
        # Rooms only shrink: a node that was too small for this size stays so, and is not tried again.
        while node < len(nodes) and len(nodes[node]) < size:
            node += 1
        if node < len(nodes):
            seating[match] = tuple(nodes[node].pop() for _ in range(size))
        else:
            spanning.append(match)
    left = (ranks.pop() for ranks in nodes for _ in range(len(ranks)))
    for match in sorted(spanning):
        seating[match] = tuple(next(left) for _ in range(sizes[match]))
    return seating
