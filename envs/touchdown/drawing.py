"""Pictures of Touchdown: the field from above, drawn with NumPy alone."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

CANVAS = 400
SCALE = 168  # pixels for a distance of 1; the rest shows the end zones and the entities that crossed into them
RUNNER_RADIUS = 8  # half of the touching distance, so that two runners touch when their discs do
PAPER, LINE, INK = (246, 245, 240), (198, 196, 188), (40, 40, 44)
# Five rows of three pixels for each glyph, the topmost row first, bit 2 is the left one.
GLYPHS = {
    "0": (7, 5, 5, 5, 7),
    "1": (2, 6, 2, 2, 7),
    "2": (7, 1, 7, 4, 7),
    "3": (7, 1, 7, 1, 7),
    "4": (5, 5, 7, 1, 1),
    "5": (7, 4, 7, 1, 7),
    "6": (7, 4, 7, 5, 7),
    "7": (7, 1, 1, 2, 2),
    "8": (7, 5, 7, 5, 7),
    "9": (7, 5, 7, 1, 7),
    "/": (1, 1, 2, 4, 4),
}


class Color(NamedTuple):
    """A colour on the screen, each part from 0 to 255."""

    red: int
    green: int
    blue: int


def draw_field(
    runners: Sequence[tuple[float, float, Color]], top_end: Color, bottom_end: Color, caption: str
) -> np.ndarray:
    """Return the field from above: uint8 ``[400, 400, 3]``.

    Args:
      runners: x, y and colour of each; later ones lie on top.
      top_end: tint of the end zone beyond y = 1.
      bottom_end: tint of the end zone beyond y = -1.
      caption: digits and slashes, written into the top left corner.
    """
    image = np.empty((CANVAS, CANVAS, 3), np.uint8)
    image[:] = PAPER
    middle = CANVAS // 2
    top, bottom = middle - SCALE, middle + SCALE
    image[:top] = _mix(top_end, PAPER, 0.35)
    image[bottom:] = _mix(bottom_end, PAPER, 0.35)
    image[middle - 1 : middle + 1, top:bottom] = LINE
    for edge in (top, bottom):
        image[edge - 1 : edge + 1] = LINE
        image[top:bottom, edge - 1 : edge + 1] = LINE
    for x, y, color in runners:
        _draw_disc(image, middle + SCALE * x, middle - SCALE * y, color)
    _draw_caption(image, caption, 10, 10)
    return image


def _mix(color: Sequence[int], ground: Sequence[int], share: float) -> list[int]:
    return [round(share * over + (1 - share) * under) for over, under in zip(color, ground, strict=True)]


def _draw_disc(image: np.ndarray, column: float, row: float, color: Sequence[int]) -> None:
    reach = RUNNER_RADIUS + 2
    rows = slice(max(int(row) - reach, 0), int(row) + reach + 1)
    columns = slice(max(int(column) - reach, 0), int(column) + reach + 1)
    patch = image[rows, columns]
    down, right = np.ogrid[rows.start : rows.start + patch.shape[0], columns.start : columns.start + patch.shape[1]]
    distance = np.hypot(down - row, right - column)
    patch[distance <= RUNNER_RADIUS] = _mix(color, INK, 0.55)
    patch[distance <= RUNNER_RADIUS - 1.5] = color


def _draw_caption(image: np.ndarray, text: str, column: int, row: int, pixel: int = 3) -> None:
    for place, letter in enumerate(text):
        for down, bits in enumerate(GLYPHS[letter]):
            for right in range(3):
                if bits >> (2 - right) & 1:
                    top, left = row + pixel * down, column + pixel * (4 * place + right)
                    image[top : top + pixel, left : left + pixel] = INK
