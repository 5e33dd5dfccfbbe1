"""Environment variables of MPI launchers and SLURM, and an environment without them."""

import os
from collections.abc import Mapping

_OF_MPI = ("OMPI_", "OPAL_", "PMIX_", "PMI_", "PRTE_", "MPI_", "MPIR_", "MPICH_", "HYDRA_", "HYDI_", "I_MPI_")
"""Prefixes of the variables that MPI launchers set for their ranks."""

_OF_A_JOB = ("OMPI_", "PMIX_", "PRTE_", "PMI_", "HYD", "MPI_LOCAL", "I_MPI_", "SLURM_", "PBS_", "LSB_")
"""Prefixes of the variables of launchers and batch systems from which an mpirun would take its hosts and ranks."""

DEFERRED = "ARENA_DEFER_MPI"
"""Environment variable: present in the parent process of forked ranks, which imports MPI and does not initialise it."""

CHECKED = "ARENA_CHECKED"
"""Environment variable: present if the arena's launcher has checked the run before it started mpirun."""

INSIDE = "ARENA_INSIDE"
"""Environment variable: present in ranks and checks, where user code must start no run; states which of them it is."""

ENDS_WITH = "ARENA_ENDS_WITH"
"""Environment variable: the launcher ends its run in order when this process (see ``identity``) has ended."""

PROGRESS = "ARENA_PROGRESS"
"""Environment variable: present if the root should write its progress to a file for the process that started it."""

_SETTINGS = ("OMPI_ALLOW", "OMPI_MCA_btl", "I_MPI_ROOT")
"""Prefixes of the variables that configure MPI on a machine, whatever the job."""

_LOCAL_SIZES = ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_TASKS_PER_NODE")
"""Variables by which launchers pass a rank the number of ranks on its machine."""


def started_by_mpi(environ: Mapping[str, str] = os.environ) -> tuple[int, int] | None:
    """Return (rank, size) if an MPI launcher started this process, judged by its environment, else None."""
    for rank, size in (
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("PMI_RANK", "PMI_SIZE"),
        ("PMIX_RANK", "SLURM_NTASKS"),
        ("MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ):
        if rank in environ and size in environ:
            return int(environ[rank]), int(environ[size])
    return None


def task_of_step(environ: Mapping[str, str] = os.environ) -> tuple[int, int] | None:
    """Return (task, tasks) if a step of srun started this process, with or without MPI, else None."""
    tasks = environ.get("SLURM_STEP_NUM_TASKS", "")
    return (int(environ.get("SLURM_PROCID", 0)), int(tasks)) if tasks.isdecimal() else None


def kind_of_launcher(environ: Mapping[str, str] = os.environ) -> str:
    """Return the kind of launcher that started this rank: Open MPI, Intel MPI, SLURM or MPICH."""
    if "OMPI_COMM_WORLD_SIZE" in environ:
        return "Open MPI"
    if any(name.startswith(("I_MPI_HYDRA", "I_MPI_MPIRUN")) for name in environ):
        return "Intel MPI"
    if "SLURM_STEP_NUM_TASKS" in environ and "HYDI_CONTROL_FD" not in environ:
        return "SLURM"
    return "MPICH"


def ranks_on_machine(environ: Mapping[str, str] = os.environ) -> int:
    """Return the number of ranks on this rank's machine, 0 if no launcher has set it."""
    counts = [environ[name].partition("(")[0].partition(",")[0] for name in _LOCAL_SIZES if name in environ]
    return int(counts[0]) if counts and counts[0].isdecimal() else 0


def granted_cores(environ: Mapping[str, str] = os.environ) -> float:
    """Return the number of cores of this node that the scheduler has granted to the job, infinite if unknown."""
    granted = environ.get("SLURM_CPUS_ON_NODE", "")
    return float(granted) if granted.isdecimal() else float("inf")


def cores_of_nodes(environ: Mapping[str, str] = os.environ) -> list[int]:
    """Return the cores that SLURM has granted to the job on each of its nodes; an empty list without SLURM."""
    counts: list[int] = []
    for part in filter(None, environ.get("SLURM_JOB_CPUS_PER_NODE", "").split(",")):
        cores, _, times = part.partition("(x")  # such as 64(x2)
        counts += [int(cores)] * int(times.rstrip(")") or 1)
    return counts


def tasks_of_job(environ: Mapping[str, str] = os.environ) -> int | None:
    """Return the number of tasks of SLURM's job; None without one."""
    tasks = environ.get("SLURM_NTASKS", "")
    return int(tasks) if tasks.isdecimal() else None


def is_fault_tolerant(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether this job was started with Open MPI's ``--with-ft ulfm``."""
    return environ.get("OMPI_MCA_mpi_ft_enable") == "1"


def without_mpi(environ: Mapping[str, str]) -> dict[str, str]:
    """Return environment variables without those that make a process behave as an MPI rank."""
    return {name: value for name, value in environ.items() if not name.startswith(_OF_MPI)}


def outside_of_rank(environ: Mapping[str, str]) -> dict[str, str]:
    """Return environment variables for a launcher, also in a process that itself is a task of a launcher.

    A notebook server that ``srun`` has started is no rank of a run, although it has the variables of one. Its step
    holds the cores of the job, for which a step of mpirun would wait without end: the run stays on this machine.
    """
    if started_by_mpi(environ) is None and task_of_step(environ) is None:
        return dict(environ)
    return outside_of_job(environ)


def outside_of_job(environ: Mapping[str, str]) -> dict[str, str]:
    """Return environment variables for an independent job on this machine, whatever job this process is part of."""
    return {
        name: value for name, value in environ.items() if name.startswith(_SETTINGS) or not name.startswith(_OF_A_JOB)
    }
