"""Health of a player that learns: signs that it has stopped to learn, or has unlearned what it could."""

from collections.abc import Collection
from typing import NamedTuple

from arena.records.player_statistics import PlayerStatistics

LOSING, RECOVERED = 0.3, 0.4
"""Share of points below which a player loses, and share from which a player that has lost no longer does."""

NO_CHANCE = 0.02
"""Share of the entropy of uniform actions below which a policy hardly draws actions: it explores no longer."""

ENOUGH = 24
"""Games from which a share of points counts."""


class Concern(NamedTuple):
    """A sign that a player does not learn.

    Attributes:
      kind: ``entropy`` or ``own snapshots``.
      text: a sentence without its subject, which is the player.
    """

    kind: str
    text: str


def concerns_of(statistics: PlayerStatistics, held: Collection[str] = ()) -> list[Concern]:
    """Return the concerns about a player that learns.

    Args:
      statistics: the player's results.
      held: kinds of concerns that held before: they end at a higher share of points, so that they do not come and go.
    """
    if not statistics.info.learns:
        return []
    concerns = []
    share, entropy = statistics.share_of_points, statistics.metrics.get("entropy_share")
    games = len(statistics.points)
    if (
        entropy is not None
        and entropy < NO_CHANCE
        and share is not None
        and games >= ENOUGH
        and share < _bar("entropy", held)
    ):
        concerns.append(
            Concern(
                "entropy",
                f"loses, and hardly tries anything else: it took {share:.0%} of the points of its last {games} games, "
                f"and its entropy is {entropy:.1%} of that of uniform actions; raise "
                "entropy_coefficient, or take larger updates",
            )
        )
    own, games = statistics.share_against_own_snapshots, len(statistics.own_points)
    if own is not None and games >= ENOUGH and own < _bar("own snapshots", held):
        concerns.append(
            Concern(
                "own snapshots",
                f"loses to its own snapshots: it took {own:.0%} of the points of its last {games} games against them; "
                "it has unlearned what they can",
            )
        )
    return concerns


def _bar(kind: str, held: Collection[str]) -> float:
    return RECOVERED if kind in held else LOSING
