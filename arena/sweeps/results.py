"""Result of a sweep."""

from pathlib import Path
from typing import NamedTuple


class SweepResult(NamedTuple):
    """A sweep that has ended.

    Attributes:
      path: directory of its runs.
      finished: number of finished runs; of a search, of trials that have spent their budget.
      failed: name of each failed run -> its last line.
    """

    path: Path
    finished: int
    failed: dict[str, str]
