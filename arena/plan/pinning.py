"""Pinning of matches to cores, on machines with at least as many matches as cores.

A match's ranks alternate anyhow: workers wait for observations, and the environment process for actions. On one core
they hand it to each other in 3 µs (``arena.comms.semaphores``), while waking a rank on another core takes over 20. So
where there are enough matches for all cores, each match is pinned to one. Where there are fewer, parallel ranks are
faster.
"""

import math
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from arena.config.rounds import Round
from arena.config.run import RunConfig
from arena.plan.assignment import Match, Plan
from arena.system.cores import Cores

UNEVEN = 1.25
"""Largest ratio of the matches of the fullest core to the average: groups wait for its ranks."""


class Place(NamedTuple):
    """Pinning of the ranks of a match.

    Attributes:
      core: the core; None if the kernel schedules them.
      neighbours: ranks of all environment processes pinned to it, including that of the match.
    """

    core: int | None
    neighbours: tuple[int, ...] = ()


ANYWHERE = Place(None)


def place_of(match: int, plan: Plan, round_: Round, config: RunConfig, here: Mapping[int, Cores]) -> Place:
    """Return the pinning of a match's ranks in a round.

    Args:
      match: index of the match in the plan.
      plan: plan of the round.
      round_: the round.
      config: configuration of the run.
      here: cores of all ranks of this machine.
    """
    if not config.pin_matches or config.threads_per_rank not in ("auto", 1) or not hasattr(os, "sched_setaffinity"):
        return ANYWHERE

    if plan.learners:
        return ANYWHERE  # they would share cores with matches that do not wait for them

    def work(match: Match) -> tuple[object, ...]:
        """Return an estimate of a match's cost for comparisons with others."""
        env = round_.rows[match.row].env
        players = [config.players[seat.player] for seat in match.seats]
        return env, sorted((player.use, player.learns) for player in players)

    first = work(plan.matches[0])
    env = round_.rows[plan.matches[0].row].env
    if env.in_worker or env.manager != "serial" or any(work(other) != first for other in plan.matches):
        return ANYWHERE
    if env.batches not in (None, 1) and not config.deterministic:
        return ANYWHERE  # a semaphore does not identify a batch; only in that case are batches answered in order
    cores = cores_of_matches(plan.seating, here)
    if match not in cores:
        return ANYWHERE
    core = cores[match]
    return Place(core, tuple(plan.seating[other][0] for other, its in cores.items() if its == core))


def cores_of_matches(seating: Sequence[Sequence[int]], here: Mapping[int, Cores]) -> dict[int, int]:
    """Return the core of each match of a machine; an empty dict if the kernel should schedule them.

    Args:
      seating: ranks of each match, as in ``arena.plan.assignment.Plan.seating``; the matches must be much alike.
      here: cores of all ranks of this machine.
    """
    matches = [number for number, ranks in enumerate(seating) if not here.keys().isdisjoint(ranks)]
    if not matches or not all(here.keys() >= set(seating[number]) for number in matches):
        return {}
    available = {here[rank] for number in matches for rank in seating[number]}
    if len(available) > 1:
        return {}
    allowed, limit = available.pop()
    cores = sorted(allowed)
    average = len(matches) / len(cores)
    if limit < len(cores) or average < 1 or math.ceil(average) > UNEVEN * average:
        return {}
    return {number: cores[place % len(cores)] for place, number in enumerate(matches)}
