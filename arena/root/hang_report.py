"""Report of a run that hangs: the rank that gave up waiting, and the activity of every rank."""

from collections.abc import Mapping, Sequence

from arena.plan.assignment import Plan, describe_part
from arena.protocol.messages import Failure
from arena.system.stack_dump import StackReport


def hang_report(
    failure: Failure,
    plan: Plan | None,
    hosts: Sequence[str],
    processes: Sequence[int],
    replies: Mapping[int, StackReport],
) -> str:
    """Return the report.

    Args:
      failure: report of the rank that gave up first.
      plan: plan of the current round; None before the first.
      hosts: host of each rank.
      processes: process id of each rank there.
      replies: replies of the ranks, by rank.
    """

    def part(rank: int) -> str:
        return "no part yet" if plan is None else describe_part(plan.assignments[rank])

    lines = [
        f"rank {failure.rank} ({part(failure.rank)}) gave up:",
        failure.text.rstrip(),
        "",
        "What every rank was doing, with its Python stack, the innermost call last:",
    ]
    for rank in range(1, len(hosts)):
        head = f"rank {rank} on {hosts[rank]} (process {processes[rank]}), {part(rank)}"
        report = replies.get(rank)
        if report is None:
            lines += ["", f"{head}: gave no answer; it is stopped, hangs outside of Python, or its machine is gone"]
        else:
            lines += ["", f"{head}: {report.action}", report.stack.rstrip()]
    return "\n".join(lines) + "\n"
