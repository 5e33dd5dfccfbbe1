"""Picture 2: a worker process collects experience on its seat and learns together with its group."""

from arena.common.colors import NAMED
from arena.plan.diagram.sheet import TOP, WIDTH, Sheet
from arena.plan.diagram.styles import (
    ENVIRONMENT,
    INK,
    MUTED,
    PAPER,
    PLAIN,
    SLATE,
    Style,
    line_color,
    mix,
    text_color,
    tint,
    worker_style,
)

BLUE, RED = NAMED["blue"], NAMED["red"]


def draw() -> str:
    """Return the picture as SVG."""
    sheet = Sheet(
        WIDTH,
        "Worker process",
        "It sits on one seat, runs one policy, and learns with the other workers of its player.",
    )
    inside = Style(mix(BLUE, PAPER, 0.9), line_color(BLUE), INK)
    sheet.card(222, TOP, 390, 372, inside, radius=10, stroke_width=1.8, z=0)
    sheet.text(236, TOP + 24, "worker process", 14, weight="bold", fill=text_color(BLUE))
    sheet.text(598, TOP + 24, "player blue · seat 0 · rank 2", 12.5, fill=MUTED, anchor="end")
    _collect(sheet)
    _learn(sheet)
    _group(sheet, TOP, BLUE, "blue", ("worker · rank 3", "worker · rank 7"), "its group: one Allreduce")
    _group(sheet, TOP + 196, RED, "red", ("worker · rank 4", "worker · rank 5"), "another player, another group")
    return sheet.svg(TOP + 396)


def _collect(sheet: Sheet) -> None:
    """Draw the exchange with the environment process, every step."""
    sheet.card(24, TOP + 48, 122, 190, ENVIRONMENT, "environment", "process", "rank 1")
    sheet.card(236, TOP + 48, 84, 190, PLAIN, "collector")
    sheet.card(404, TOP + 60, 160, 56, PLAIN, "policy · act", "observations → actions")
    sheet.card(404, TOP + 170, 160, 56, PLAIN, "rollout", "what was seen and done")
    sheet.line([(146, TOP + 88), (236, TOP + 88)], end=True)
    sheet.line([(236, TOP + 198), (146, TOP + 198)], end=True)
    sheet.text(184, TOP + 80, "observations", 11, fill=MUTED, anchor="middle")
    sheet.text(184, TOP + 215, "actions", 12, fill=MUTED, anchor="middle")
    sheet.line([(320, TOP + 76), (404, TOP + 76)], end=True)
    sheet.line([(404, TOP + 100), (320, TOP + 100)], end=True)
    sheet.text(360, TOP + 68, "observations", 11.5, fill=MUTED, anchor="middle")
    sheet.text(360, TOP + 117, "actions", 11.5, fill=MUTED, anchor="middle")
    sheet.line([(320, TOP + 198), (404, TOP + 198)], end=True)
    sheet.text(360, TOP + 190, "rewards", 11.5, fill=MUTED, anchor="middle")
    sheet.line([(484, TOP + 116), (484, TOP + 170)], end=True)
    sheet.text(475, TOP + 147, "decisions", 11.5, fill=MUTED, anchor="end")


def _learn(sheet: Sheet) -> None:
    """Draw the update, every time the rollout is full."""
    sheet.card(404, TOP + 290, 160, 56, PLAIN, "policy · learn", "loss, backward, step")
    sheet.line([(484, TOP + 226), (484, TOP + 290)], end=True)
    sheet.text(475, TOP + 262, "when it is full", 11.5, fill=MUTED, anchor="end")
    sheet.line([(564, TOP + 304), (590, TOP + 304), (590, TOP + 88), (564, TOP + 88)], end=True)
    sheet.text(582, TOP + 262, "new weights", 11.5, fill=MUTED, anchor="end")
    sheet.text(236, TOP + 296, "each step:", 12, weight="bold", fill=SLATE)
    sheet.text(236, TOP + 313, "collect experience", 12, fill=MUTED)
    sheet.text(236, TOP + 338, "each update:", 12, weight="bold", fill=SLATE)
    sheet.text(236, TOP + 355, "learn with the group", 12, fill=MUTED)


def _group(sheet: Sheet, y: float, color: str, player: str, workers: tuple[str, str], what: str) -> None:
    """Draw the other workers of a group, on the line that joins them."""
    line = line_color(color)
    sheet.card(704, y, 172, 176, tint(color), radius=9, z=0)
    sheet.text(790, y + 22, player, 14, weight="bold", fill=text_color(color), anchor="middle")
    sheet.text(790, y + 39, what, 11.5, fill=text_color(color), anchor="middle", room=164)
    rows = [y + 52 + 54 * n for n in range(2)]
    for text, top in zip(workers, rows, strict=True):
        sheet.card(740, top, 124, 42, worker_style(color), text)
    first, second = (top + 21 for top in rows)
    sheet.line([(740, first), (722, first), (722, second), (740, second)], line, width=2.4, start=True, end=True)
    if player == "blue":
        middle = (first + second) / 2
        sheet.line([(564, TOP + 332), (684, TOP + 332), (684, middle), (722, middle)], line, width=2.4, start=True)
        sheet.text(647, TOP + 325, "gradients", 11.5, fill=text_color(color), anchor="middle")
