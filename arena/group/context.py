"""What every process of a round has at hand."""

import logging
from typing import NamedTuple

from arena.common.seeding import derive_seed
from arena.common.waiting import Waiter
from arena.comms import Mailbox, World
from arena.config.run import Round, RunConfig
from arena.plan.layout import Assignment, Plan
from arena.protocol.messages import RoundStart


class Context(NamedTuple):
    """The run as one rank sees it in one round.

    Attributes:
      world, mailbox, waiter: how it speaks with the others, and how it waits.
      config: the validated configuration.
      round: the round that is played.
      start: what the root said at its start.
      plan: who does what in it.
      me: this rank's own line of the plan.
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
        """What this round's random streams derive from: other ones in each round, and after each resume.

        In a deterministic run every checkpoint is made at the same steps, and going on from one is a resume.
        """
        return derive_seed(self.config.seed, "round", self.start.number, *sorted(map(str, self.start.steps.items())))
