"""A league's player as seen by its own group: schedules, restarts, and published weights."""

from pathlib import Path
from typing import Any

from arena.common import registry
from arena.common.waiting import Pacer
from arena.group.context import Context
from arena.protocol.league import Job, Published, Restart
from arena.records.run_directory import RunDirectory, training_state_of
from arena.tensors.weights import read_state, write_tensors


class LeaguePlayer:
    """The league's side of a rank that learns.

    Attributes:
      restarts: number of the player's restarts so far.
      restarted_at: transition steps of the player at the latest restart.
    """

    def __init__(self, context: Context, player: str) -> None:
        """Read the player's restarts and published weights from the run."""
        assert context.config.league is not None
        self._run = RunDirectory(context.config.run_root, context.config.name)
        self._player = player
        self.restarts, self.restarted_at = context.start.restarts.get(player, (0, 0))
        self._pacer = Pacer(context.config.league.publish_every)
        self._published = -1
        self._configured: int | None = None
        member = context.config.league.manager(context.config.seed).player(player)
        self._life: int | None = member.steps_between_resets
        self._may_roll_back = getattr(member, "own_games", None) is not None

    def restart(self, policy: Any, restart: Restart, steps: int) -> None:
        """Load the weights of a restart into a new policy; after a rollback also the optimizer, if it was kept.

        Args:
          policy: the policy.
          restart: the league's order.
          steps: transition steps of the player; schedules begin here, unless it is rolled back.
        """
        self.restarts = restart.number
        if restart.snapshot is None:
            self.restarted_at = steps
        registry.load_policy_weights(policy, self.weights_file(restart.path))
        if restart.has_state:
            policy.load_state_dict(read_state(training_state_of(self.weights_file(restart.path))))
        self.forget_configuration()

    def weights_file(self, path: str) -> Path:
        """Return the location of a weights file that the league names."""
        return self._run.path / path

    def configure(self, policy: Any, job: Job | None) -> None:
        """Apply the newest job's settings of acting and data to a policy that supports them."""
        if job is None or job.id == self._configured:
            return
        self._configured = job.id
        if (job.forward or job.data) and hasattr(policy, "configure"):
            policy.configure(job.forward, job.data)

    def forget_configuration(self) -> None:
        """Apply the settings again to the next policy."""
        self._configured = None

    def progress(self, steps: int, budget: int) -> float:
        """Return the elapsed fraction of the player's schedules: each restart begins them again.

        They end with the budget, or with the phase of a player that is restarted after each phase.
        """
        length = self._life or budget - self.restarted_at
        return min(1.0, (steps - self.restarted_at) / max(1, length))

    def publish(self, policy: Any, steps: int, *, at_once: bool = False, finished: bool = False) -> Published | None:
        """Write the player's weights where other ranks find them, if due; return the report to the root."""
        if not at_once and not self._pacer.due():
            return None
        directory = self._run.players / self._player / "published"
        directory.mkdir(parents=True, exist_ok=True)
        if self._published < 0:  # an earlier attempt has left files, which never change
            self._published = max((int(path.stem) for path in directory.glob("*.safetensors")), default=-1)
        self._published += 1
        path = directory / f"{self._published}.safetensors"
        if self._may_roll_back:  # first: the weights' file is the one that others look for
            training_state_of(path).parent.mkdir(exist_ok=True)
            write_tensors(training_state_of(path), policy.state_dict())
        write_tensors(path, policy.weights(), {"steps": str(steps)})
        return Published(self._player, str(path.relative_to(self._run.path)), steps, self.restarts, finished)
