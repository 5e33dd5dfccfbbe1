"""A plan in the form that drawings need, and parts that both kinds of drawing share."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from arena.common.text import count_of, ranges
from arena.config.table import Seat
from arena.plan.assignment import ENVIRONMENTS, Match, Plan
from arena.plan.diagram.sheet import Sheet, text_width
from arena.plan.diagram.styles import IDLE, MUTED


def ranks_of(ranks: Sequence[int]) -> str:
    """Return for example ``rank 7`` or ``ranks 1–5``."""
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {ranges(ranks, dash='–')}"


class Worker(NamedTuple):
    """A worker in its match.

    Attributes:
      rank: its rank.
      number: index of its seat in the match.
      seat: its player and entities.
      away: whether it is on another node than its environment process, so that steps cross the network.
    """

    rank: int
    number: int
    seat: Seat
    away: bool


class PlanView:
    """A plan by match, by node and by player.

    Attributes:
      plan: the plan.
      colors: ``#rrggbb`` of each player.
      frozen: players that do not learn.
      workers: workers of each match, in the order of its seats.
      idle: node -> its idle ranks.
      nodes: all nodes, in order.
      split: whether any worker is away from its environment process.
    """

    def __init__(self, plan: Plan, colors: dict[str, str], frozen: frozenset[str]) -> None:
        self.plan, self.colors, self.frozen = plan, colors, frozen
        self.workers = [self._workers(match) for match in plan.matches]
        self.split = any(worker.away for workers in self.workers for worker in workers)
        self.nodes = sorted({assignment.node for assignment in plan.assignments})
        self.idle: dict[int, list[int]] = {}
        for rank in plan.idle:
            self.idle.setdefault(self.node_of(rank), []).append(rank)

    def _workers(self, match: Match) -> list[Worker]:
        home, ranks = self.node(match), self.plan.match_ranks(match.index)[1]
        return [
            Worker(rank, number, seat, self.node_of(rank) != home)
            for number, (rank, seat) in enumerate(zip(ranks, match.seats, strict=True))
        ]

    def node_of(self, rank: int) -> int:
        """Return the node of a rank."""
        return self.plan.assignments[rank].node

    def node(self, match: Match) -> int:
        """Return the node of a match's environment process."""
        return self.node_of(self.environment(match))

    def environment(self, match: Match) -> int:
        """Return the rank of a match's environment process, or of the worker that steps its environment."""
        return self.plan.match_ranks(match.index)[0]

    def environment_name(self, match: Match) -> str:
        """Return the name of the role that has the match's environment, or its external games."""
        assignment = self.plan.assignments[self.environment(match)]
        return f"environment in {assignment.role}" if assignment.in_worker else ENVIRONMENTS[assignment.role]

    def exchange(self, player: str) -> Literal["gradients", "learns alone", "frozen", "experience"]:
        """Return the data that the workers of a player exchange, or send to its learners."""
        if player in self.frozen:
            return "frozen"
        if player in self.plan.learners:
            return "experience"
        return "gradients" if len(self.plan.groups[player]) > 1 else "learns alone"

    def summary(self) -> str:
        """Return the plan in a line: the number of ranks, by role."""
        roles = Counter(assignment.role for assignment in self.plan.assignments)
        parts = [
            count_of(roles["root"], "root"),
            *(
                [count_of(roles["environment"], "environment process", "environment processes")]
                if roles["environment"] or not (roles["gateway"] or roles["runner"])
                else []
            ),
            *([count_of(roles["gateway"], "gateway")] if roles["gateway"] else []),
            *([count_of(roles["runner"], "runner")] if roles["runner"] else []),
            *(
                [count_of(roles["worker"], "worker process", "worker processes")]
                if roles["worker"] or not roles["runner"]
                else []
            ),
            *([count_of(roles["learner"], "learner")] if roles["learner"] else []),
        ]
        parts += [count_of(roles["evaluator"], "evaluator")] if roles["evaluator"] else []
        parts += [f"{roles['idle']:,} idle"] if roles["idle"] else []
        ranks = count_of(len(self.plan.assignments), "rank")
        return f"{ranks} on {count_of(len(self.nodes), 'node')}: " + ", ".join(parts)

    def draw_idle(self, sheet: Sheet, x: float, y: float, room: float, nodes: Iterable[int], most: int = 6) -> float:
        """Draw the evaluator and the idle ranks of some nodes, a chip for each, and return the y behind them."""
        nodes = sorted(nodes)
        evaluator = self.plan.evaluator
        texts = [self._idle_text(node, room - 20) for node in nodes if node in self.idle]
        if evaluator is not None and self.node_of(evaluator) in nodes:
            where = f" on node {self.node_of(evaluator)}" if len(self.nodes) > 1 else ""
            texts.insert(0, f"evaluator{where}: {ranks_of([evaluator])}")
        if len(texts) > most:
            hidden = len(texts) - most + 1
            texts = [*texts[: most - 1], f"and idle ranks on {hidden:,} more nodes"]
        left = x
        for text in texts:
            width = min(room, text_width(text, 11.5) + 20)
            if left > x and left + width > x + room:
                left, y = x, y + 32
            sheet.card(left, y, width, 24, IDLE)
            sheet.text(left + width / 2, y + 16, text, 11.5, fill=MUTED, anchor="middle", room=width - 12)
            left += width + 8
        return y + 32 if texts else y

    def _idle_text(self, node: int, room: float) -> str:
        """Return the idle ranks of a node, or their number if there is no room for a list."""
        where = "idle" if len(self.nodes) == 1 else f"idle on node {node}"
        text = f"{where}: {ranks_of(self.idle[node])}"
        return text if text_width(text, 11.5) <= room else f"{where}: {count_of(len(self.idle[node]), 'rank')}"
