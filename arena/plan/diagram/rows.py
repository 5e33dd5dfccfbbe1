"""The picture of a small plan: matches are rows, groups are columns, nodes are frames."""

from collections import Counter
from typing import NamedTuple

from arena.common.text import count_of, ranges
from arena.plan.assignment import Match
from arena.plan.diagram.sheet import MARGIN, TOP, WIDTH, Sheet, text_width
from arena.plan.diagram.styles import (
    AWAY,
    ENVIRONMENT,
    FRAME,
    MUTED,
    PAPER,
    PLAIN,
    ROOT,
    SLATE,
    Style,
    line_color,
    text_color,
    tint,
    worker_style,
)
from arena.plan.diagram.view import PlanView, Worker, ranks_of
from arena.plan.layout import ROOT as ROOT_RANK


class _Column(NamedTuple):
    """Column of the workers of one player."""

    x: float
    width: float
    box: float


class Rows:
    """The plan in full: a row for each match, a column for each group."""

    LEFT = MARGIN + 32  # left edge of the matches, with room for the root's line
    ENVIRONMENT = 156
    COLUMNS = LEFT + 12 + ENVIRONMENT + 26
    RIGHT = MARGIN + 24
    SMALLEST, LARGEST, MOST_MATCHES = 58, 150, 8

    def __init__(self, view: PlanView, title: str) -> None:
        self.view = view
        seats: dict[str, int] = dict.fromkeys(view.plan.groups, 0)
        for match in view.plan.matches:
            for player, count in Counter(seat.player for seat in match.seats).items():
                seats[player] = max(seats[player], count)
        fixed = sum(18 + 8 * count for count in seats.values()) + 14 * (len(seats) - 1)
        total = sum(seats.values())
        box = min(self.LARGEST, (WIDTH - self.RIGHT - self.COLUMNS - fixed) / total)
        box = max(box, (640 - self.RIGHT - self.COLUMNS - fixed) / total)
        self.readable = box >= self.SMALLEST and len(view.plan.matches) <= self.MOST_MATCHES
        self.columns: dict[str, _Column] = {}
        x: float = self.COLUMNS
        for player, count in seats.items():
            self.columns[player] = _Column(x, 18 + 8 * count + box * count, box)
            x += self.columns[player].width + 14
        self.sheet = Sheet(x - 14 + self.RIGHT, title, view.summary())
        # Of each player, for each of its matches: the bottom of its workers, and their middles.
        self.feet: dict[str, list[tuple[float, list[float]]]] = {player: [] for player in seats}

    def draw(self) -> str:
        """Return the page as SVG."""
        view, sheet, y = self.view, self.sheet, float(TOP)
        root = view.node_of(ROOT_RANK)
        learners = {view.node_of(rank) for ranks in view.plan.learners.values() for rank in ranks}
        used = {root, *map(view.node, view.plan.matches), *learners}
        homes = sorted(used, key=lambda node: (node != root, node))
        for node in homes:
            y = self._node(node, y, room_below=22 if node == homes[-1] else 0) + 12
        for player, column in self.columns.items():
            self._column(player, column, TOP + 10, y - 20)
        y = view.draw_idle(sheet, MARGIN, y, sheet.width - 2 * MARGIN, set(view.nodes) - set(homes))
        return sheet.svg(_legend(sheet, view, y + 12) + 2)

    def _node(self, node: int, top: float, room_below: float) -> float:
        view, sheet, y = self.view, self.sheet, top + 30
        sheet.text(self.LEFT, top + 20, f"node {node}", 12.5, weight="bold", fill=MUTED)
        ranks = ranks_of([assignment.rank for assignment in view.plan.assignments if assignment.node == node])
        sheet.text(self.LEFT + 12 + self.ENVIRONMENT, top + 20, ranks, 12, fill=MUTED, anchor="end", room=104)
        if node == view.node_of(ROOT_RANK):
            sheet.card(self.LEFT, y, 12 + self.ENVIRONMENT, 42, ROOT, "root", f"rank {ROOT_RANK}", stroke_width=1.8)
            self.root = y + 21
            y += 42 + 14
        for match in view.plan.matches:
            if view.node(match) == node:
                y = self._match(match, y) + 10
        y = self._learners(node, y)
        y = view.draw_idle(sheet, self.LEFT, y, 12 + self.ENVIRONMENT, [node])
        y += 2 + room_below
        sheet.card(MARGIN, top, sheet.width - 2 * MARGIN, y - top, FRAME, radius=9, z=-1)
        return y

    def _match(self, match: Match, top: float) -> float:
        view, sheet, left = self.view, self.sheet, MARGIN + 15
        bus, boxes, height = top + 16, top + 36, 114
        sheet.card(self.LEFT, top, sheet.width - self.LEFT - MARGIN - 12, height, PLAIN, radius=8, z=0)
        # The root's line runs left of everything, from node to node.
        trunk = [(self.LEFT, self.root), (left, self.root), (left, top + 47), (self.LEFT, top + 47)]
        sheet.line(trunk, MUTED, dash="4 3", end=True, start=True)
        name = view.environment_name(match)
        lines = name, f"match {match.index}", f"rank {view.environment(match)}"
        sheet.card(self.LEFT + 12, top + 8, self.ENVIRONMENT, 78, ENVIRONMENT, *lines)
        middles: dict[str, list[float]] = {}
        for worker in view.workers[match.index]:
            column = self.columns[worker.seat.player]
            own_middles = middles.setdefault(worker.seat.player, [])
            x = column.x + 15 + len(own_middles) * (column.box + 8)
            own_middles.append(x + column.box / 2)
            sheet.line(
                [(self.LEFT + 12 + self.ENVIRONMENT, bus), (own_middles[-1], bus), (own_middles[-1], boxes)],
                start=True,
                end=True,
            )
            sheet.card(
                x,
                boxes,
                column.box,
                50,
                worker_style(view.colors[worker.seat.player], away=worker.away),
                *_seat_lines(worker, column.box - 8),
            )
        for player, own_middles in middles.items():
            self.feet[player].append((boxes + 50, own_middles))
        return top + height

    def _learners(self, node: int, top: float) -> float:
        """Draw the learners of a node, each in the column of its player, and return the y behind them."""
        view, bottom = self.view, top
        for player, ranks in view.plan.learners.items():
            here = [(number, rank) for number, rank in enumerate(ranks) if view.node_of(rank) == node]
            column = self.columns[player]
            across = max(1, int((column.width - 10) // (column.box + 8)))
            for first in range(0, len(here), across):
                y, middles = top + 8 + first // across * 80, []
                for place, (number, rank) in enumerate(here[first : first + across]):
                    x = column.x + 15 + place * (column.box + 8)
                    middles.append(x + column.box / 2)
                    lines = f"learner {number}", f"rank {rank}"
                    self.sheet.card(x, y, column.box, 42, worker_style(view.colors[player]), *lines, stroke_width=2.4)
                self.feet[player].append((y + 42, middles))
                bottom = max(bottom, y + 72)
        return bottom

    def _column(self, player: str, column: _Column, top: float, bottom: float) -> None:
        view, sheet, color = self.view, self.sheet, self.view.colors[player]
        sheet.card(column.x, top, column.width, bottom - top, tint(color), radius=9, z=1)
        middle, room, ink = column.x + column.width / 2, column.width - 10, text_color(color)
        sheet.text(middle, top + 22, player, 14.5, weight="bold", anchor="middle", fill=ink, room=room)
        workers = count_of(len(view.plan.groups[player]), "worker")
        group = f"group of {workers}"
        apart = player in view.frozen or player in view.plan.learners
        name = group if not apart and text_width(group, 11) <= room else workers
        sheet.text(middle, top + 41, name, 12, anchor="middle", fill=ink, room=room)
        sheet.text(middle, bottom - 8, view.exchange(player), 12, anchor="middle", fill=ink, room=room)
        if view.exchange(player) in ("gradients", "experience"):
            self._rails(self.feet[player], column.x + 7, line_color(color))

    def _rails(self, feet: list[tuple[float, list[float]]], trunk: float, color: str) -> None:
        """Join the feet of a group's workers: side by side within one match, else along a trunk."""
        (first, _), (last, _) = feet[0], feet[-1]
        for foot, middles in feet:
            rail = foot + 16
            for middle in middles[1:] if first == last else middles:
                if first == last:
                    beside = [(middle, foot), (middle, rail), (middles[0], rail), (middles[0], foot)]
                    self.sheet.line(beside, color, width=2.4, start=True, end=True)
                else:
                    onward = {first: first + 28, last: last + 4}.get(foot, rail)
                    self.sheet.line(
                        [(middle, foot), (middle, rail), (trunk, rail), (trunk, onward)], color, width=2.4, start=True
                    )
        if first != last:
            self.sheet.line([(trunk, first + 28), (trunk, last + 4)], color, width=2.4)


def _seat_lines(worker: Worker, room: float) -> tuple[str, str]:
    """Return the lines of a worker's box that fit."""
    entities = worker.seat.entities
    played = f"entity {entities[0]}" if len(entities) == 1 else f"entities {ranges(entities, dash='–')}"
    rank, seat = f"worker · rank {worker.rank}", f"seat {worker.number} · {played}"
    return (
        rank if text_width(rank, 11.5, "bold") <= room else f"rank {worker.rank}",
        seat if text_width(seat, 11) <= room else f"seat {worker.number}",
    )


def _legend(sheet: Sheet, view: PlanView, y: float) -> float:
    """Draw the legend of the lines, wrapped to the page, and return the y behind it."""
    learner = next((p for p in view.plan.groups if view.exchange(p) == "gradients"), None)
    entries: list[tuple[str, str, str | None]] = [("each step: one message each way", SLATE, None)]
    if learner:
        entries.append(("each gradient: one Allreduce per group", line_color(view.colors[learner]), None))
    apart = next(iter(view.plan.learners), None)
    if apart:
        text = "each rollout: experience to the learner, weights back"
        entries.append((text, line_color(view.colors[apart]), None))
    entries.append(("root: assignments, reports", MUTED, "4 3"))
    x: float = MARGIN
    for text, color, dash in entries:
        width = 40 + text_width(text, 12)
        if x + width > sheet.width - MARGIN and x > MARGIN:
            x, y = MARGIN, y + 20
        sheet.line([(x, y), (x + 30, y)], color, dash=dash, start=True, end=True)
        sheet.text(x + 38, y + 4, text, 12, fill=MUTED)
        x += width + 8
    if view.split:
        y += 20
        sheet.card(MARGIN, y - 7, 30, 14, Style(PAPER, MUTED, MUTED, AWAY), radius=4)
        sheet.text(
            MARGIN + 38, y + 4, "broken outline: a worker on another node than its environment process", 12, fill=MUTED
        )
    return y + 18
