"""Detection of the launcher that started this process, its MPI, and this process's rank."""

import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from arena.launch import mpirun
from arena.system import launcher_env

_PROGRAMS = ("prterun", "prted", "orterun", "orted", "mpirun", "mpiexec", "mpiexec.hydra", "hydra_pmi_proxy", "srun")


class Launcher(NamedTuple):
    """Description of a launcher, from the environment of its process.

    Attributes:
      kind: Open MPI, MPICH, Intel MPI or SLURM.
      rank: rank of this process.
      size: number of processes that it started.
      path: path of the program, if known.
    """

    kind: str
    rank: int
    size: int
    path: str | None

    def __str__(self) -> str:
        """Return its name for messages."""
        return f"{self.kind}'s {Path(self.path).name} ({self.path})" if self.path else f"the launcher of {self.kind}"


def find(environment: Mapping[str, str] = os.environ) -> Launcher | None:
    """Return the launcher that started this process as one of its ranks, judged by its environment, or None."""
    # A step of srun may have no MPI.
    place = launcher_env.started_by_mpi(environment) or launcher_env.task_of_step(environment)
    if place is None:
        return None
    return Launcher(launcher_env.kind_of_launcher(environment), *place, next(_launchers_above(), None))


def _launchers_above() -> Iterator[str]:
    """Yield the paths of the launchers among this process's ancestors, the nearest first."""
    process = os.getpid()
    while process > 1:
        try:
            status = Path(f"/proc/{process}/stat").read_text()
            path = os.readlink(f"/proc/{process}/exe")
        except OSError:
            return
        if os.path.basename(path) in _PROGRAMS:
            yield path
        process = int(status.rpartition(")")[2].split()[1])


def is_compatible(kind: str, library: str) -> bool:
    """Return whether a launcher of this kind can start ranks of this library; MPICH and Intel MPI share a protocol."""
    if kind == "SLURM":
        return True
    return (kind == "Open MPI") == library.startswith("Open MPI")


def version_of(path: str) -> str:
    """Return the first informative line of ``mpirun --version`` of the program at ``path``, or an empty string."""
    try:
        answer = subprocess.run(
            [path, "--version"],
            capture_output=True,
            text=True,
            check=False,
            env=mpirun.environment(path),
            timeout=20,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = [line.strip() for line in answer.stdout.splitlines() if line.strip()]
    return re.sub(r"^Version:\s+", "MPICH ", next((line for line in lines if re.search(r"\d+\.\d+", line)), ""))


def run_for(line: Sequence[str], seconds: float, environment: Mapping[str, str]) -> tuple[str, str, int | None]:
    """Run a job; return its output, its errors and its exit code, or None if it did not end in time.

    An mpirun that is killed leaves its ranks behind: it gets a SIGTERM first.
    """
    with subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", env=dict(environment)
    ) as job:
        try:
            output, errors = job.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            job.terminate()
            try:
                output, errors = job.communicate(timeout=10)
            except subprocess.TimeoutExpired:
                job.kill()
                output, errors = job.communicate()
            return output, errors, None
    return output, errors, job.returncode


def independent_environment(path: str) -> dict[str, str]:
    """Return the environment for an independent job on this machine, whatever job this process is part of."""
    return launcher_env.outside_of_job(mpirun.environment(path))
