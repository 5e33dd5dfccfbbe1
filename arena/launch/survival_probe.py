"""Whether a job outlives a rank that dies: tried out, since some libraries offer the calls and do nothing."""

import os
import sys

from arena.common.errors import ConfigError
from arena.launch import mpirun as start
from arena.launch import mpirun_probe

_FLAG = "OMPI_MCA_mpi_ft_enable"
"""The variable by which mpirun tells its ranks of ``--with-ft ulfm``."""

_TRIAL = "from arena.commands.doctor.mpi import lose_a_rank; lose_a_rank()"


def asked_for() -> bool:
    """Whether this job was started with ``--with-ft ulfm``."""
    return os.environ.get(_FLAG) == "1"


def survived() -> tuple[float | None, bool]:
    """Kill a rank of a small job on this machine; return (seconds until that was survived or None, whether tested)."""
    try:
        mpirun = start.find_mpirun()
    except ConfigError:
        return None, False
    if not mpirun_probe.version_of(mpirun).startswith("mpirun (Open MPI)"):
        return None, False
    line = [mpirun, "--oversubscribe", "--bind-to", "none", "--host", "localhost:3", "--with-ft", "ulfm", "-n", "3"]
    line += [sys.executable, "-c", _TRIAL]
    said, _, _ = mpirun_probe.run_for(line, 60, mpirun_probe.outside(mpirun))
    _, _, rest = said.partition("survived: 2 of 3 ranks after ")
    return (float(rest.split()[0]) if rest else None), True


def why_not_tolerant(revocable: bool) -> str | None:
    """Return why this job would not outlive a dead rank, or None; ``revocable`` is ``World.revocable``'s answer."""
    if not asked_for():
        return "mpirun was started without --with-ft ulfm (Open MPI only), so that deaths are not reported"
    if not revocable:
        return "in this job's MPI, what one rank takes back is not taken back for the others"
    seconds, tested = survived()
    if not tested:
        return "whether deaths are reported cannot be tried here: no mpirun of Open MPI is on PATH"
    if seconds is None:
        return "the others did not survive a rank that was killed in a trial"
    return None
