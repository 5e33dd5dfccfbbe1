"""Messages of evaluations while training: snapshots, requests and reports."""

from typing import NamedTuple


class Snapshot(NamedTuple):
    """Group leader to root: weights of a player that are to be evaluated.

    Attributes:
      player: name of the player.
      steps: transition steps that they have learned from.
      path: path of the weights file.
    """

    player: str
    steps: int
    path: str


class EvaluationRequest(NamedTuple):
    """Root to evaluator: an evaluation to carry out.

    Attributes:
      number: number of the evaluation, from 1.
      weights: learning player -> path of its weights file.
    """

    number: int
    weights: dict[str, str]


class EvaluationReport(NamedTuple):
    """Evaluator to root: the result of an evaluation, or a sign of life during one.

    Attributes:
      number: number of the request.
      returns: player -> return of each of its episodes; None during the evaluation.
      seconds: duration of the evaluation.
      fault: reason why it has failed; empty otherwise.
    """

    number: int
    returns: dict[str, list[float]] | None
    seconds: float = 0.0
    fault: str = ""


class StopEvaluating(NamedTuple):
    """Root to the evaluator's rank: end its round, and an evaluation in progress with it."""
