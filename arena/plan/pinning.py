"""Which core the ranks of a match keep to, where a machine has at least as many matches as cores.

A match's ranks take turns anyhow: workers wait for records, and the environment process for actions. On one core they
hand it to each other in 3 µs (``arena.comms.semaphores``), while waking a rank on another core takes over 20. So where
all cores have matches enough, each match keeps to one. Where they have not, ranks work side by side, and that is
faster.
"""

import math
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from arena.config.run import Round, RunConfig
from arena.plan.layout import Match, Plan
from arena.system.cores import Cores

UNEVEN = 1.25
"""How many times the average the matches of the fullest core may be: its ranks are those that groups wait for."""


class Place(NamedTuple):
    """Where the ranks of a match keep to.

    Attributes:
      core: the one core; None where that is left to the kernel.
      neighbours: the ranks of all environment processes that keep to it, that of the match among them.
    """

    core: int | None
    neighbours: tuple[int, ...] = ()


ANYWHERE = Place(None)


def place_of(match: int, plan: Plan, round_: Round, config: RunConfig, here: Mapping[int, Cores]) -> Place:
    """Return where the ranks of a match keep to in a round.

    Args:
      match: its number in the plan.
      plan: who does what.
      round_: what is played.
      config: of the run.
      here: the cores of the ranks of this machine, all of them.
    """
    if not config.pin_matches or config.threads_per_rank not in ("auto", 1) or not hasattr(os, "sched_setaffinity"):
        return ANYWHERE

    if plan.learners:
        return ANYWHERE  # they would share cores with matches that do not wait for them

    def work(match: Match) -> tuple[object, ...]:
        """What a match costs, as far as one can tell beforehand."""
        env = round_.rows[match.row].env
        players = [config.players[seat.player] for seat in match.seats]
        return env, sorted((player.use, player.learns) for player in players)

    first = work(plan.matches[0])
    env = round_.rows[plan.matches[0].row].env
    if env.in_worker or env.manager != "serial" or any(work(other) != first for other in plan.matches):
        return ANYWHERE
    if env.batches not in (None, 1) and not config.deterministic:
        return ANYWHERE  # a semaphore does not say for which batch; only there are they answered in turn
    cores = cores_of_matches(plan.seating, here)
    if match not in cores:
        return ANYWHERE
    core = cores[match]
    return Place(core, tuple(plan.seating[other][0] for other, its in cores.items() if its == core))


def cores_of_matches(seating: Sequence[Sequence[int]], here: Mapping[int, Cores]) -> dict[int, int]:
    """Return the core that each match of a machine keeps to; nothing where they are better left to the kernel.

    Args:
      seating: for each match its ranks, as ``arena.plan.layout.Plan.seating``; the matches must be much alike.
      here: the cores of the ranks of this machine, all of them.
    """
    matches = [number for number, ranks in enumerate(seating) if not here.keys().isdisjoint(ranks)]
    if not matches or not all(here.keys() >= set(seating[number]) for number in matches):
        return {}
    given = {here[rank] for number in matches for rank in seating[number]}
    if len(given) > 1:
        return {}
    allowed, limit = given.pop()
    cores = sorted(allowed)
    average = len(matches) / len(cores)
    if limit < len(cores) or average < 1 or math.ceil(average) > UNEVEN * average:
        return {}
    return {number: cores[place % len(cores)] for place, number in enumerate(matches)}
