"""Snapshots of a player that the leader of its group writes for evaluations while training."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from arena.group.context import Context
from arena.protocol.evaluation import Snapshot
from arena.protocol.messages import LogLine
from arena.records.run_directory import RunDirectory
from arena.tensors.weights import write_tensors

NEEDED_METHODS = "act", "state_dict", "load_state_dict"
"""Names of the methods of a policy that an evaluation calls."""


class EvaluationSnapshots:
    """Writes the weights of a player whenever so many of its transition steps have passed."""

    def __init__(self, context: Context, player: str, every: int, begun: int) -> None:
        """Prepare.

        Args:
          context: context of the first rank of the player's group.
          player: the player.
          every: transition steps between two evaluations.
          begun: transition steps of the player before this round, or this attempt of it.
        """
        config = context.config
        self._context, self._player, self._every = context, player, every
        self._run = RunDirectory(config.run_root, config.name)
        self._is_evaluated = player in config.evaluated_players()
        self._offered = begun

    def offer(
        self, steps: int, weights: Callable[[], Mapping[str, Any]], missing: Sequence[str], *, at_once: bool
    ) -> None:
        """Write the weights and report them to the root, if they are due.

        Args:
          steps: transition steps of the player.
          weights: function that returns the weights that acting needs.
          missing: names of ``NEEDED_METHODS`` that the policy lacks; it is not evaluated if there are any.
          at_once: whether any new weights are due.
        """
        before = self._offered
        is_due = steps > before if at_once else steps // self._every > before // self._every
        if not self._is_evaluated or not is_due:
            return
        if missing:
            self._is_evaluated = False
            use = self._context.config.players[self._player].use
            self._warn(f"{self._player} is not evaluated: {use} has no {' and no '.join(missing)}")
            return
        self._offered = steps
        path = self._run.evaluated(self._player, steps)
        tensors = weights()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_tensors(path, tensors, {"steps": str(steps)})
        except OSError as error:
            self._warn(f"an evaluation of {self._player} is skipped: {error}")
            return
        self._context.mailbox.post(0, Snapshot(self._player, steps, str(path)))

    def _warn(self, text: str) -> None:
        self._context.mailbox.post(0, LogLine(self._context.world.rank, "WARNING", text))
