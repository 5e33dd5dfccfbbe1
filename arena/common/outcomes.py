"""Ranks of the sides of an episode, by the outcomes that the environment reported or else by returns."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

WORDS = {"win": 1.0, "draw": 0.0, "loss": -1.0}


def scores_of(groups: Sequence[Sequence[int]], returns: Sequence[float], outcomes: Sequence[Any]) -> list[float]:
    """Return a score for each group of entities that played an episode; a higher score is better.

    Args:
      groups: the entities of each group.
      returns: undiscounted return of each entity.
      outcomes: reported outcome of each entity (``win``, ``draw``, ``loss``, or a rank with 0 as the best), or None. If
        a group has none, or groups mix words and ranks, mean returns decide.
    """
    group_outcomes = [next((outcomes[e] for e in group if outcomes[e] is not None), None) for group in groups]
    words = [WORDS[outcome] for outcome in group_outcomes if isinstance(outcome, str) and outcome in WORDS]
    ranks = [-float(outcome) for outcome in group_outcomes if isinstance(outcome, int | float)]
    for scores in (words, ranks):
        if len(scores) == len(groups):
            return scores
    return [sum(float(returns[e]) for e in group) / len(group) for group in groups]


def ranks_of(scores: Sequence[float]) -> list[int]:
    """Return the rank of each score: 1 for the highest; equal scores share a rank."""
    return [1 + sum(other > score for other in scores) for score in scores]


def is_snapshot_of(name: str, player: str) -> bool:
    """Return whether a name is that of a league's snapshot of a player: ``main_0_2000`` of ``main_0``."""
    parent, _, steps = name.rpartition("_")
    return parent == player and steps.isdecimal()


@lru_cache(maxsize=1024)
def against_own_snapshots(players: tuple[str, ...]) -> frozenset[str]:
    """Return the players that meet others, all of which are snapshots of them; ``players`` has one for each entity."""
    names = set(players)
    return frozenset(
        name
        for name in names
        if len(names) > 1 and all(is_snapshot_of(other, name) for other in names if other != name)
    )
