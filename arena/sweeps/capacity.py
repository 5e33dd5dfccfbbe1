"""Number of runs of one configuration that a machine carries at a time."""

from arena.config.run import RunConfig
from arena.plan.assignment import Plan
from arena.plan.layout import plan, ranks_of_run
from arena.plan.memory import MemoryNeeds

SPARE = 0.9
"""Part of the memory that runs may take together."""


def runs_at_a_time(config: RunConfig, needs: list[MemoryNeeds], cores: int, memory: int) -> int:
    """Return how many runs keep the cores busy without exceeding the memory; at least 1.

    Args:
      config: configuration of a run.
      needs: memory of each of its rounds.
      cores: cores of the machine.
      memory: its memory in bytes.
    """
    config = config.on_cores(cores)
    ranks = ranks_of_run(config)
    plans = [
        plan(round_.rows, [0] * ranks, config.spares, evaluators=config.evaluators) for round_ in config.round_list()
    ]
    busy = max(map(_busy_cores, plans))
    megabytes = max(need.of_nodes(planned)[0] for need, planned in zip(needs, plans, strict=True))
    return max(min(cores // busy, int(SPARE * memory / 1e6 / megabytes)), 1)


def _busy_cores(planned: Plan) -> int:
    """Return the number of ranks that compute at a time.

    Within a match the environment process and the workers take turns, so that it counts as its workers, or as its
    gateway. The root and an evaluator that the root starts leave the cores to them.
    """
    learners = sum(assignment.role in ("learner", "evaluator") for assignment in planned.assignments)
    workers = [
        sum(planned.assignments[rank].role in ("worker", "runner") for rank in ranks) for ranks in planned.seating
    ]
    return max(learners + sum(max(count, 1) for count in workers), 1)
