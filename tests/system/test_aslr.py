"""Ranks that take turns on a core do so at twice the speed where their memory is laid out alike."""

import pytest

from arena.system.aslr import is_oversubscribed
from arena.system.cores import Cores

NO_LIMIT = float("inf")


@pytest.mark.parametrize(
    "environ",
    [
        {"OMPI_COMM_WORLD_LOCAL_SIZE": "5"},
        {"MPI_LOCALNRANKS": "5"},
        {"SLURM_TASKS_PER_NODE": "5"},
        {"SLURM_TASKS_PER_NODE": "5(x2),3"},
        {"SLURM_TASKS_PER_NODE": "5,3(x2)"},
    ],
)
@pytest.mark.parametrize(
    ("cores", "limit", "is_so"),
    [(4, NO_LIMIT, True), (5, NO_LIMIT, False), (64, 4, True), (64, 4.5, True), (64, 5, False)],
)
def test_ranks_that_outnumber_their_cores_are_crowded_whatever_mpi_started_them(environ, cores, limit, is_so):
    assert is_oversubscribed(environ, Cores(frozenset(range(cores)), limit)) == is_so


@pytest.mark.parametrize("environ", [{}, {"SLURM_TASKS_PER_NODE": ""}, {"SLURM_TASKS_PER_NODE": "many"}])
def test_a_rank_that_is_not_told_of_neighbours_keeps_its_addresses(environ):
    assert not is_oversubscribed(environ, Cores(frozenset({0}), NO_LIMIT))
