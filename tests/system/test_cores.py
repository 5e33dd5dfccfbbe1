"""A rank that takes more threads than it has cores slows its neighbours down; one that takes fewer wastes the node."""

import os
from pathlib import Path

import pytest

from arena.system.cores import Cores, available_cores, core_shares, threads_in

NO_LIMIT = float("inf")


def ranks(*allowed: set[int], limit: float = NO_LIMIT) -> list[Cores]:
    return [Cores(frozenset(cores), limit) for cores in allowed]


def test_ranks_that_are_not_bound_share_all_cores():
    assert core_shares(ranks(*[set(range(6))] * 3)) == pytest.approx([2.0] * 3)


def test_a_bound_rank_has_its_cores_for_itself():
    """Counting its own cores alone, each of 32 ranks bound to a core would believe that 32 ranks share one."""
    assert core_shares(ranks({0}, {1}, {2})) == [1.0] * 3


def test_ranks_that_overlap_share_what_they_have_in_common():
    assert core_shares(ranks({0, 1}, {1, 2, 3})) == [1.5, 2.5]


def test_a_quota_below_the_number_of_cores_counts():
    assert core_shares(ranks(*[set(range(64))] * 4, limit=8)) == pytest.approx([2.0] * 4)
    assert core_shares(ranks({0}, {1}, limit=64)) == [1.0, 1.0]


def test_a_rank_that_rests_takes_no_core_from_the_others():
    """A root, an environment process and a worker on two cores: no rank needs to yield its core."""
    assert core_shares(ranks(*[{0, 1}] * 3), resting=[0]) == pytest.approx([2 / 3, 1, 1])
    assert core_shares(ranks({0}, {1}, {1}), resting=[0]) == [1, 0.5, 0.5]


@pytest.mark.parametrize(("share", "threads"), [(0.33, 1), (1.0, 1), (sum([1 / 3] * 6), 2), (2.9, 2)])
def test_threads_are_whole_and_at_least_one(share, threads):
    assert threads_in(share) == threads


def test_the_scheduler_s_word_counts_where_it_does_not_fence_the_job_off(tmp_path):
    assert available_cores({"SLURM_CPUS_ON_NODE": "3"}, tmp_path) == Cores(frozenset(os.sched_getaffinity(0)), 3)
    assert available_cores({}, tmp_path).limit == NO_LIMIT


@pytest.mark.parametrize(("words", "limit"), [("150000 100000", 1.5), ("max 100000", NO_LIMIT)])
def test_the_quota_of_a_control_group_is_read(tmp_path, words, limit):
    (tmp_path / "cpu.max").write_text(words + "\n")
    (tmp_path / "cpu").mkdir()
    quota, period = words.replace("max", "-1").split()
    (tmp_path / "cpu/cpu.cfs_quota_us").write_text(quota + "\n")
    (tmp_path / "cpu/cpu.cfs_period_us").write_text(period + "\n")
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    assert any(line.split(":")[1] == "" or "cpu" in line.split(":")[1].split(",") for line in lines)
    assert available_cores({}, tmp_path).limit == limit
