"""Who did better in an episode: by what the environment said of its outcome, else by returns."""

from collections.abc import Sequence
from typing import Any

WORDS = {"win": 1.0, "draw": 0.0, "loss": -1.0}


def scores_of(groups: Sequence[Sequence[int]], returns: Sequence[float], outcomes: Sequence[Any]) -> list[float]:
    """Return a number for each group of entities that met in an episode; the higher one has done better.

    Args:
      groups: the entities of each.
      returns: of all entities.
      outcomes: what the environment said of each entity (``win``, ``draw``, ``loss``, or a rank with 0 as the best), or
        None. Where it said nothing of some group, or words of one and ranks of another, mean returns decide.
    """
    said = [next((outcomes[e] for e in group if outcomes[e] is not None), None) for group in groups]
    words = [WORDS[outcome] for outcome in said if isinstance(outcome, str) and outcome in WORDS]
    ranks = [-float(outcome) for outcome in said if isinstance(outcome, int | float)]
    for scores in (words, ranks):
        if len(scores) == len(groups):
            return scores
    return [sum(float(returns[e]) for e in group) / len(group) for group in groups]


def ranks_of(scores: Sequence[float]) -> list[int]:
    """Return the rank of each score: 1 for the highest, the same one for equal scores."""
    return [1 + sum(other > score for other in scores) for score in scores]
