"""A page and the shapes of all pictures of the arena, drawn with drawsvg."""

from collections.abc import Sequence

import drawsvg

from arena.plan.diagram.styles import HAIR, INK, MUTED, PAPER, PLAIN, SLATE, Style

SANS = "Helvetica Neue, Helvetica, Arial, Liberation Sans, sans-serif"
MONO = "SFMono-Regular, Menlo, Consolas, Liberation Mono, monospace"
WIDTH = 900  # pixels that a README shows without scaling
MARGIN, TOP = 24, 78  # left margin, and top of the content below title and subtitle
SMALLEST = 9.5  # pixels; text that does not fit at this size is cut
HEAD = 7.0  # length of an arrow head


def text_width(text: str, size: float, weight: str = "normal", mono: bool = False) -> float:
    """Return an upper bound of the width of ``text`` in the fonts that viewers fall back to."""
    if mono:
        return 0.61 * size * len(text)
    return sum(_ems(letter) for letter in text) * size * (1.1 if weight == "bold" else 1.0)


def _ems(letter: str) -> float:
    """Return an upper bound of a letter's width, as a part of the size."""
    if letter in " .,:;|'ijlI/·":
        return 0.37
    if letter in "!()[]frt-":
        return 0.46
    if letter in "csz":
        return 0.56
    if letter in "mwMW#%&+<=>@^~" or (not letter.isascii() and letter != "–"):
        return 1.01
    return 0.79 if letter.isupper() else 0.66


def fit(text: str, size: float, room: float, weight: str = "normal", mono: bool = False) -> tuple[str, float]:
    """Return ``text`` and its size, reduced and finally cut so that it is at most ``room`` wide."""
    needed = text_width(text, size, weight, mono)
    if needed > room:
        size = max(min(size, SMALLEST), size * room / needed)
    if text_width(text, size, weight, mono) > room + 0.1:
        text = text[: int(room / (0.3 * size)) + 2]  # no letter is narrower
    while len(text) > 1 and text_width(text, size, weight, mono) > room + 0.1:
        text = text.rstrip("…")[:-1].rstrip() + "…"
    return text, size


def _n(value: float) -> float:
    value = round(value, 1)
    return int(value) if value == int(value) else value


class Sheet:
    """A page of shapes; a shape with a higher ``z`` covers one with a lower ``z``."""

    def __init__(self, width: float, title: str, subtitle: str) -> None:
        self.width, self.title = width, title
        self._shapes = drawsvg.Group(font_family=SANS)
        self.text(MARGIN, 40, title, 19, weight="bold", room=width - 2 * MARGIN)
        self.text(MARGIN, 61, subtitle, 13, fill=MUTED, room=width - 2 * MARGIN)

    def card(
        self, x: float, y: float, width: float, height: float, style: Style = PLAIN, *lines: str,
        radius: float = 6, stroke_width: float = 1.3, size: float = 12.5, mono: bool = False, z: int = 3,
    ) -> None:  # fmt: skip
        """Draw a rounded box with centred lines of text in it, the first one bold."""
        look: dict[str, str | float] = {"fill": style.fill, "stroke": style.stroke, "stroke_width": stroke_width}
        look |= {"stroke_dasharray": style.dash} if style.dash else {}
        self._shapes.append(
            drawsvg.Rectangle(_n(x), _n(y), _n(width), _n(height), rx=_n(min(radius, height / 2)), **look), z=z
        )
        for index, line in enumerate(lines):
            middle = y + height / 2 + (index - (len(lines) - 1) / 2) * size * 1.32
            weight, smaller = ("normal", 1.0) if index or mono else ("bold", 0.0)
            self.text(x + width / 2, middle + size * 0.35, line, size - smaller, fill=style.ink, anchor="middle",
                      weight=weight, room=width - 8, mono=mono, z=z)  # fmt: skip

    def text(
        self, x: float, y: float, text: str, size: float = 12.5, *, fill: str = INK, anchor: str = "start",
        weight: str = "normal", room: float | None = None, mono: bool = False, z: int = 4,
    ) -> None:  # fmt: skip
        """Write one line; ``room`` is the available width."""
        text, size = fit(text, size, room if room is not None else self.width, weight, mono)
        look = {"text_anchor": anchor} if anchor != "start" else {}
        look |= {"font_weight": weight} if weight != "normal" else {}
        if mono:
            look |= {"font_family": MONO}
            x += 0.6 * size * (len(text) - len(text.lstrip()))  # viewers drop leading spaces
        self._shapes.append(drawsvg.Text(text, _n(size), x=_n(x), y=_n(y), fill=fill, **look), z=z)

    def line(
        self, points: Sequence[tuple[float, float]], color: str = SLATE, *, width: float = 1.7,
        dash: str | None = None, start: bool = False, end: bool = False, radius: float = 6, z: int = 2,
    ) -> None:  # fmt: skip
        """Draw a line through ``points`` with rounded corners, and optional arrow heads."""
        points = list(points)
        if end:
            points[-1] = self._head(points[-1], points[-2], color, z)
        if start:
            points[0] = self._head(points[0], points[1], color, z)
        path = drawsvg.Path(
            fill="none", stroke=color, stroke_width=width, **({"stroke_dasharray": dash} if dash else {})
        )
        path.M(*map(_n, points[0]))
        for before, corner, after in zip(points, points[1:], points[2:], strict=False):
            path.L(*map(_n, _towards(corner, before, radius)))
            path.Q(*map(_n, (*corner, *_towards(corner, after, radius))))
        self._shapes.append(path.L(*map(_n, points[-1])), z=z)

    def _head(self, tip: tuple[float, float], tail: tuple[float, float], color: str, z: int) -> tuple[float, float]:
        (x, y), (bx, by) = tip, _towards(tip, tail, HEAD)
        dx, dy = (by - y) * 0.5, (x - bx) * 0.5
        corners = (x, y, bx + dx, by + dy, bx - dx, by - dy)
        self._shapes.append(drawsvg.Lines(*map(_n, corners), close=True, fill=color), z=z)
        return _towards(tip, tail, HEAD - 1)

    def svg(self, height: float) -> str:
        """Return the page, with a light background of its own so that it is legible on dark pages too."""
        page = drawsvg.Drawing(_n(self.width), _n(height), role="img")
        page.append_title(self.title)
        page.append(drawsvg.Rectangle(0.5, 0.5, _n(self.width - 1), _n(height - 1), rx=10, fill=PAPER, stroke=HAIR))
        page.append(self._shapes)
        return page.as_svg() + "\n"


def _towards(point: tuple[float, float], other: tuple[float, float], distance: float) -> tuple[float, float]:
    """Return the point ``distance`` away from ``point``, at most half way, in the direction of ``other``."""
    dx, dy = other[0] - point[0], other[1] - point[1]
    share = min(0.5, distance / max((dx * dx + dy * dy) ** 0.5, 1e-9))
    return point[0] + dx * share, point[1] + dy * share
