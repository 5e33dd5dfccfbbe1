"""Idle cores of a run: how busy its ranks were, and the keys of the configuration that would use the rest."""

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from arena.common import registry
from arena.common.text import count_of
from arena.common.validation import Place
from arena.config.rounds import TableRow
from arena.config.run import RunConfig
from arena.config.table import listed
from arena.plan.assignment import ENVIRONMENTS, Plan
from arena.plan.layout import ranks_to_start

IDLE = 0.5
"""Number of idle cores that is worth a line, and so is, on larger machines, this share of all."""

IDLE_SHARE = 0.2

SLOW_STEP = 20e-6
"""Seconds of an environment step from which a worker waits longer for the environment than it decides and learns."""

MOST_NAMED = 6
"""Largest number of groups of ranks that are named, the busiest ones."""


class BusyRank(NamedTuple):
    """Activity of a rank over a whole attempt of a run.

    Attributes:
      rank, role, match, seat, player: as in ``arena.plan.assignment.Assignment``.
      busy: share of the time in which it did not wait, 0 to 1.
    """

    rank: int
    role: str
    match: int | None
    seat: int | None
    player: str | None
    busy: float


def describe_busy(ranks: Sequence[BusyRank], cores: int) -> str:
    """Return how many cores were busy, and the share of each rank, those of equal roles together."""
    groups = []
    for (role, player), group in groupby(sorted(ranks, key=_kind), key=_kind):
        shares = [rank.busy for rank in group]
        name = ENVIRONMENTS.get(role, role)
        if len(shares) > 1:
            name = count_of(len(shares), name, f"{name}es" if name.endswith("s") else None)
        name += f" of {player}" if player else ""
        low, high = f"{min(shares):.0%}", f"{max(shares):.0%}"
        groups.append((max(shares), f"{name} {low}" if low == high else f"{name} {low} to {high}"))
    groups.sort(key=lambda group: -group[0])
    named = ", ".join(text for _, text in groups[:MOST_NAMED])
    busy = min(sum(rank.busy for rank in ranks), cores)
    return f"{busy:.1f} of {count_of(cores, 'core')} busy: {named}"


def _kind(rank: BusyRank) -> tuple[str, str]:
    return rank.role, rank.player or ""


def keys_for_cores(config: RunConfig, plan: Plan, cores: int, busy: float) -> str:
    """Return the keys that would use idle cores; an empty string if few are idle, or none of the keys would.

    Args:
      config: the configuration, with the number of cores (``RunConfig.on_cores``).
      plan: plan of a round.
      cores: number of cores of the job.
      busy: number of cores that are busy, of all ranks together.
    """
    if cores - busy < max(IDLE, IDLE_SHARE * cores):
        return ""
    if config.league is not None:
        return f"league.matches above {config.league.matches} would use them" if config.league.matches != "auto" else ""
    for place, number, row in _improvable(config):
        matches = [match for match in plan.matches if match.row == number]
        if row.replicas == "cores":
            if row.limit is not None and len(matches) < row.limit:
                return f"-n {ranks_to_start(config)} would use them"
            continue
        copies = sum(match.copies for match in matches)
        keys = [f"{'.'.join(map(str, place))}.replicas: cores"]
        if row.env.copies is None:
            keys.append(f"env.copies: {max(copies, cores)} in place of num_envs")
        if len(row.seats) == 1 and not row.env.in_worker:
            keys.append("env.in_worker: true")
        learning = " for the same learning" if copies >= cores else ""
        named = " and ".join(filter(None, (", ".join(keys[:-1]), keys[-1])))
        return f"{named} would use them{learning}"
    return ""


def _improvable(config: RunConfig) -> list[tuple[Place, int, TableRow]]:
    """Return place, number in the first round, and row of the matches that more replicas would make faster."""
    (table, place), rows = config.written_rounds()[0], config.round_list()[0].rows
    places = [(*place, *where) for _, where in listed(table)]
    return [
        (place, number, row)
        for number, (place, row) in enumerate(zip(places, rows, strict=True))
        if not row.outside
        and row.env.manager == "serial"  # with subprocesses, each copy has a core
        and any(_averages_gradients(config, seat.player) for seat in row.seats)
    ]


def _averages_gradients(config: RunConfig, player: str) -> bool:
    """Return whether more workers of a player learn as one does: of classes of users nothing is known."""
    policy = config.players[player]
    return policy.learns and policy.use in registry.POLICIES and policy.use != "sb3"


def slow_row(config: RunConfig) -> TableRow | None:
    """Return the first row of one seat that more replicas may make faster; None if there is none."""
    if config.league is not None:
        return None
    return next((row for _, _, row in _improvable(config) if len(row.seats) == 1 and row.replicas != "cores"), None)


def cores_of_plan(plan: Plan) -> int:
    """Return the number of cores that a plan keeps busy, about: one for each learner, and one for each match."""
    return len(plan.matches) + sum(map(len, plan.learners.values()))
