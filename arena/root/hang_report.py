"""What stood still when a run hung: who gave up waiting, and what every rank says it was doing."""

from collections.abc import Mapping, Sequence

from arena.plan.layout import Plan, describe_part
from arena.protocol.messages import Failure
from arena.system.stack_dump import StackReport


def hang_report(failure: Failure, plan: Plan | None, hosts: Sequence[str], said: Mapping[int, StackReport]) -> str:
    """Return the report.

    Args:
      failure: of the rank that gave up first.
      plan: of the round that is played; None before the first.
      hosts: of each rank.
      said: by those that answered.
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
        head = f"rank {rank} on {hosts[rank]}, {part(rank)}"
        report = said.get(rank)
        if report is None:
            lines += ["", f"{head}: gave no answer; it is stopped, hangs outside of Python, or its machine is gone"]
        else:
            lines += ["", f"{head}: {report.action}", report.stack.rstrip()]
    return "\n".join(lines) + "\n"
