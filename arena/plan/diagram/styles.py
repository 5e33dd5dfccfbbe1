"""Colours and styles of all pictures of the arena, and functions that keep them legible."""

from typing import NamedTuple

PAPER, PANEL, WHITE = "#fbfbf8", "#f1f3f4", "#ffffff"
INK, MUTED, HAIR, SLATE = "#1d2730", "#56636f", "#c3cbd2", "#3b4d5e"


class Style(NamedTuple):
    """Style of a card.

    Attributes:
      fill: colour of its area.
      stroke: colour of its outline.
      ink: colour of its text.
      dash: lengths of the outline's strokes and gaps; None for a solid one.
    """

    fill: str
    stroke: str
    ink: str
    dash: str | None = None


ROOT = Style(WHITE, INK, INK)
ENVIRONMENT = Style(SLATE, SLATE, WHITE)
PLAIN = Style(WHITE, HAIR, INK)
FRAME = Style(PANEL, HAIR, MUTED)
IDLE = Style(PAPER, "#9aa5af", MUTED, "4 3")
AWAY = "3 2"


def _rgb(color: str) -> tuple[int, int, int]:
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)


def mix(color: str, other: str, share: float) -> str:
    """Return ``color`` with ``share`` of ``other`` in it; colours are ``#rrggbb``."""
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in zip(_rgb(color), _rgb(other), strict=True))


def contrast(color: str, background: str) -> float:
    """Return the contrast ratio of WCAG 2.1 (section 1.4.3), from 1 to 21."""

    def luminance(color: str) -> float:
        parts = [c / 3294.6 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in _rgb(color)]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    low, high = sorted((luminance(color), luminance(background)))
    return (high + 0.05) / (low + 0.05)


def darker(color: str, beside: str, least: float) -> str:
    """Return ``color``, darkened until its contrast to the lighter colour ``beside`` is at least ``least``."""
    return next(dark for dark in (mix(color, INK, n / 20) for n in range(21)) if contrast(dark, beside) >= least)


def line_color(color: str) -> str:
    """Return a player's colour, dark enough for lines on the page (WCAG 2.1 requires 3.0 for graphics)."""
    return darker(color, PAPER, 3.0)


def text_color(color: str) -> str:
    """Return a player's colour, dark enough for text on the page (WCAG 2.1 requires 4.5 for text)."""
    return darker(color, PAPER, 4.5)


def worker_style(color: str, *, away: bool = False) -> Style:
    """Return the style of a worker of the player with this colour: light colours carry dark text, others white.

    A worker ``away`` from the node of its environment process has a broken outline.
    """
    if contrast(color, INK) >= 5:
        return Style(color, line_color(color), INK, AWAY if away else None)
    fill = darker(color, WHITE, 4.5)
    return Style(fill, mix(fill, WHITE, 0.7), WHITE, AWAY) if away else Style(fill, fill, WHITE)


def tint(color: str, share: float = 0.86) -> Style:
    """Return the style of an area that belongs to the player with this colour; ``share`` of it is page colour."""
    return Style(mix(color, PAPER, share), mix(color, PAPER, 0.45), INK)
