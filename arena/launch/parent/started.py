"""How the launcher starts the parent process of its machine."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from arena.launch.mpirun import is_open_mpi

BACKLOG = 4096
"""Clients that may wait while the parent imports."""

_BATCH_JOBS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID")
"""Environment variables of batch jobs, whose mpirun may start ranks on machines that have no parent process."""


def reason_to_spawn(mpirun: str, *, hosts: str | None, tolerant: bool, environ: Mapping[str, str]) -> str | None:
    """Return why the ranks of a run start by themselves, None where they can be forks of a parent process.

    Args:
      mpirun: path of the program.
      hosts: machines that the ranks are started on over ssh; None for this one.
      tolerant: whether ranks that die should not end the job.
      environ: environment variables of the launcher.
    """
    if sys.platform != "linux":
        return "only Linux ends ranks with their parent process"
    if hosts is not None:
        return "the run is on several machines"
    if any(name in environ for name in _BATCH_JOBS):
        return "it is part of a batch job"
    if tolerant:
        return "fault_tolerance: ulfm"
    if "LD_PRELOAD" in environ:
        return "LD_PRELOAD is set, for example by a profiler"
    if not is_open_mpi(mpirun):
        return f"{mpirun} is not Open MPI's"
    return None


@contextlib.contextmanager
def parent_process() -> Iterator[str]:
    """Start a parent process, and end it with the block; yields the path of its socket.

    The socket listens before the parent has imported anything: clients that come early wait in its queue.
    """
    folder = tempfile.mkdtemp(prefix="arena-")  # of this user alone
    process = None
    try:
        path = str(Path(folder) / "parent")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(path)
            listener.listen(BACKLOG)
            process = subprocess.Popen(
                [sys.executable, "-m", "arena.launch.parent.server", str(listener.fileno())],
                env={**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")},
                stdin=subprocess.DEVNULL,
                pass_fds=[listener.fileno()],
                start_new_session=True,
            )
        yield path
    finally:
        if process is not None:
            process.kill()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)
