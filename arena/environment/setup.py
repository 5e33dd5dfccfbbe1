"""Setup of the process that serves a match: description of the match, and services of the rank."""

import logging
from collections.abc import Sequence
from typing import NamedTuple

from arena.common.waiting import Waiter
from arena.comms import Mailbox, World
from arena.config.rounds import TableRow
from arena.plan.assignment import Match


class MatchSetup(NamedTuple):
    """Description of the match that an environment process serves.

    Attributes:
      match: the match.
      row: the match's row of the table, with its environment.
      worker_ranks: rank of each seat.
      seed: root of its random streams.
      league: whether a league assigns its jobs.
      deterministic: whether nothing may depend on the order of arrival; the match then ends when all seats are done.
      first_index: number of the copies of all matches before this one.
      core_ranks: all environment processes pinned to this one's core, if any.
    """

    match: Match
    row: TableRow
    worker_ranks: Sequence[int]
    seed: int
    league: bool = False
    deterministic: bool = False
    first_index: int = 0
    core_ranks: Sequence[int] = ()


class Services(NamedTuple):
    """Communication and log of a rank.

    Attributes:
      world: all ranks.
      mailbox: mailbox of this rank.
      waiter: bounded waits of this rank.
      log: log of this rank.
    """

    world: World
    mailbox: Mailbox
    waiter: Waiter
    log: logging.Logger
