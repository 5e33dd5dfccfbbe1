"""Comparison of the pace of evaluations with that of the training that they follow."""

import time

from arena.common.text import duration
from arena.config.evaluate import EvaluateConfig

WORTH_SAYING = 10.0
"""Seconds of waiting after the training that are worth a line in the log."""


def ways_to_wait_less(section: EvaluateConfig) -> str:
    """Return a sentence about the keys with which a run waits less for its evaluations, or not at all."""
    rank = "" if section.ranks else "set evaluate.ranks: 1 where a core is free, "
    return (
        f"To wait less, raise evaluate.every, lower evaluate.episodes, {rank}or set evaluate.skip: true, which leaves "
        "out those that are late"
    )


class EvaluationPace:
    """Compares the duration of an evaluation with that of the training between two of them."""

    def __init__(self, section: EvaluateConfig, count: int) -> None:
        """Store the section ``evaluate``, and the number of evaluations of the run."""
        self._section, self._count = section, count
        self._first: dict[str, tuple[float, int]] = {}  # player -> time and steps of its first weights
        self._last: dict[str, tuple[float, int]] = {}
        self._is_said = False

    def weights_arrived(self, player: str, steps: int) -> None:
        """Note the time at which weights of a player have arrived."""
        self._last[player] = time.monotonic(), steps
        self._first.setdefault(player, self._last[player])

    def evaluated(self, seconds: float) -> str | None:
        """Return a note, once, if an evaluation has taken longer than the training between two of them.

        Args:
          seconds: duration of the evaluation.
        """
        training = [self._training(player) for player in self._first]
        least = min((each for each in training if each is not None), default=None)
        if self._is_said or self._section.skip or least is None:
            return None
        wait = (seconds - least) * self._count
        if wait < WORTH_SAYING:
            return None
        self._is_said = True
        return (
            f"evaluations take longer than training: {seconds:.1f} s each, and the {self._section.every:,} steps "
            f"between two of them {least:.1f} s; after it the run waits about {duration(wait)} for them. "
            f"{ways_to_wait_less(self._section)}"
        )

    def _training(self, player: str) -> float | None:
        """Return the seconds in which a player trains between two evaluations; None if it is not known yet."""
        (began, first), (ended, last) = self._first[player], self._last[player]
        return None if last - first < self._section.every else (ended - began) / (last - first) * self._section.every
