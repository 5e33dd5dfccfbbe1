"""What the variables of an MPI launcher tell a process."""

import os


def started_by_mpi() -> tuple[int, int] | None:
    """Return (rank, size) if an MPI launcher started this process, judged by its environment, else None."""
    for rank, size in (
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("PMI_RANK", "PMI_SIZE"),
        ("PMIX_RANK", "SLURM_NTASKS"),
        ("MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ):
        if rank in os.environ and size in os.environ:
            return int(os.environ[rank]), int(os.environ[size])
    return None
