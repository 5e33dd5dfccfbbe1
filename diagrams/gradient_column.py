"""Picture 6: one gradient travels down a group, from each worker's loss to the same optimizer step everywhere."""

from arena.common.colors import NAMED
from arena.plan.diagram.sheet import TOP, WIDTH, Sheet
from arena.plan.diagram.styles import INK, MUTED, PAPER, PLAIN, SLATE, Style, line_color, mix, tint, worker_style

BLUE = NAMED["blue"]
LINE = line_color(BLUE)
COLUMNS = ((164, "worker 0"), (388, "worker 1"), (672, "worker W−1"))
BOX = 196
REDUCE = TOP + 284
CAPTIONS = (
    (TOP + 83, "every worker has", "its own experience"),
    (TOP + 156, "its own loss", "and its own gradient"),
    (TOP + 234, "one flat buffer:", ".grad are views of it"),
    (REDUCE + 22, "one reduction", "for each minibatch"),
    (REDUCE + 86, "the same average", "on every worker"),
    (REDUCE + 240, "the same weights,", "bit for bit"),
)


def draw() -> str:
    """Return the picture as SVG."""
    sheet = Sheet(
        WIDTH,
        "Gradient column",
        "One update of a player: W workers, one Allreduce, the same optimizer step everywhere.",
    )
    for y, *lines in CAPTIONS:
        for n, line in enumerate(lines):
            sheet.text(24, y + 16 * n, line, 12, fill=MUTED, room=128)
    for x, name in COLUMNS:
        _column(sheet, x, name)
    sheet.card(156, REDUCE, 720, 54, worker_style(BLUE), "Allreduce on the group's communicator",
               "sum of all buffers, each times its samples, divided by the samples of all", size=13.5)  # fmt: skip
    for y in (TOP + 33, TOP + 93, TOP + 238, REDUCE + 93, REDUCE + 243):
        sheet.text(628, y, "· · ·", 18, weight="bold", fill=MUTED, anchor="middle")
    return sheet.svg(REDUCE + 290)


def _column(sheet: Sheet, x: float, name: str) -> None:
    """Draw one worker's way through the update, from top to bottom."""
    band = tint(BLUE, 0.9)
    sheet.card(x - 8, TOP, BOX + 16, REDUCE + 268 - TOP, band, radius=10, z=0)
    sheet.card(x, TOP + 10, BOX, 34, worker_style(BLUE), name)
    boxes = (
        (TOP + 66, 40, ("rollout", "its own transition steps")),
        (TOP + 126, 28, ("loss",)),
        (TOP + 174, 28, ("backward",)),
        (REDUCE + 134, 28, ("clip",)),
        (REDUCE + 182, 28, ("optimizer step",)),
    )
    for y, height, lines in boxes:
        sheet.card(x, y, BOX, height, PLAIN, *lines)
    _buffer(sheet, x, TOP + 222, 0.72)
    _buffer(sheet, x, REDUCE + 76, 0.35)
    sheet.card(x, REDUCE + 230, BOX, 28, worker_style(BLUE), "weights")
    edges = (
        (TOP + 44, TOP + 66), (TOP + 106, TOP + 126), (TOP + 154, TOP + 174), (TOP + 202, TOP + 222),
        (REDUCE + 112, REDUCE + 134), (REDUCE + 162, REDUCE + 182), (REDUCE + 210, REDUCE + 230),
    )  # fmt: skip
    for top, bottom in edges:
        sheet.line([(x + BOX / 2, top), (x + BOX / 2, bottom)], SLATE, end=True)
    for top, bottom in ((TOP + 258, REDUCE), (REDUCE + 54, REDUCE + 76)):
        sheet.line([(x + BOX / 2, top), (x + BOX / 2, bottom)], LINE, width=2.4, end=True)


def _buffer(sheet: Sheet, x: float, y: float, paleness: float) -> None:
    """Draw the flat buffer: what travels in one piece."""
    for part, width in (("gradients", 80), ("metrics", 56), ("samples", 60)):
        fill = mix(BLUE, PAPER, paleness if part == "gradients" else (1 + paleness) / 2)
        sheet.card(x, y, width, 36, Style(fill, LINE, INK), radius=3)
        sheet.text(x + width / 2, y + 22, part, 11.5, anchor="middle", room=width - 4)
        x += width
