"""The picture of a plan with many matches: a small tile for each, or for each row of a larger table."""

from collections import Counter
from itertools import groupby
from typing import NamedTuple

from arena.common.text import count_of
from arena.plan.assignment import Match
from arena.plan.diagram.sheet import MARGIN, TOP, WIDTH, Sheet, text_width
from arena.plan.diagram.styles import (
    ENVIRONMENT,
    FRAME,
    HAIR,
    IDLE,
    INK,
    MUTED,
    PAPER,
    PLAIN,
    ROOT,
    SLATE,
    Style,
    line_color,
    mix,
    text_color,
    worker_style,
)
from arena.plan.diagram.view import PlanView
from arena.plan.layout import ROOT as ROOT_RANK


class _Line(NamedTuple):
    """Tiles side by side; the first line of a table row with replicas has a label with its players."""

    labelled: bool
    matches: tuple[Match, ...]


class Tiles:
    """The picture of many matches: a small tile for each, or one for each row of the table if there are too many."""

    MOST_TILES, MOST_LINES, MOST_GROUPS, MOST_BEADS = 150, 40, 12, 48
    LEFT, LABEL, GAP, CELL = MARGIN + 14, 118, 10, 20

    def __init__(self, view: PlanView, title: str) -> None:
        self.view, self.sheet = view, Sheet(WIDTH, title, view.summary())
        rows = [tuple(run) for _, run in groupby(view.plan.matches, key=lambda match: match.row)]
        self.replicas = max(map(len, rows))
        self.folded = self.replicas > 1 and len(view.plan.matches) > self.MOST_TILES
        self.rows = rows if self.replicas > 1 else [view.plan.matches]
        across = 5 if self.replicas > 1 else 6
        self.lines = [
            _Line(start == 0 and self.replicas > 1, row[start : start + across])
            for row in self.rows
            for start in range(0, 1 if self.folded else len(row), across)
        ]
        self.x = self.LEFT + (self.LABEL if self.replicas > 1 else 0)
        self.tile = (WIDTH - self.LEFT - self.x + self.GAP) / across - self.GAP
        self.cell = max(22.0, text_width(f"{len(view.plan.assignments)}", 10, "bold") + 4)
        self.cells_across = max(1, int((self.tile - 12 + 3) // (self.cell + 3)))

    def draw(self) -> str:
        """Return the page as SVG."""
        view, sheet, top = self.view, self.sheet, TOP
        place = f"rank {ROOT_RANK}" + (f" · node {view.node_of(ROOT_RANK)}" if len(view.nodes) > 1 else "")
        sheet.card(self.LEFT, top + 12, self.LABEL - 14, 38, ROOT, "root", place, size=12, radius=5, stroke_width=1.8)
        if self.replicas > 1 and not self.folded:
            for n in range(max(len(line.matches) for line in self.lines)):
                name = f"replica {n}" if self.replicas == len(self.lines[0].matches) else ""
                sheet.text(self._tile_x(n) + self.tile / 2, top + 46, name, 12, fill=MUTED, anchor="middle")
        y, row = top + 60.0, -1
        for line in self.lines[: self.MOST_LINES]:
            row += line.labelled
            y = self._line(line, y) if not self.folded else self._folded(self.rows[row], y)
        hidden = self.lines[self.MOST_LINES :]
        if hidden:
            rest = f"and {count_of(len(hidden), 'more row')} of the table" if self.folded else "and more matches"
            sheet.text(self.x, y + 12, rest, 12.5, fill=MUTED)
            y += 26
        y = view.draw_idle(sheet, self.LEFT, y + 4, WIDTH - 2 * self.LEFT, view.nodes)
        sheet.card(MARGIN, top, WIDTH - 2 * MARGIN, y + 2 - top, FRAME, radius=9, z=-1)
        return sheet.svg(self._key(self._groups(y + 30)) + 2)

    def _tile_x(self, n: int) -> float:
        return self.x + n * (self.tile + self.GAP)

    def _line(self, line: _Line, y: float) -> float:
        """Draw a line of tiles, with a frame around those that stand on one node."""
        view, sheet = self.view, self.sheet
        several = len(view.nodes) > 1
        top = y + 16 if several else y
        bottom = top + max(
            self._tile(match, self._tile_x(n), top, f"match {match.index} · rank {view.environment(match)}")
            for n, match in enumerate(line.matches)
        )
        if line.labelled:
            self._label(line.matches[0], (top + bottom) / 2)
        if several:
            for node, run in groupby(enumerate(line.matches), key=lambda pair: view.node(pair[1])):
                places = [n for n, _ in run]
                x, width = self._tile_x(places[0]), len(places) * (self.tile + self.GAP) - self.GAP
                sheet.card(
                    x - 3, y, width + 6, bottom + 3 - y, Style(mix(SLATE, PAPER, 0.87), HAIR, INK), radius=7, z=0
                )
                sheet.text(x + 3, y + 12, f"node {node}", 10.5, fill=MUTED, weight="bold")
        return bottom + (self.GAP + 3 if several else self.GAP)

    def _folded(self, row: tuple[Match, ...], y: float) -> float:
        """Draw one tile for all replicas of a row of the table."""
        view = self.view
        ranks = {rank for match in row for rank in view.plan.seating[match.index]}
        nodes = {view.node_of(rank) for rank in ranks}
        neighbours = max(ranks) - min(ranks) == len(ranks) - 1
        height = self._tile(row[0], self.x, y, count_of(len(row), "replica"))
        self._label(row[0], y + height / 2)
        x, room = self._tile_x(1) + 4, WIDTH - self.LEFT - self._tile_x(1) - 4
        matches = f"matches {row[0].index:,}–{row[-1].index:,}" if len(row) > 1 else f"match {row[0].index:,}"
        self.sheet.text(x, y + height / 2 - 3, matches, 12.5, weight="bold", room=room)
        which = f"ranks {min(ranks):,}–{max(ranks):,}" if neighbours else count_of(len(ranks), "rank")
        where = f"{which} on {count_of(len(nodes), 'node')}"
        self.sheet.text(x, y + height / 2 + 14, where, 12, fill=MUTED, room=room)
        return y + height + self.GAP

    def _label(self, match: Match, middle: float) -> None:
        players = list(Counter(seat.player for seat in match.seats).items())
        shown = players if len(players) <= 3 else players[:2]
        lines = [(f"{player} × {n}" if n > 1 else player, self.view.colors[player]) for player, n in shown]
        lines += [(f"and {len(players) - 2} more", HAIR)] if len(players) > 3 else []
        for number, (text, color) in enumerate(lines):
            y = middle + (number - (len(lines) - 1) / 2) * 19
            self.sheet.card(self.LEFT, y - 6, 12, 12, worker_style(color), radius=3)
            self.sheet.text(self.LEFT + 19, y + 4.5, text, 12.5, room=self.LABEL - 30)

    def _tile(self, match: Match, x: float, y: float, name: str) -> float:
        """Draw a match: its environment process as a bar, its workers below it in the order of their seats."""
        view, sheet, room = self.view, self.sheet, 4 * self.cells_across
        workers = view.workers[match.index]
        cells = [
            (f"{worker.rank}", worker_style(view.colors[worker.seat.player], away=worker.away)) for worker in workers
        ]
        if len(cells) > room or self.folded:
            counts = Counter(worker.seat.player for worker in workers)
            cells = [(f"×{count}", worker_style(view.colors[player])) for player, count in counts.items()]
        if len(cells) > room:
            cells = [*cells[: room - 1], ("…", IDLE)]
        across = min(self.cells_across, len(cells))
        width = (self.tile - 12 + 3) / across - 3
        height = 6 + self.CELL + 4 + -(-len(cells) // across) * (self.CELL + 3) - 3 + 6
        sheet.card(x, y, self.tile, height, PLAIN, z=1)
        sheet.card(x + 6, y + 6, self.tile - 12, self.CELL, ENVIRONMENT, radius=4)
        sheet.text(x + self.tile / 2, y + 20, name, 11, fill=ENVIRONMENT.ink, anchor="middle", room=self.tile - 18)
        for n, (text, style) in enumerate(cells):
            left, top = x + 6 + n % across * (width + 3), y + 10 + self.CELL + n // across * (self.CELL + 3)
            sheet.card(left, top, width, self.CELL, style, radius=4)
            sheet.text(
                left + width / 2, top + 14, text, 10.5, fill=style.ink, anchor="middle", weight="bold", room=width - 2
            )
        return height

    def _groups(self, y: float) -> float:
        """Draw each group as a string of beads: its workers, joined by the gradients that they exchange."""
        view, sheet, left, right = self.view, self.sheet, self.LEFT + self.LABEL, WIDTH - self.LEFT - 150
        sheet.text(self.LEFT, y, "Groups", 13, weight="bold")
        sheet.text(
            left, y, "the workers of one player; one Allreduce per minibatch averages their gradients", 12, fill=MUTED
        )
        for player in list(view.plan.groups)[: self.MOST_GROUPS]:
            y += 25
            color, size = view.colors[player], len(view.plan.groups[player])
            sheet.text(self.LEFT, y + 4, player, 12.5, weight="bold", fill=text_color(color), room=self.LABEL - 12)
            beads = min(size, self.MOST_BEADS)
            pitch = min(18.0, (right - left) / beads)
            end = left + pitch * beads - 4
            if view.exchange(player) in ("gradients", "experience"):
                sheet.line([(left + 4, y), (end + 12 if beads < size else end - 4, y)], line_color(color), width=2.4)
            for n in range(beads):
                sheet.card(left + n * pitch, y - 6, pitch - 4, 12, worker_style(color), radius=3)
            exchange = view.exchange(player)
            state = {"frozen": ", frozen", "learns alone": ", learns alone"}.get(exchange, "")
            if exchange == "experience":
                state = f", {count_of(len(view.plan.learners[player]), 'learner')}"
            text = ("… " if beads < size else "") + count_of(size, "worker") + state
            sheet.text(end + 14, y + 4, text, 12, fill=MUTED, room=WIDTH - self.LEFT - end - 14)
        hidden = len(view.plan.groups) - self.MOST_GROUPS
        if hidden > 0:
            y += 24
            sheet.text(left, y + 4, f"and {count_of(hidden, 'more player')}", 12, fill=MUTED)
        return y + 30

    def _key(self, y: float) -> float:
        color = next(iter(self.view.colors.values()))
        entries = [("environment process", ENVIRONMENT), ("worker process", worker_style(color))]
        if self.view.split and not self.folded:
            entries.append(("worker on another node than its environment process", worker_style(color, away=True)))
        x: float = self.LEFT
        for text, style in entries:
            self.sheet.card(x, y - 7, 26, 14, style, radius=4)
            self.sheet.text(x + 34, y + 4, text, 12, fill=MUTED)
            x += 34 + text_width(text, 12) + 14
        return y + 18
