"""State of a run at its root, which the parts of the root share."""

from dataclasses import dataclass, field

from arena.comms import Mailbox, World
from arena.config.run import RunConfig
from arena.plan.assignment import Plan
from arena.records.run_directory import RunDirectory
from arena.records.writers.run import RecordWriter
from arena.report.progress import ProgressView
from arena.root.run_progress import RunProgress


@dataclass
class RunState:
    """State of a run.

    Attributes:
      world: all ranks.
      mailbox: mailbox of the root.
      config: the validated configuration.
      run: the run directory.
      records: records of the run.
      view: the live view.
      progress: progress of the run, and its checkpoints.
      stopped_code: exit code of a run that a signal has stopped.
      plan: plan of the current round; None before the first.
      roles: role of each rank in the current round, by its number at the start.
      gateways: address of each match's gateway, by match.
      given_up: a sentence for each match that was given up.
    """

    world: World
    mailbox: Mailbox
    config: RunConfig
    run: RunDirectory
    records: RecordWriter
    view: ProgressView
    progress: RunProgress
    stopped_code: int = 0
    plan: Plan | None = None
    roles: dict[int, str] = field(default_factory=dict)
    gateways: dict[int, str] = field(default_factory=dict)
    given_up: list[str] = field(default_factory=list)

    def role_of(self, origin: int) -> str:
        """Return the role of a rank in the current round, given its number at the start."""
        return self.roles.get(origin, "no part yet")
