"""Callbacks of a league that save, load, launch and roll back; and the result of advancing it."""

from collections.abc import Callable
from typing import Any, NamedTuple

from arena.league.player import HistoricalPlayer

SaveCheckpoint = Callable[[str, str], object]
"""Called with a player's ``checkpoint_path`` and the path at which its current weights are to be kept."""
LoadCheckpoint = Callable[[str, str], object]
"""Called with a player's id and the path of the weights that it is reset to."""
LaunchJob = Callable[[dict[str, Any]], object]
"""Called with a job."""
RollBack = Callable[[str, HistoricalPlayer], object]
"""Called with a player's id and the snapshot of it that it continues from."""


class AdvanceResult(NamedTuple):
    """Result of one call of ``advance``.

    Attributes:
      snapshots: the new historical players.
      mutated: ids of players reset after that.
      launched: jobs that were launched.
      failed: jobs with a launch that raised, and the exception; their slots are free again.
      rolled_back: ids of players that had got worse, in place of a snapshot of them.
    """

    snapshots: tuple[HistoricalPlayer, ...] = ()
    mutated: tuple[str, ...] = ()
    launched: tuple[dict[str, Any], ...] = ()
    failed: tuple[tuple[dict[str, Any], Exception], ...] = ()
    rolled_back: tuple[str, ...] = ()
