"""A league's player as seen by its own group: schedules, restarts, and published weights."""

from pathlib import Path
from typing import Any

from arena.common.waiting import Pacer
from arena.group.context import Context
from arena.protocol.messages import Job, Published
from arena.records.run_directory import RunDirectory
from arena.tensors.weights import write_tensors


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
        manager = context.config.league.manager(context.config.seed)
        self._life: int | None = manager.player(player).steps_between_resets

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
        write_tensors(path, policy.weights(), {"steps": str(steps)})
        return Published(self._player, str(path.relative_to(self._run.path)), steps, self.restarts, finished)
