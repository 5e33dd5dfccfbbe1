"""Test whether a job survives the death of a rank: some libraries offer the calls and do nothing."""

import sys

from arena.common.errors import ConfigError
from arena.launch import mpirun, mpirun_probe
from arena.system import launcher_env

_TRIAL = "from arena.commands.doctor.mpi import lose_a_rank; lose_a_rank()"
_TRIALS = 3
_TRIAL_WITHIN = 25
"""Number of trials, and seconds for each. On a busy machine a trial fails at times, although Open MPI supports it."""


def survives_rank_loss() -> tuple[float | None, bool]:
    """Kill a rank of a small job on this machine; if the others do not survive, try again.

    Returns:
      The seconds until the others continued, None if they never did; and whether a test was possible at all.
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
        output, _, _ = mpirun_probe.run_for(line, _TRIAL_WITHIN, mpirun_probe.independent_environment(path))
        _, _, rest = output.partition("survived: 2 of 3 ranks after ")
        if rest:
            return float(rest.split()[0]), True
    return None, True


def fault_tolerance_obstacle(revocable: bool) -> str | None:
    """Return why this job would not survive a dead rank, or None; ``revocable``: result of ``World.revocable``."""
    if not launcher_env.is_fault_tolerant():
        return "mpirun was started without --with-ft ulfm (Open MPI only), so that deaths are not reported"
    if not revocable:
        return "in this job's MPI, a communicator that one rank revokes is not revoked for the others"
    seconds, tested = survives_rank_loss()
    if not tested:
        return "whether deaths are reported cannot be tried here: no mpirun of Open MPI is on PATH"
    if seconds is None:
        return f"the others survived the death of a rank in none of {_TRIALS} trials"
    return None
