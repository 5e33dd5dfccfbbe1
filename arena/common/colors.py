"""The colour of each player, the same in the terminal, in the plots and in rendered games."""

import re
from collections.abc import Mapping

from arena.common.errors import ConfigError
from arena.common.text import suggestion

NAMED = {
    "blue": "#3b82f6",
    "red": "#ef4444",
    "green": "#22c55e",
    "yellow": "#eab308",
    "violet": "#8b5cf6",
    "teal": "#14b8a6",
    "orange": "#f97316",
    "pink": "#ec4899",
    "cyan": "#06b6d4",
    "lime": "#84cc16",
    "brown": "#a16207",
    "purple": "#a855f7",
    "magenta": "#d946ef",
    "gray": "#6b7280",
    "grey": "#6b7280",
    "black": "#374151",
    "white": "#cbd5e1",
}
"""Softer than the names' pure values, so that they read well on white paper and in a dark terminal."""

CYCLE = tuple(NAMED[name] for name in ("blue", "orange", "green", "violet", "red", "teal", "pink", "yellow", "brown"))
"""Colours of players without one of their own, in order; neighbours are easy to distinguish."""


def to_hex(color: str) -> str:
    """Return a colour as ``#rrggbb``.

    Args:
      color: ``#rgb``, ``#rrggbb``, a name of ``NAMED`` or any name of matplotlib (CSS names, ``tab:blue``).

    Raises:
      ConfigError: it is none of these.
    """
    color = color.strip().lower()
    if color in NAMED:
        return NAMED[color]
    if re.fullmatch("#[0-9a-f]{6}", color):
        return color
    if re.fullmatch("#[0-9a-f]{3}", color):
        return "#" + "".join(digit * 2 for digit in color[1:])
    from matplotlib import colors  # slow to import, and rarely needed

    if colors.is_color_like(color):
        return colors.to_hex(color)
    near = suggestion(color, [*NAMED, *colors.CSS4_COLORS])
    raise ConfigError(f"color: expected #rrggbb or a CSS color name, found {color!r}{near}")


def resolve(colors: Mapping[str, str | None]) -> dict[str, str]:
    """Return a colour ``#rrggbb`` for each player.

    Args:
      colors: configured colour of each player, None without one. A player named after a colour (``blue``) then gets
        that colour, the others get the unused ones of ``CYCLE``.

    Raises:
      ConfigError: a colour is unknown.
    """
    chosen = {player: to_hex(color) for player, color in colors.items() if color is not None}
    for player in colors:
        # "red_2" is a sibling of "red" and is named after no colour: two lines of one colour could not be
        # distinguished.
        if player not in chosen and player.lower() in NAMED:
            chosen[player] = NAMED[player.lower()]
    used = set(chosen.values())
    free = [color for color in CYCLE if color not in used] or list(CYCLE)
    others = [player for player in colors if player not in chosen]
    chosen.update({player: free[index % len(free)] for index, player in enumerate(others)})
    return {player: chosen[player] for player in colors}
