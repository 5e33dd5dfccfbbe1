"""A scripted player of connect four: a search of two half-moves."""

from typing import Any

import numpy as np

from arena.common.seeding import new_generator
from arena.envs.interface import EntitySpaces
from arena.experience.rollout import Decision
from arena.policies.settings.random import RandomSettings

ROWS, COLUMNS, LINE = 6, 7, 4


def has_line(stones: np.ndarray) -> bool:
    """Return whether stones ``[6, 7]`` of one player have four in a row."""
    for down, right in ((0, 1), (1, 0), (1, 1), (1, -1)):
        found = stones.copy()
        for step in range(1, LINE):
            moved = np.zeros_like(stones)
            rows = slice(step * down, ROWS), slice(0, ROWS - step * down)
            across = step * right
            columns = slice(max(across, 0), COLUMNS + min(across, 0)), slice(max(-across, 0), COLUMNS - max(across, 0))
            moved[rows[1], columns[1]] = stones[rows[0], columns[0]]
            found &= moved
        if found.any():
            return True
    return False


def wins(own: np.ndarray, taken: np.ndarray) -> list[int]:
    """Return the columns in which one more stone of ``own`` completes a line, given all taken cells ``[6, 7]``."""
    columns = []
    for column in range(COLUMNS):
        row = ROWS - 1 - int(taken[:, column].sum())
        if row < 0:
            continue
        after = own.copy()
        after[row, column] = True
        if has_line(after):
            columns.append(column)
    return columns


class Minimax:
    """Minimax of depth two: it wins where it can, prevents a loss where it can, and draws among equal moves."""

    Settings = RandomSettings  # none
    horizon = 0
    extras: dict[str, Any] = {}  # noqa: RUF012 (the interface's)

    def __init__(self, spaces: EntitySpaces, settings: Any, *, lanes: int, seed: int, device: str = "cpu") -> None:
        """See ``Policy``."""
        self._random = new_generator(seed)

    def act(self, observations: Any, *, action_mask: Any = None, **_: Any) -> Decision:
        """Return moves for N boards ``[N, 6, 7, 2]``: own stones and those of the opponent."""
        boards = np.asarray(observations)
        legal = np.ones((len(boards), COLUMNS), bool) if action_mask is None else np.asarray(action_mask, bool)
        return Decision(np.array([self._move(*pair) for pair in zip(boards, legal, strict=True)], np.int64), {})

    def _move(self, board: np.ndarray, legal: np.ndarray) -> int:
        own, other = board[..., 0] > 0, board[..., 1] > 0
        taken, moves = own | other, np.flatnonzero(legal)
        winning = [move for move in wins(own, taken) if legal[move]]
        if winning:
            return int(self._random.choice(winning))
        safe = [move for move in moves if not wins(other, self._dropped(taken, move))]
        return int(self._random.choice(safe or moves.tolist()))

    @staticmethod
    def _dropped(taken: np.ndarray, column: int) -> np.ndarray:
        after = taken.copy()
        row = ROWS - 1 - int(taken[:, column].sum())
        if row >= 0:
            after[row, column] = True
        return after

    def learn(self, rollout: Any, group: Any) -> dict[str, float]:
        """See ``Policy``; it does not learn."""
        return {}

    def weights(self) -> dict[str, Any]:
        """See ``Policy``; it has none."""
        return {}
