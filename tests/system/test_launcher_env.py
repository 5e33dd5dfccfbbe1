"""The environment of a run that a task of SLURM, or of an mpirun, starts from Python."""

import pytest

from arena.system.launcher_env import outside_of_rank, started_by_mpi, task_of_step

PLAIN = {"HOME": "/home/me", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_MCA_btl": "self,tcp"}
JOB = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]"}


@pytest.mark.parametrize(
    "task",
    [
        {"PMIX_RANK": "0", "SLURM_NTASKS": "1", "PMIX_NAMESPACE": "x"},
        {"PMI_RANK": "0", "PMI_SIZE": "1"},
        {"SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"},
        {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"},
    ],
)
def test_a_notebook_that_a_launcher_has_started_is_no_rank(task):
    inside = {**PLAIN, **JOB, **task}
    assert started_by_mpi(inside) is not None or task_of_step(inside) is not None
    assert outside_of_rank(inside) == PLAIN


def test_a_notebook_of_a_batch_script_keeps_its_job():
    assert outside_of_rank({**PLAIN, **JOB}) == {**PLAIN, **JOB}
