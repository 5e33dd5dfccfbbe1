"""Whether a job outlives a rank that dies: tried out, since some libraries offer the calls and do nothing."""

import sys

from arena.common.errors import ConfigError
from arena.launch import mpirun, mpirun_probe
from arena.system import launcher_env

_TRIAL = "from arena.commands.doctor.mpi import lose_a_rank; lose_a_rank()"
_TRIALS = 3
_TRIAL_WITHIN = 25
"""Trials, and seconds for each. On a busy machine one fails now and then, where Open MPI can do it all the same."""


def survived() -> tuple[float | None, bool]:
    """Kill a rank of a small job on this machine; if the others do not survive it, try again.

    Returns:
      The seconds until it was survived, None if it never was; and whether that could be tested at all.
    """
    try:
        path = mpirun.find_mpirun()
    except ConfigError:
        return None, False
    if not mpirun_probe.version_of(path).startswith("mpirun (Open MPI)"):
        return None, False
    line = [path, "--oversubscribe", "--bind-to", "none", "--host", "localhost:3", "--with-ft", "ulfm", "-n", "3"]
    line += [sys.executable, "-c", _TRIAL]
    for _ in range(_TRIALS):
        said, _, _ = mpirun_probe.run_for(line, _TRIAL_WITHIN, mpirun_probe.outside(path))
        _, _, rest = said.partition("survived: 2 of 3 ranks after ")
        if rest:
            return float(rest.split()[0]), True
    return None, True


def fault_tolerance_obstacle(revocable: bool) -> str | None:
    """Return why this job would not outlive a dead rank, or None; ``revocable`` is ``World.revocable``'s answer."""
    if not launcher_env.is_fault_tolerant():
        return "mpirun was started without --with-ft ulfm (Open MPI only), so that deaths are not reported"
    if not revocable:
        return "in this job's MPI, what one rank takes back is not taken back for the others"
    seconds, tested = survived()
    if not tested:
        return "whether deaths are reported cannot be tried here: no mpirun of Open MPI is on PATH"
    if seconds is None:
        return f"the others survived the death of a rank in none of {_TRIALS} trials"
    return None
