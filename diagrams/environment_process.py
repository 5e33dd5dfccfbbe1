"""Picture 1: an environment process waits for all seats of its match, steps, and sends each seat its own part."""

from arena.common.colors import NAMED
from arena.plan.diagram.sheet import TOP, WIDTH, Sheet
from arena.plan.diagram.styles import (
    ENVIRONMENT,
    HAIR,
    INK,
    MUTED,
    PAPER,
    PLAIN,
    ROOT,
    SLATE,
    Style,
    line_color,
    mix,
    worker_style,
)

INSIDE = Style(mix(SLATE, PAPER, 0.9), SLATE, INK)
SEATS = ("blue", "blue", "red", "red")
PITCH, HEIGHT = 74, 56


def draw() -> str:
    """Return the picture as SVG."""
    sheet = Sheet(
        WIDTH, "Environment process", "It owns num_envs copies of one environment and serves the seats of one match."
    )
    sheet.text(24, TOP + 20, "worker processes", 13, weight="bold", fill=MUTED)
    sheet.card(300, TOP, 576, 348, INSIDE, radius=10, stroke_width=1.8, z=0)
    sheet.text(316, TOP + 22, "environment process", 14, weight="bold", fill=SLATE)
    sheet.text(860, TOP + 22, "match 0 · rank 1", 12.5, fill=MUTED, anchor="end")
    for seat, player in enumerate(SEATS):
        _seat(sheet, seat, player, TOP + 40 + PITCH * seat)
    top, bottom = TOP + 40, TOP + 40 + 3 * PITCH + HEIGHT
    sheet.card(308, top - 8, 128, bottom - top + 16, Style(PAPER, HAIR, INK), radius=8, z=1)
    gather, send = top + 65, bottom - 65
    sheet.card(464, gather - 36, 176, 72, PLAIN, "wait for all seats", "then every entity", "has its action")
    sheet.card(464, send - 36, 176, 72, PLAIN, "write each seat's message", "of its own entities,", "and no others")
    _copies(sheet, 668, top, 192, bottom - top)
    for start, end, y in ((436, 464, gather), (640, 668, gather), (668, 640, send), (464, 436, send)):
        sheet.line([(start, y), (end, y)], end=True)
    sheet.card(24, TOP + 382, 158, 46, ROOT, "root", "rank 0", stroke_width=1.8)
    sheet.line([(364, TOP + 348), (364, TOP + 405), (182, TOP + 405)], MUTED, dash="4 3", end=True)
    sheet.text(378, TOP + 396, "finished episodes, in batches, about once a second:", 12.5, fill=MUTED)
    sheet.text(378, TOP + 413, "the root is never on the step path", 12.5, fill=MUTED)
    return sheet.svg(TOP + 450)


def _seat(sheet: Sheet, seat: int, player: str, y: float) -> None:
    """Draw a worker, its place in the environment process, and the two messages between them."""
    color = NAMED[player]
    place = Style(mix(color, PAPER, 0.82), line_color(color), INK)
    sheet.card(24, y, 158, HEIGHT, worker_style(color), f"worker · rank {seat + 2}", f"player {player}")
    sheet.card(316, y, 112, HEIGHT, place, f"seat {seat}", f"entity {seat}")
    sheet.line([(182, y + 18), (316, y + 18)], end=True)
    sheet.line([(316, y + 40), (182, y + 40)], end=True)
    sheet.text(241, y + 13, "actions", 11.5, fill=MUTED, anchor="middle")
    sheet.text(241, y + 53, "observations", 11.5, fill=MUTED, anchor="middle")


def _copies(sheet: Sheet, x: float, y: float, width: float, height: float) -> None:
    """Draw the environment copies in their two batches."""
    sheet.card(x, y, width, height, PLAIN, radius=8, z=1)
    sheet.text(x + width / 2, y + 21, "env_manager", 13, weight="bold", anchor="middle")
    states = (("batch 0", "is stepped", ENVIRONMENT), ("batch 1", "workers decide", Style(PAPER, SLATE, SLATE)))
    for batch, (name, state, style) in enumerate(states):
        top = y + 34 + 100 * batch
        sheet.card(x + 12, top, width - 24, 90, Style(PAPER, HAIR, INK), z=2)
        sheet.text(x + 22, top + 19, name, 12, weight="bold")
        sheet.text(x + width - 22, top + 19, state, 11, fill=MUTED, anchor="end")
        for n in range(4):
            left = x + 22 + n * 38
            sheet.card(left, top + 30, 32, 32, style, radius=5)
            sheet.text(left + 16, top + 50.5, f"{4 * batch + n}", 12, weight="bold", fill=style.ink, anchor="middle")
        sheet.text(x + width / 2, top + 80, f"copies {4 * batch}–{4 * batch + 3}", 11, fill=MUTED, anchor="middle")
    for line, text in enumerate(("while workers decide for", "one batch, the other steps")):
        sheet.text(x + width / 2, y + height - 26 + 16 * line, text, 11.5, fill=MUTED, anchor="middle")
