"""Idle cores, before a run starts: from the activity of the last run of its name, or from the time of a step."""

import sqlite3
import time

from arena.common import registry
from arena.common.errors import ConfigError
from arena.config.rounds import TableRow
from arena.config.run import RunConfig
from arena.launch.preflight.in_child import Announce, run_in_child
from arena.plan.assignment import Plan
from arena.plan.idle_cores import SLOW_STEP, BusyRank, cores_of_plan, describe_busy, keys_for_cores, slow_row
from arena.records.readers.ranks import read_busy_ranks
from arena.records.readers.run import open_records
from arena.records.run_directory import RunDirectory

MEASURED = 0.2
"""Seconds of stepping with random actions."""

PARTS = 10
"""Parts of them, of which the fastest counts: other programs only make a step slower."""

LIMIT = 10.0
"""Seconds within which the environment must have been constructed and stepped."""


def notes_on_cores(config: RunConfig, planned: Plan, cores: int) -> list[str]:
    """Return lines about the cores that a run would leave idle on this machine.

    Args:
      config: the configuration, with the number of cores (``RunConfig.on_cores``).
      planned: plan of the first round.
      cores: number of cores of this machine.
    """
    ranks = _of_last_run(config, planned)
    if ranks:
        keys = keys_for_cores(config, planned, cores, sum(rank.busy for rank in ranks))
        return [f"the last run of this name: {describe_busy(ranks, cores)}{f'; {keys}' if keys else ''}"]
    row = slow_row(config)
    keys = keys_for_cores(config, planned, cores, cores_of_plan(planned))
    seconds = seconds_per_step(row) if row is not None and keys else None
    if row is None or seconds is None or seconds < SLOW_STEP:
        return []
    busy = cores_of_plan(planned)
    text = (
        f"a step of {row.env.use} takes {1e6 * seconds:.0f} microseconds (random actions); its worker waits for it, "
        f"and it waits while the worker decides and learns, so that about {busy} of {cores} cores would be busy: {keys}"
    )
    return [text]


def _of_last_run(config: RunConfig, planned: Plan) -> list[BusyRank]:
    """Return the activity of the last run of this name, if its ranks had the roles of the plan; else an empty list."""
    try:
        with open_records(RunDirectory(config.run_root, config.name).database) as connection:
            ranks = read_busy_ranks(connection)
    except (ConfigError, sqlite3.Error):
        return []
    places = [(each.rank, each.role, each.match, each.seat, each.player) for each in planned.assignments]
    return ranks if [rank[:-1] for rank in ranks] == places else []


def seconds_per_step(row: TableRow) -> float | None:
    """Return the seconds of a step of a row's environment; None if it cannot be stepped with random actions.

    It runs in a child process: an environment that raises, crashes or hangs costs at most ``LIMIT`` seconds.
    """

    def work(announce: Announce) -> float:
        announce(f"environment {row.env.use!r}", LIMIT, "env.start_timeout")
        return _measure(row)

    try:
        return run_in_child(work)
    except ConfigError:  # the checks and the run report it better
        return None


def _measure(row: TableRow) -> float:
    environment = registry.make_environment(**row.env.construction)
    least, total, over = float("inf"), 0.0, True
    while total < MEASURED:
        seconds, steps = 0.0, 0
        while seconds < MEASURED / PARTS:
            if over:
                environment.reset()
            actions = [entity.action.sample() for entity in environment.entities]
            began = time.perf_counter()
            over = environment.step(actions).over
            seconds += time.perf_counter() - began
            steps += 1
        least, total = min(least, seconds / steps), total + seconds
    return least
