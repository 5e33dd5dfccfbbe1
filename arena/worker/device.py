"""Which device a rank learns on: one GPU for each learning rank of a node, as far as there are GPUs; pure."""

from collections.abc import Collection

from arena.plan.layout import Plan


def device_of(rank: int, plan: Plan, learning: Collection[str], gpus: int) -> str:
    """Return torch's name of the device that ``rank`` computes on.

    The learning ranks of a node take its GPUs by turns, so that none of them stays unused and none is shared before
    all are taken. The others keep to the CPU: their GPU memory would be missing to those that learn.

    Args:
      rank: an MPI rank.
      plan: who does what.
      learning: the players that learn.
      gpus: how many GPUs the rank sees. Where the scheduler has given it one of its own, that is one.
    """
    here = plan.assignments[rank].node
    learners = [one.rank for one in plan.assignments if one.node == here and one.player in learning]
    if not gpus or rank not in learners:
        return "cpu"
    return f"cuda:{learners.index(rank) % gpus}"
