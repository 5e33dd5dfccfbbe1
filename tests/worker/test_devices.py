"""Learning ranks of a node that crowd on one GPU while another is unused take twice the time."""

import pytest

from arena.config.environment import EnvConfig
from arena.config.rounds import TableRow
from arena.config.table import Seat
from arena.group.member import device_of
from arena.plan.layout import plan


def devices(per_node: int, gpus: int, learning=("blue",)) -> list[str]:
    """Return the device of each rank of two matches of blue against red, with so many ranks on a node."""
    row = TableRow((Seat("blue", (0,)), Seat("red", (1,))), 2, EnvConfig(use="touchdown"))
    planned = plan([row], [rank // per_node for rank in range(7)])
    # The root, then for each match: the environment process, blue, red.
    return [device_of(rank, planned, learning, gpus) for rank in range(7)]


def test_each_learning_rank_of_a_node_has_a_gpu_of_its_own():
    assert devices(per_node=7, gpus=2) == ["cpu", "cpu", "cuda:0", "cpu", "cpu", "cuda:1", "cpu"]


def test_nodes_count_for_themselves():
    assert devices(per_node=4, gpus=2) == ["cpu", "cpu", "cuda:0", "cpu", "cpu", "cuda:0", "cpu"]


def test_more_learning_ranks_than_gpus_take_turns():
    assert [d for d in devices(per_node=7, gpus=3, learning=("blue", "red")) if d != "cpu"] == [
        "cuda:0",
        "cuda:1",
        "cuda:2",
        "cuda:0",
    ]


@pytest.mark.parametrize("gpus", [0, 1])
def test_a_rank_that_sees_one_gpu_or_none_takes_what_there_is(gpus):
    """Schedulers that give each task a GPU of its own show it that one alone."""
    assert set(devices(per_node=7, gpus=gpus)) == ({"cpu", "cuda:0"} if gpus else {"cpu"})
