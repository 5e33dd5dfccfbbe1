"""Evaluations while training: a row for each, and its place in TensorBoard and in the live statistics."""

import json
import time
from collections.abc import Mapping, Sequence

import numpy as np

from arena.records.database import Database
from arena.records.player_statistics import Evaluation, PlayerStatistics
from arena.records.writers.tensorboard import EventFiles

NO_OTHERS: Mapping[str, int] = {}


class EvaluationRows:
    """Writer of evaluations; only the root process has one.

    Attributes:
      best: player -> highest mean return of an evaluation so far, also of earlier attempts.
      waited: seconds in which the run has waited for evaluations after its training.
    """

    def __init__(
        self, database: Database, events: EventFiles | None, attempt: int, players: Mapping[str, PlayerStatistics]
    ) -> None:
        """Read the best evaluations of earlier attempts."""
        self._database, self._events, self._attempt, self._players = database, events, attempt, players
        self.waited = 0.0
        self.best: dict[str, float] = dict(database.rows("SELECT player, max(mean) FROM evaluations GROUP BY player"))

    def add(
        self,
        player: str,
        steps: int,
        returns: Sequence[float],
        seconds: float,
        snapshot: str,
        others: Mapping[str, int] = NO_OTHERS,
    ) -> Evaluation:
        """Record an evaluation of a player.

        Args:
          player: name of the player.
          steps: transition steps that its weights have learned from.
          returns: return of each episode.
          seconds: duration of the evaluation.
          snapshot: its weights file, relative to the run directory; it may be removed later.
          others: other learning player that took part -> steps of its weights.
        """
        values = np.array(returns, np.float64)
        deviation = float(values.std(ddof=1)) if len(values) > 1 else 0.0
        evaluation = Evaluation(steps, len(values), float(values.mean()), deviation)
        now = time.time()
        row = (
            self._attempt, player, steps, now, evaluation.episodes, evaluation.mean, deviation, float(values.min()),
            float(values.max()), seconds, snapshot, json.dumps(others),
        )  # fmt: skip
        self._database.add("INSERT INTO evaluations VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        if self._events is not None:
            self._events.scalars(player, {"eval/return": evaluation.mean, "eval/deviation": deviation}, steps, now)
        if player in self._players:
            self._players[player].evaluated(evaluation)
        self.best[player] = max(evaluation.mean, self.best.get(player, evaluation.mean))
        return evaluation

    def steps_of(self, player: str) -> set[int]:
        """Return the steps at which a player has been evaluated, also in earlier attempts."""
        return {steps for (steps,) in self._database.rows("SELECT steps FROM evaluations WHERE player = ?", (player,))}

    def reached(self, threshold: float, resumed: Mapping[str, int]) -> set[str]:
        """Return the players with an evaluation of at least this mean, up to the steps that a run resumes from."""
        query = "SELECT DISTINCT player, min(steps) FROM evaluations WHERE mean >= ? GROUP BY player"
        return {player for player, steps in self._database.rows(query, (threshold,)) if steps <= resumed.get(player, 0)}

    def remove_after(self, resumed: Mapping[str, int]) -> None:
        """Remove the evaluations that a deterministic run will record again."""
        for row in resumed.items():
            self._database.add("DELETE FROM evaluations WHERE player = ? AND steps > ?", row)
