"""Snapshots of a player that the leader of its group writes for evaluations while training."""

from typing import TYPE_CHECKING

from arena.protocol.evaluation import Snapshot
from arena.records.run_directory import RunDirectory
from arena.tensors.weights import write_tensors

if TYPE_CHECKING:
    from arena.group.member import Member


class EvaluationSnapshots:
    """Writes the weights of a player whenever so many of its transition steps have passed."""

    def __init__(self, member: "Member", every: int, begun: int) -> None:
        """Prepare.

        Args:
          member: the first rank of the player's group.
          every: transition steps between two evaluations.
          begun: transition steps of the player before this round, or this attempt of it.
        """
        config = member.context.config
        self._member, self._every = member, every
        self._run = RunDirectory(config.run_root, config.name)
        self._is_evaluated = member.player in config.evaluated_players()
        self._offered = begun

    def offer(self, *, at_once: bool) -> None:
        """Write the weights and report them to the root, if they are due; ``at_once`` if there are new ones at all."""
        steps, before = self._member.steps_of_player(), self._offered
        is_due = steps > before if at_once else steps // self._every > before // self._every
        if not self._is_evaluated or not is_due or not self._can_be_evaluated():
            return
        self._offered = steps
        weights = self._member.weights()
        path = self._run.evaluated(self._member.player, steps)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_tensors(path, weights, {"steps": str(steps)})
        except OSError as error:
            self._member.log_line("WARNING", f"an evaluation of {self._member.player} is skipped: {error}")
            return
        self._member.context.mailbox.post(0, Snapshot(self._member.player, steps, str(path)))

    def _can_be_evaluated(self) -> bool:
        """Return whether the policy has what an evaluation needs; log what it lacks, once."""
        policy = getattr(self._member, "policy", None)
        needed = ("act", "state_dict", "load_state_dict")
        missing = [] if self._member.act_learn else [name for name in needed if not hasattr(policy, name)]
        if missing:
            self._is_evaluated = False
            lacks = f"{self._member.settings.use} has no {' and no '.join(missing)}"
            self._member.log_line("WARNING", f"{self._member.player} is not evaluated: {lacks}")
        return not missing
