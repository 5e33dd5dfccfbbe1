"""Picture 7: what the actor and the critic of a team read, and which of it is left when learning is over."""

from arena.common.colors import NAMED
from arena.plan.diagram.sheet import TOP, WIDTH, Sheet
from arena.plan.diagram.styles import ENVIRONMENT, INK, MUTED, PAPER, PLAIN, SLATE, Style, line_color, mix, tint

BLUE = NAMED["blue"]
LINE = line_color(BLUE)
ACTING, LEARNING = TOP + 4, TOP + 176


def draw() -> str:
    """Return the picture as SVG."""
    sheet = Sheet(
        WIDTH,
        "A team with a central critic",
        "The critic reads the global state of the copy while the team learns; the actor never does.",
    )
    sheet.card(24, ACTING, 132, 318, ENVIRONMENT, "environment", "process", "3 entities of a team")
    _acting(sheet)
    _learning(sheet)
    return sheet.svg(TOP + 352)


def _acting(sheet: Sheet) -> None:
    """Draw the path of acting: observation, actor, action."""
    sheet.card(212, ACTING, 664, 142, Style(mix(BLUE, PAPER, 0.9), LINE, INK), radius=10, z=0)
    sheet.text(226, ACTING + 22, "acting", 14, weight="bold")
    sheet.text(862, ACTING + 22, "also in evaluation, leagues, serving and export", 12, fill=MUTED, anchor="end")
    sheet.card(226, ACTING + 46, 176, 54, PLAIN, "own observation", "of one entity")
    sheet.card(474, ACTING + 46, 150, 54, PLAIN, "actor", "the same for all entities")
    sheet.card(696, ACTING + 46, 166, 54, PLAIN, "action")
    sheet.line([(156, ACTING + 73), (226, ACTING + 73)], end=True)
    sheet.line([(402, ACTING + 73), (474, ACTING + 73)], end=True)
    sheet.line([(624, ACTING + 73), (696, ACTING + 73)], end=True)
    sheet.line([(779, ACTING + 100), (779, ACTING + 124), (156, ACTING + 124)], end=True)


def _learning(sheet: Sheet) -> None:
    """Draw the path of learning: global state, critic, advantages, loss."""
    dashed = Style(tint(BLUE, 0.95).fill, LINE, INK, "5 4")
    sheet.card(212, LEARNING, 664, 146, dashed, radius=10, z=0)
    sheet.text(226, LEARNING + 134, "learning only", 14, weight="bold")
    sheet.text(862, LEARNING + 134, "only seats of policies that learn receive the state", 12, fill=MUTED, anchor="end")
    sheet.card(226, LEARNING + 40, 176, 54, PLAIN, "global state", "env.state: auto | joint")
    sheet.card(474, LEARNING + 40, 150, 54, PLAIN, "critic", "critic: central")
    sheet.card(696, LEARNING + 40, 166, 54, PLAIN, "value, advantage", "gradients of both networks")
    sheet.line([(156, LEARNING + 67), (226, LEARNING + 67)], LINE, end=True)
    sheet.line([(402, LEARNING + 67), (474, LEARNING + 67)], LINE, end=True)
    sheet.line([(624, LEARNING + 67), (696, LEARNING + 67)], LINE, end=True)
    # the critic reads the own observation, too
    sheet.line([(314, ACTING + 100), (314, LEARNING + 18), (549, LEARNING + 18), (549, LEARNING + 40)], SLATE, end=True)
