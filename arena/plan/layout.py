"""Layout: from the table of matches and the nodes of the ranks to one assignment for each rank; pure."""

import math
import operator
from collections import Counter
from collections.abc import Sequence

from arena.common.errors import ConfigError
from arena.common.text import count_of
from arena.common.trees import even_slices
from arena.config.rounds import TableRow
from arena.config.run import RunConfig
from arena.plan.assignment import Assignment, Match, Plan, Role

ROOT = 0


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
