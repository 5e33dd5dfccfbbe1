"""Picture 3: the proxy gives a policy its Gymnasium loop; behind it each step travels as two fixed messages."""

from collections.abc import Sequence

from arena.common.colors import NAMED
from arena.plan.diagram.sheet import TOP, WIDTH, Sheet, text_width
from arena.plan.diagram.styles import INK, MUTED, PAPER, PLAIN, SLATE, Style, line_color, mix, text_color
from arena.protocol.wire import ObservationMessage

BLUE = NAMED["blue"]
WORKER = Style(mix(BLUE, PAPER, 0.9), line_color(BLUE), INK)
ENVIRONMENT_SIDE = Style(mix(SLATE, PAPER, 0.9), SLATE, INK)
BUFFER = Style(mix(SLATE, PAPER, 0.78), SLATE, INK)
LOOP = (
    "observation, info = env.reset(seed=7)",
    "while learning:",
    "    action = decide(observation)",
    "    observation, reward, terminated, \\",
    "        truncated, info = env.step(action)",
)
ACTIONS = (("header", 70), ("actions of the seat's entities, in the dtype of their space", 782))
OBSERVATION_PARTS = tuple(name.replace("_", " ") for name in ObservationMessage._fields if name != "buffer")
"""What the message holds, in its order; the buffer is all of it."""

FORMS = (
    ("one entity, one copy", "gymnasium.Env"),
    ("one entity, several copies", "gymnasium.vector.VectorEnv"),
    ("several entities", "PettingZoo ParallelEnv"),
)


def draw() -> str:
    """Return the picture as SVG."""
    sheet = Sheet(WIDTH, "Proxy", "The policy sees a true environment; the one it steps lives in another process.")
    _worker(sheet)
    _environment(sheet)
    sheet.line([(450, TOP + 4), (450, TOP + 68)], MUTED, dash="4 4")
    for n, line in enumerate(("memory,", "or MPI to", "another", "machine")):
        sheet.text(450, TOP + 90 + 18 * n, line, 12, anchor="middle", fill=MUTED, weight="normal" if n else "bold")
    sheet.line([(450, TOP + 158), (450, TOP + 222)], MUTED, dash="4 4")
    sheet.line([(368, TOP + 247), (532, TOP + 247)], end=True, z=4)
    sheet.line([(532, TOP + 288), (368, TOP + 288)], end=True, z=4)
    sheet.text(450, TOP + 239, "actions", 12, anchor="middle", fill=MUTED)
    sheet.text(450, TOP + 306, "observations", 12, anchor="middle", fill=MUTED)
    _message(
        sheet,
        TOP + 356,
        "action message",
        "worker process to environment process, one for each batch of copies",
        ACTIONS,
    )
    _message(
        sheet,
        TOP + 434,
        "observation message",
        "environment process to worker process, one for each batch of copies",
        _parts(OBSERVATION_PARTS, widest="observations"),
    )
    for n, (seat, form) in enumerate(FORMS):
        sheet.card(24 + n * 288, TOP + 516, 276, 50, PLAIN, form, f"for a seat with {seat}")
    return sheet.svg(TOP + 588)


def _worker(sheet: Sheet) -> None:
    sheet.card(24, TOP, 372, 330, WORKER, radius=10, stroke_width=1.8, z=0)
    sheet.text(40, TOP + 23, "worker process", 14, weight="bold", fill=text_color(BLUE))
    sheet.card(40, TOP + 36, 340, 132, PLAIN)
    sheet.text(52, TOP + 57, "policy", 13, weight="bold")
    for n, line in enumerate(LOOP):
        sheet.text(52, TOP + 81 + 18 * n, line, 12, mono=True, room=320)
    sheet.card(40, TOP + 216, 340, 100, PLAIN)
    sheet.text(52, TOP + 238, "proxy", 13, weight="bold")
    for n, line in enumerate(("is the env that", "the policy gets")):
        sheet.text(52, TOP + 260 + 17 * n, line, 12, fill=MUTED)
    sheet.card(216, TOP + 230, 152, 34, BUFFER, "send buffer")
    sheet.card(216, TOP + 271, 152, 34, BUFFER, "receive buffer")
    sheet.line([(100, TOP + 168), (100, TOP + 216)], end=True)
    sheet.text(110, TOP + 196, "action", 12, fill=MUTED)
    sheet.line([(200, TOP + 216), (200, TOP + 168)], end=True)
    sheet.text(210, TOP + 196, "observation, reward, ...", 12, fill=MUTED)


def _environment(sheet: Sheet) -> None:
    sheet.card(504, TOP, 372, 330, ENVIRONMENT_SIDE, radius=10, stroke_width=1.8, z=0)
    sheet.text(520, TOP + 23, "environment process", 14, weight="bold", fill=SLATE)
    sheet.card(520, TOP + 36, 340, 132, PLAIN)
    sheet.text(532, TOP + 57, "environment", 13, weight="bold")
    sheet.text(848, TOP + 57, "in num_envs copies", 12, fill=MUTED, anchor="end")
    for n, line in enumerate(("timestep = environment.reset(seed)", "timestep = environment.step(actions)")):
        sheet.text(532, TOP + 87 + 22 * n, line, 12, mono=True, room=320)
    sheet.text(532, TOP + 147, "lists with one item for each entity of the match", 12, fill=MUTED)
    sheet.card(520, TOP + 216, 340, 100, PLAIN)
    sheet.text(848, TOP + 238, "seat 0", 13, weight="bold", anchor="end")
    for n, line in enumerate(("every seat has a pair", "of such buffers")):
        sheet.text(848, TOP + 260 + 17 * n, line, 12, fill=MUTED, anchor="end")
    sheet.card(532, TOP + 230, 152, 34, BUFFER, "receive buffer")
    sheet.card(532, TOP + 271, 152, 34, BUFFER, "send buffer")
    sheet.line([(608, TOP + 216), (608, TOP + 168)], end=True)
    sheet.text(618, TOP + 196, "actions of all seats", 12, fill=MUTED)
    sheet.line([(760, TOP + 168), (760, TOP + 216)], end=True)
    sheet.text(770, TOP + 196, "own entities", 12, fill=MUTED)


def _parts(names: Sequence[str], widest: str) -> tuple[tuple[str, float], ...]:
    """Return each part with its width: what its name takes, and for the widest one what is left of the page."""
    widths = {name: text_width(name, 11.5) + 16 for name in names if name != widest}
    widths[widest] = 852 - sum(widths.values())
    return tuple((name, widths[name]) for name in names)


def _message(sheet: Sheet, y: float, name: str, way: str, parts: Sequence[tuple[str, float]]) -> None:
    """Draw the parts of a message side by side."""
    sheet.text(24, y + 12, name, 13, weight="bold")
    sheet.text(876, y + 12, way, 12, fill=MUTED, anchor="end")
    x: float = 24
    for part, width in parts:
        body = part.startswith(("actions", "observations"))
        style = Style(mix(BLUE, PAPER, 0.72), line_color(BLUE), INK) if body else BUFFER
        sheet.card(x, y + 22, width, 34, style, radius=3)
        sheet.text(x + width / 2, y + 43, part, 11.5, anchor="middle", room=width - 6)
        x += width
