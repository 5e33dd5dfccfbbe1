"""Context of a process in one round."""

import logging
from typing import NamedTuple

from arena.common.seeding import derive_seed
from arena.common.waiting import Waiter
from arena.comms import Mailbox, World
from arena.config.rounds import Round
from arena.config.run import RunConfig
from arena.plan.assignment import Assignment, Plan
from arena.protocol.messages import RoundStart


class Context(NamedTuple):
    """The run as seen by one rank in one round.

    Attributes:
      world, mailbox, waiter: communication with the other ranks, and bounded waits.
      config: the validated configuration.
      round: the current round.
      start: the root's message at the start of the round.
      plan: roles of all ranks in the round.
      me: this rank's entry in the plan.
      log: this rank's log.
    """

    world: World
    mailbox: Mailbox
    waiter: Waiter
    config: RunConfig
    round: Round
    start: RoundStart
    plan: Plan
    me: Assignment
    log: logging.Logger

    @property
    def seed(self) -> int:
        """Root of this round's random streams: a different one in each round, and after each resume.

        In a deterministic run every checkpoint is made at the same steps, and continuing from one is a resume.
        """
        return derive_seed(self.config.seed, "round", self.start.number, *sorted(map(str, self.start.steps.items())))
