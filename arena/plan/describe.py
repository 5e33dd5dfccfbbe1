"""A plan as text: the output of ``--dry-run``."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby

from arena.common.text import count_of, ranges
from arena.config.rounds import Round
from arena.config.run import RunConfig
from arena.config.table import Seat
from arena.plan.assignment import Assignment, Match, Plan
from arena.plan.memory import MemoryNeeds

MOST_RANKS = 40  # for more, the description has a line for each row of the table and node, not for each rank
MOST_LINES = 60  # of any table
MOST_NODES = 8  # largest number of nodes that are listed by name


def describe(
    plan: Plan,
    config: RunConfig,
    round_: Round,
    node_names: Sequence[str] | None = None,
    needs: MemoryNeeds | None = None,
) -> str:
    """Return a plan as text: roles of ranks, groups, and an estimate of the memory.

    Args:
      plan: the plan.
      config: the configuration of the run.
      round_: the round of the plan.
      node_names: name of each node by its number; by default ``node 0``, ...
      needs: memory of copies, rollouts and replays; None counts processes only.
    """
    nodes = _Nodes(plan, node_names)
    folded = len(plan.assignments) > MOST_RANKS
    table = _folded(plan, round_, nodes) if folded else _rank_by_rank(plan, round_, nodes)
    lines = [_title(config, round_), "", *_columns(table), "", summary(plan), *_groups(plan, config)]
    if plan.idle:
        least = min(map(len, plan.seating))
        lines.append(f"idle: {nodes.ranks(plan.idle)}; the smallest match takes {count_of(least, 'rank')}")
    return "\n".join([*lines, _memory(plan, nodes, needs or MemoryNeeds({}, {}, {})), ""])


def summary(plan: Plan) -> str:
    """Return the plan in a line: the number of ranks of each role, and of matches."""
    roles = Counter(assignment.role for assignment in plan.assignments)
    replicas = Counter(match.row for match in plan.matches)
    matches = count_of(len(plan.matches), "match", "matches")
    each = set(replicas.values())
    if len(plan.matches) > len(replicas):
        times = f" x {each.pop()} replicas" if len(each) == 1 else f", {min(each)} to {max(each)} replicas of each"
        matches += f" of {count_of(len(replicas), 'pairing')}{times}"
    return (
        f"{count_of(len(plan.assignments), 'rank')}: {roles['root']} root, "
        f"{count_of(roles['environment'], 'environment process', 'environment processes')}, "
        f"{count_of(roles['gateway'], 'gateway') + ', ' if roles['gateway'] else ''}"
        f"{count_of(roles['runner'], 'runner') + ', ' if roles['runner'] else ''}"
        f"{count_of(roles['worker'], 'worker')}, "
        f"{count_of(roles['learner'], 'learner') + ', ' if roles['learner'] else ''}"
        f"{count_of(roles['evaluator'], 'evaluator') + ', ' if roles['evaluator'] else ''}"
        f"{roles['idle']:,} idle; {matches}"
    )


def versus(seats: Sequence[Seat]) -> str:
    """Return the seats of a match, e.g. ``blue,blue vs red,[red red]``: brackets are one worker with two entities."""
    sides = []
    for player, side in groupby(seats, key=lambda seat: seat.player):
        sides.append(
            ",".join(player if len(s.entities) == 1 else f"[{' '.join([player] * len(s.entities))}]" for s in side)
        )
    return " vs ".join(sides)


class _Nodes:
    """Names of nodes, and the ranks on each."""

    def __init__(self, plan: Plan, names: Sequence[str] | None) -> None:
        self._names = names
        self._node_of = [assignment.node for assignment in plan.assignments]
        self.all = sorted(set(self._node_of))

    def name(self, node: int) -> str:
        return self._names[node] if self._names else f"node {node}"

    def of(self, ranks: Iterable[int]) -> str:
        """Return the nodes of some ranks."""
        nodes = sorted({self._node_of[rank] for rank in ranks})
        if len(nodes) == 1:
            return self.name(nodes[0])
        if len(nodes) > MOST_NODES:
            return f"{len(nodes):,} nodes"
        return ", ".join(map(self.name, nodes)) if self._names else f"nodes {ranges(nodes)}"

    def ranks(self, ranks: Sequence[int]) -> str:
        """Return some ranks and their nodes."""
        return f"{'rank' if len(ranks) == 1 else 'ranks'} {_shortened(ranks)} ({self.of(ranks)})"


def _title(config: RunConfig, round_: Round) -> str:
    rounds = len(config.round_list())
    which = f", round {round_.index + 1} of {rounds}" if rounds > 1 else ""
    copies = (
        f", then copy {', '.join(f'{source} over {to}' for to, source in round_.copy.items())}" if round_.copy else ""
    )
    seated = {seat.player for row in round_.rows for seat in row.seats}
    own = [f"{count:,} for {name}" for name, count in round_.own_steps.items() if name in seated]
    others = f" ({', '.join(own)})" if own else ""
    return f"{config.name}{which}: {round_.steps:,} transition steps for each learning policy{others}{copies}"


def _rank_by_rank(plan: Plan, round_: Round, nodes: _Nodes) -> list[Sequence[str]]:
    lines: list[Sequence[str]] = [("rank", "node", "role", "match", "seat", "entities", "player")]
    lines += [
        (str(assignment.rank), nodes.name(assignment.node), assignment.role, *_part(assignment, plan, round_))
        for assignment in plan.assignments
    ]
    return lines


def _part(assignment: Assignment, plan: Plan, round_: Round) -> tuple[str, str, str, str]:
    """Return match, seat, entities and player of a rank; for an environment process its environment."""
    if assignment.role == "learner":
        return "", "", "", f"{assignment.player}"
    if assignment.match is None:
        return "", "", "", ""
    match = plan.matches[assignment.match]
    if assignment.role == "runner":
        entities = (entity for seat in match.seats for entity in seat.entities)
        steps = f"{versus(match.seats)}, steps {_environment(round_, match)}"
        return str(assignment.match), "all", ranges(entities), steps
    if assignment.seat is None:
        outside = "".join(f", {seat.player} outside" for seat in match.external)
        return str(assignment.match), "", "", _environment(round_, match) + outside
    steps = f", steps {_environment(round_, match)}" if assignment.in_worker else ""
    return (
        str(assignment.match),
        str(assignment.seat),
        ranges(match.seats[assignment.seat].entities),
        f"{assignment.player}{steps}",
    )


def _environment(round_: Round, *matches: Match) -> str:
    """Return the environment of matches of one row, with the number of copies of each."""
    copies = {match.copies for match in matches}
    times = f" x{ranges(copies)}" if max(copies) > 1 else ""
    return round_.rows[matches[0].row].env.use + times


def _folded(plan: Plan, round_: Round, nodes: _Nodes) -> list[Sequence[str]]:
    """Return a line for each row of the table."""
    lines: list[Sequence[str]] = [("matches", "row", "players", "environment", "ranks", "where")]
    lines.append(("", "", "root", "", "0", nodes.of([0])))
    rows = [(row, list(group)) for row, group in groupby(plan.matches, key=lambda match: match.row)]
    for row, group in rows[:MOST_LINES]:
        ranks = [rank for match in group for rank in plan.seating[match.index]]
        numbers = ranges(match.index for match in group)
        times = f"row {row} x{len(group)}" if len(group) > 1 else f"row {row}"
        environment = _environment(round_, *group)
        lines.append((numbers, times, versus(group[0].all_seats), environment, _shortened(ranks), nodes.of(ranks)))
    if len(rows) > MOST_LINES:
        lines.append((f"and {count_of(len(rows) - MOST_LINES, 'more row')}", "", "", "", "", ""))
    for player, learners in list(plan.learners.items())[:MOST_LINES]:
        role = f"{count_of(len(learners), 'learner')} of {player}"
        lines.append(("", "", role, "", _shortened(learners), nodes.of(learners)))
    if plan.evaluator is not None:
        lines.append(("", "", "evaluator", "", str(plan.evaluator), nodes.of([plan.evaluator])))
    if len(plan.learners) > MOST_LINES:
        lines.append((f"and learners of {len(plan.learners) - MOST_LINES:,} more players", "", "", "", "", ""))
    return lines


def _shortened(ranks: Iterable[int], most: int = 6) -> str:
    """Return ranges of ranks, or their number if there are too many ranges."""
    ranks = list(ranks)
    text = ranges(ranks)
    return text if text.count(",") < most else f"{len(ranks):,} of {min(ranks)}-{max(ranks)}"


def _columns(table: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in table]


def _groups(plan: Plan, config: RunConfig) -> list[str]:
    """Return a line for each player: its workers, their policy, and its learners, if apart."""
    lines = []
    for player, ranks in plan.groups.items():
        policy = config.players[player]
        frozen = ", frozen" if policy.frozen else ""
        line = f"group {player}: {count_of(len(ranks), 'worker')} of {policy.use}{frozen}"
        if player in plan.learners:
            behind = f"are at most {count_of(policy.lag, 'update')} behind" if policy.lag else "take turns with them"
            line += f", {count_of(len(plan.learners[player]), 'learner')}; workers {behind}"
        lines.append(line)
    outside = {seat.player for match in plan.matches for seat in match.external}
    lines += [f"group {player}: takes its seat over HTTP" for player in config.players if player in outside]
    idle = [player for player in config.players if player not in plan.groups and player not in outside]
    lines += [f"group {player}: no worker" for player in idle]
    return lines


def _memory(plan: Plan, nodes: _Nodes, needs: MemoryNeeds) -> str:
    need = needs.of_nodes(plan)
    total, (fullest, most) = sum(need.values()), need.most_common(1)[0]
    where = f", {most / 1000:.1f} GB of it on {nodes.name(fullest)}, the most on one node" if len(nodes.all) > 1 else ""
    return f"memory: about {total / 1000:.1f} GB{where}: {needs.describe(plan)}; networks need memory in addition"
